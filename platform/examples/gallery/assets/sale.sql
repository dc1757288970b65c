CREATE SOURCE sale (
  sale_id STRING,
  amount DECIMAL(10,2),
  sold_at TIMESTAMP,
  PRIMARY KEY (sale_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/sale', 'settle' = '0 seconds');

CREATE SOURCE product_sale (
  sale_id STRING,
  category STRING,
  product STRING,
  amount DECIMAL(10,2),
  PRIMARY KEY (sale_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/product_sale');

CREATE SOURCE order_europe (
  order_id STRING,
  euros DECIMAL(10,2),
  PRIMARY KEY (order_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/order_europe');

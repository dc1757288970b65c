CREATE SOURCE order_america (
  order_number BIGINT,
  dollars DECIMAL(10,2),
  PRIMARY KEY (order_number)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/order_america');

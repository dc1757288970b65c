CREATE SOURCE payment (
  payment_id STRING,
  invoice_id STRING,
  PRIMARY KEY (payment_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/payment');

CREATE SOURCE invoice (
  invoice_id STRING,
  customer STRING,
  amount DECIMAL(10,2),
  PRIMARY KEY (invoice_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/invoice');

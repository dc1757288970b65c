CREATE SOURCE address_change (
  change_id STRING,
  customer STRING,
  city STRING,
  changed_at TIMESTAMP,
  PRIMARY KEY (change_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/address_change');

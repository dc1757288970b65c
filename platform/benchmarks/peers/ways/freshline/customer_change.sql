CREATE SOURCE customer_change (
  change_id STRING,
  customer_id STRING,
  op STRING,
  name STRING,
  segment STRING,
  country STRING,
  changed_at TIMESTAMP
)
WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/change', 'settle' = '0 seconds');

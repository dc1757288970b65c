CREATE SOURCE customer_change (
  event_id STRING,
  op STRING,
  customer_id STRING,
  email STRING,
  phone STRING,
  segment STRING,
  acquisition_channel STRING,
  country STRING,
  opt_in BOOLEAN,
  updated_at TIMESTAMP,
  PRIMARY KEY (event_id)
)
COMMENT 'Changes of customers: op is i (insert), u (update) or d (delete); older changes may arrive after newer ones'
WITH (
  'connector' = 'files',
  'format' = 'json',
  'path' = '.freshline/${environment}/landing/customer_change',
  'settle' = '0 seconds'
);

CREATE SOURCE airline (
  carrier STRING,
  name STRING,
  PRIMARY KEY (carrier)
)
COMMENT 'The two-letter codes of airlines'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/airline',
  'settle' = '0 seconds'
);

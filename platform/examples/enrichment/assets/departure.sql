CREATE SOURCE departure (
  id BIGINT,
  carrier STRING,
  flight INT,
  tail STRING,
  origin STRING,
  destination STRING,
  left_at TIMESTAMP,
  delay INT,
  distance INT,
  PRIMARY KEY (id)
)
COMMENT 'Departures from New York in the order in which they were reported; a cancelled flight has no time'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/departure',
  'settle' = '0 seconds'
);

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
  PRIMARY KEY (id),
  WATERMARK FOR left_at AS left_at - INTERVAL '1' HOUR,
  CONSTRAINT far_enough EXPECT (distance > 0) ON VIOLATION QUARANTINE
)
COMMENT 'Departures from New York in the order in which they were reported; those of no distance are refused'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/departure',
  'settle' = '0 seconds',
  'watermark.max-ahead' = '1 day'
);

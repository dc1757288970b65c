CREATE SOURCE weather (
  origin STRING,
  at TIMESTAMP,
  wind DOUBLE,
  visibility DOUBLE,
  PRIMARY KEY (origin, at),
  WATERMARK FOR at AS at - INTERVAL '1' HOUR
)
COMMENT 'What each airport observed, mostly once an hour; each record holds until the next one of its airport'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/weather',
  'settle' = '0 seconds'
);

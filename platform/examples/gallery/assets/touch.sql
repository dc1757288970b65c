CREATE SOURCE touch (
  event_id STRING,
  customer STRING,
  campaign STRING,
  touched_at TIMESTAMP,
  PRIMARY KEY (event_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/touch');

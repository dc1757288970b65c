CREATE SOURCE event (
  event_id STRING,
  customer_id STRING,
  kind STRING,
  amount BIGINT,
  happened_at TIMESTAMP,
  PRIMARY KEY (event_id)
)
WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/event', 'settle' = '0 seconds');

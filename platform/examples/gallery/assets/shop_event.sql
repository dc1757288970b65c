CREATE SOURCE shop_event (
  event_id STRING,
  visitor STRING,
  campaign STRING,
  step STRING,
  happened_at TIMESTAMP,
  PRIMARY KEY (event_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/shop_event');

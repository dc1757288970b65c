CREATE SOURCE touch_event (
  event_id STRING,
  customer_id STRING,
  event_type STRING,
  campaign_id STRING,
  event_ts TIMESTAMP,
  PRIMARY KEY (event_id)
)
COMMENT 'Touches of customers with campaigns, as the tracker sent them: late, out of order, sometimes twice'
WITH (
  'connector' = 'files',
  'format' = 'json',
  'path' = '.freshline/${environment}/landing/touch_event',
  'settle' = '0 seconds'
);

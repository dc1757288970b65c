CREATE SOURCE touch_event (
  event_id STRING COMMENT 'The number of the touch',
  customer_id STRING COMMENT 'The number of the customer',
  event_type STRING COMMENT 'How the customer was touched, such as click or view',
  campaign_id STRING COMMENT 'The number of the campaign',
  event_ts TIMESTAMP COMMENT 'When the customer was touched, by the clock of the tracker',
  PRIMARY KEY (event_id)
)
COMMENT 'Touches of customers with campaigns, as the tracker sent them: late, out of order, sometimes twice'
WITH (
  'owner' = 'marketing',
  'group' = 'attribution',
  'connector' = 'files',
  'format' = 'json',
  'path' = '.freshline/${environment}/landing/touch_event',
  'settle' = '0 seconds'
);

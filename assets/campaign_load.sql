CREATE SOURCE campaign_load (
  campaign_id STRING COMMENT 'The number of the campaign',
  campaign_name STRING COMMENT 'The name of the campaign as marketing writes it',
  channel STRING COMMENT 'Where the campaign is shown',
  ds DATE COMMENT 'The day for which the campaign is described',
  PRIMARY KEY (campaign_id, ds)
)
COMMENT 'The campaigns of each day, in a Delta table that another job writes one day at a time'
FRESHNESS = INTERVAL '1' DAY
WITH (
  'owner' = 'marketing',
  'group' = 'attribution',
  'connector' = 'delta',
  'path' = '.freshline/${environment}/landing/campaign_load'
);

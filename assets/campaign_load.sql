CREATE SOURCE campaign_load (
  campaign_id STRING,
  campaign_name STRING,
  channel STRING,
  ds DATE,
  PRIMARY KEY (campaign_id, ds)
)
COMMENT 'The campaigns of each day, in a Delta table that another job writes one day at a time'
FRESHNESS = INTERVAL '1' DAY
WITH (
  'connector' = 'delta',
  'path' = '.freshline/${environment}/landing/campaign_load'
);

-- No FRESHNESS: it is as fresh as `campaign` asks for. A longer one could not drive a table of six hours.
CREATE SOURCE campaign_load (
  campaign_id STRING,
  campaign_name STRING,
  channel STRING,
  ds DATE,
  PRIMARY KEY (campaign_id, ds)
)
COMMENT 'The campaigns of each day, in a Delta table that another job writes one day at a time'
WITH (
  'connector' = 'delta',
  'path' = '.freshline/${environment}/landing/campaign_load'
);

CREATE MATERIALIZED TABLE campaign (
  PRIMARY KEY (campaign_id, ds)
)
COMMENT 'The campaigns of each day, one partition a day'
PARTITIONED BY (ds)
WITH (
  'owner' = 'marketing',
  'group' = 'attribution',
  'partition.unit' = 'day',
  'partition.start' = '2025-01-01'
)
FRESHNESS = INTERVAL '6' HOUR
AS SELECT
  campaign_id,
  campaign_name,
  channel,
  ds
FROM campaign_load;

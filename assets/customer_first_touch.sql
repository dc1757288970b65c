CREATE MATERIALIZED TABLE customer_first_touch (
  PRIMARY KEY (customer_id)
)
COMMENT 'Each customer who was touched: the first touch, who the customer is now, and what the campaign was that day'
WITH (
  'owner' = 'marketing',
  'group' = 'attribution',
  'delta-join.strategy' = 'FORCE',
  'non-driving' = 'campaign'
)
FRESHNESS = INTERVAL '2' MINUTE
AS SELECT
  f.customer_id,
  f.event_id,
  f.event_type,
  f.event_ts,
  f.campaign_id,
  c.segment,
  c.acquisition_channel,
  c.country,
  c.opt_in,
  a.campaign_name,
  a.channel
FROM first_touch AS f
LEFT JOIN customer AS c
  ON c.customer_id = f.customer_id
LEFT JOIN campaign AS a
  ON a.campaign_id = f.campaign_id AND a.ds = CAST(f.event_ts AS DATE);

CREATE MATERIALIZED TABLE enriched_orders (
  PRIMARY KEY (order_id)
)
COMMENT 'Each order with the campaign that deserves the credit: of the first touch, if it was in the seven days before'
PARTITIONED BY (order_date)
WITH (
  'owner' = 'sales',
  'group' = 'attribution'
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  o.order_id,
  o.customer_id,
  o.total_amount,
  o.order_ts,
  CAST(o.order_ts AS DATE) AS order_date,
  CASE WHEN f.event_ts BETWEEN o.order_ts - INTERVAL '7' DAY AND o.order_ts THEN f.event_ts END AS touch_ts,
  CASE WHEN f.event_ts BETWEEN o.order_ts - INTERVAL '7' DAY AND o.order_ts THEN f.campaign_id END AS campaign_id,
  CASE WHEN f.event_ts BETWEEN o.order_ts - INTERVAL '7' DAY AND o.order_ts THEN f.campaign_name END AS campaign_name,
  CASE WHEN f.event_ts BETWEEN o.order_ts - INTERVAL '7' DAY AND o.order_ts THEN f.channel END AS channel,
  CASE
    WHEN f.event_ts BETWEEN o.order_ts - INTERVAL '7' DAY AND o.order_ts
    THEN unix_seconds(o.order_ts) - unix_seconds(f.event_ts)
  END AS seconds_from_first_touch,
  version_of(f) AS dim_version
FROM sale_order AS o
LEFT JOIN customer_first_touch FOR SYSTEM_TIME AS OF PROCTIME() AS f
  ON f.customer_id = o.customer_id;

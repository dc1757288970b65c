CREATE MATERIALIZED TABLE campaign_revenue (
  PRIMARY KEY (campaign_id, order_date)
)
COMMENT 'What each campaign earned each day; orders without a campaign stand under NULL'
WITH (
  'owner' = 'marketing',
  'group' = 'attribution'
)
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  campaign_id,
  order_date,
  count(*) AS orders,
  count(DISTINCT customer_id) AS customers,
  sum(total_amount) AS revenue,
  avg(seconds_from_first_touch) AS seconds_to_order
FROM enriched_orders
GROUP BY campaign_id, order_date;

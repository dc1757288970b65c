CREATE MATERIALIZED TABLE funnel
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  campaign,
  count(view_at) AS viewed,
  count_if(view_at <= cart_at) AS put_into_cart,
  count_if(view_at <= cart_at AND cart_at <= order_at) AS ordered
FROM (
  SELECT
    campaign,
    visitor,
    min(CASE WHEN step = 'view' THEN happened_at END) AS view_at,
    max(CASE WHEN step = 'cart' THEN happened_at END) AS cart_at,
    max(CASE WHEN step = 'order' THEN happened_at END) AS order_at
  FROM shop_event
  GROUP BY campaign, visitor
)
GROUP BY campaign;

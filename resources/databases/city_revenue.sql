CREATE MATERIALIZED TABLE city_revenue (
  PRIMARY KEY (city)
)
COMMENT 'The orders that were paid, and their amount, by the city where their customer lives now'
FRESHNESS = INTERVAL '15' SECOND
AS SELECT
  c.city,
  count(*) AS orders,
  sum(o.amount) AS amount
FROM sale_order AS o
JOIN customer AS c ON c.customer_id = o.customer_id
WHERE o.state = 'paid'
GROUP BY c.city;

CREATE MATERIALIZED TABLE sale_order (
  PRIMARY KEY (order_id)
)
COMMENT 'The orders of the database'
WITH ('merge' = 'last_row', 'merge.sequence' = 'change')
FRESHNESS = INTERVAL '5' SECOND
AS SELECT
  order_id,
  customer_id,
  amount,
  state
FROM order_feed;

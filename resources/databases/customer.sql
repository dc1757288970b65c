CREATE MATERIALIZED TABLE customer (
  PRIMARY KEY (customer_id)
)
COMMENT 'The customers of the database'
WITH ('merge' = 'last_row', 'merge.sequence' = 'change')
FRESHNESS = INTERVAL '5' SECOND
AS SELECT
  customer_id,
  name,
  city,
  notes
FROM customer_feed;

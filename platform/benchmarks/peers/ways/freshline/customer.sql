CREATE MATERIALIZED TABLE customer (
  PRIMARY KEY (customer_id)
)
WITH (
  'merge' = 'last_row',
  'merge.sequence' = 'changed_at',
  'merge.tie-breaker' = 'change_id',
  'merge.delete-when' = 'op = ''d'''
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT customer_id, change_id, name, segment, country, changed_at
FROM customer_change;

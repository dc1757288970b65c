CREATE MATERIALIZED TABLE customer (
  PRIMARY KEY (customer_id)
)
COMMENT 'Each customer as of the newest change by its own time; a deleted customer is absent'
WITH (
  'owner' = 'crm',
  'group' = 'attribution',
  'merge' = 'last_row',
  'merge.sequence' = 'updated_at',
  'merge.tie-breaker' = 'event_id',
  'merge.delete-when' = 'op = ''d'''
)
FRESHNESS = INTERVAL '30' SECOND
AS SELECT
  customer_id,
  email,
  phone,
  segment,
  acquisition_channel,
  country,
  opt_in,
  updated_at
FROM customer_change;

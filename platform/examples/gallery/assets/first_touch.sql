CREATE MATERIALIZED TABLE first_touch (
  PRIMARY KEY (customer)
)
WITH (
  'merge' = 'first_row',
  'merge.order' = 'touched_at',
  'merge.tie-breaker' = 'event_id'
)
FRESHNESS = INTERVAL '1' MINUTE
AS SELECT customer, campaign, touched_at, event_id
FROM touch;

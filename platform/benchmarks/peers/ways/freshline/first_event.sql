CREATE MATERIALIZED TABLE first_event (
  PRIMARY KEY (customer_id)
)
WITH ('merge' = 'first_row', 'merge.order' = 'happened_at', 'merge.tie-breaker' = 'event_id')
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT customer_id, event_id, kind, amount, happened_at
FROM event;

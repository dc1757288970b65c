CREATE MATERIALIZED TABLE enriched (
  PRIMARY KEY (event_id)
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT e.event_id, e.customer_id, e.kind, e.amount, e.happened_at, c.segment, c.country
FROM event AS e
LEFT JOIN customer AS c ON c.customer_id = e.customer_id;

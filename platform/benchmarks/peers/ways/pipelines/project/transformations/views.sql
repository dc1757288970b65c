CREATE MATERIALIZED VIEW first_event AS
SELECT customer_id, r.event_id, r.kind, r.amount, r.happened_at FROM (
  SELECT customer_id, min_by(struct(event_id, kind, amount, happened_at), struct(happened_at, event_id)) AS r
  FROM event
  GROUP BY customer_id
);

CREATE MATERIALIZED VIEW customer AS
SELECT customer_id, r.change_id, r.name, r.segment, r.country, r.changed_at FROM (
  SELECT customer_id, max_by(struct(change_id, op, name, segment, country, changed_at), struct(changed_at, change_id)) AS r
  FROM customer_change
  GROUP BY customer_id
)
WHERE r.op <> 'd';

CREATE MATERIALIZED VIEW enriched AS
SELECT e.event_id, e.customer_id, e.kind, e.amount, e.happened_at, c.segment, c.country
FROM event AS e
LEFT JOIN customer AS c ON c.customer_id = e.customer_id;

CREATE MATERIALIZED VIEW revenue AS
SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events, sum(amount) AS amount
FROM enriched
GROUP BY segment, CAST(happened_at AS DATE);

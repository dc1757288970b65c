MODEL (
  name shop.first_event,
  kind INCREMENTAL_BY_UNIQUE_KEY (unique_key customer_id),
  columns (
    customer_id STRING, event_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP, loaded_at TIMESTAMP
  ),
  optimize_query FALSE
);

SELECT customer_id, r.event_id, r.kind, r.amount, r.happened_at, loaded_at
FROM (
  SELECT customer_id, min_by(struct(event_id, kind, amount, happened_at), struct(happened_at, event_id)) AS r,
    max(loaded_at) AS loaded_at
  FROM (
    SELECT customer_id, event_id, kind, amount, happened_at, loaded_at FROM shop.event
    WHERE loaded_at > @newest_file()
    UNION ALL
    SELECT customer_id, event_id, kind, amount, happened_at, loaded_at FROM shop.first_event
  )
  GROUP BY customer_id
)
WHERE loaded_at > @newest_file();

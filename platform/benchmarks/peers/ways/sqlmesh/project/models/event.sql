MODEL (
  name shop.event,
  kind INCREMENTAL_BY_UNIQUE_KEY (unique_key event_id),
  columns (
    event_id STRING, customer_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP, loaded_at TIMESTAMP
  ),
  optimize_query FALSE
);

SELECT r.event_id, r.customer_id, r.kind, r.amount, r.happened_at, r.loaded_at
FROM (
  SELECT min_by(struct(event_id, customer_id, kind, amount, happened_at, loaded_at), loaded_at) AS r
  FROM (SELECT *, _metadata.file_modification_time AS loaded_at FROM raw.event)
  WHERE loaded_at > @newest_file()
  GROUP BY event_id
) AS new
LEFT ANTI JOIN shop.event AS known ON known.event_id = new.r.event_id;

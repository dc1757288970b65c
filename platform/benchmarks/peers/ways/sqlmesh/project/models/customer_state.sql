MODEL (
  name shop.customer_state,
  kind INCREMENTAL_BY_UNIQUE_KEY (unique_key customer_id),
  columns (
    customer_id STRING, change_id STRING, op STRING, name STRING, segment STRING, country STRING,
    changed_at TIMESTAMP, loaded_at TIMESTAMP
  ),
  optimize_query FALSE
);

SELECT customer_id, r.change_id, r.op, r.name, r.segment, r.country, r.changed_at, loaded_at
FROM (
  SELECT customer_id, max(loaded_at) AS loaded_at,
    max_by(struct(change_id, op, name, segment, country, changed_at), struct(changed_at, change_id)) AS r
  FROM (
    SELECT customer_id, change_id, op, name, segment, country, changed_at,
      _metadata.file_modification_time AS loaded_at
    FROM raw.change
    WHERE _metadata.file_modification_time > @newest_file()
    UNION ALL
    SELECT customer_id, change_id, op, name, segment, country, changed_at, loaded_at FROM shop.customer_state
  )
  GROUP BY customer_id
)
WHERE loaded_at > @newest_file();

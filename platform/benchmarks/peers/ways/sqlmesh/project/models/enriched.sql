MODEL (
  name shop.enriched,
  kind INCREMENTAL_BY_UNIQUE_KEY (unique_key event_id),
  columns (
    event_id STRING, customer_id STRING, kind STRING, amount BIGINT, happened_at TIMESTAMP, segment STRING,
    country STRING, loaded_at TIMESTAMP
  ),
  optimize_query FALSE
);

SELECT e.event_id, e.customer_id, e.kind, e.amount, e.happened_at, if(c.op = 'd', NULL, c.segment) AS segment,
  if(c.op = 'd', NULL, c.country) AS country, greatest(e.loaded_at, c.loaded_at) AS loaded_at
FROM shop.event AS e
LEFT JOIN shop.customer_state AS c ON c.customer_id = e.customer_id
WHERE greatest(e.loaded_at, c.loaded_at) > @newest_file();

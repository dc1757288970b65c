{{ config(unique_key='customer_id') }}
{% if is_incremental() %}{% set since = newest_file() %}{% endif %}
SELECT customer_id, r.event_id, r.kind, r.amount, r.happened_at, loaded_at FROM (
  SELECT customer_id, min_by(struct(event_id, kind, amount, happened_at), struct(happened_at, event_id)) AS r,
    max(loaded_at) AS loaded_at
  FROM (
    SELECT customer_id, event_id, kind, amount, happened_at, loaded_at FROM {{ ref('event') }}
    {% if is_incremental() %}
    WHERE loaded_at > {{ since }}
    UNION ALL
    SELECT customer_id, event_id, kind, amount, happened_at, loaded_at FROM {{ this }}
    {% endif %}
  )
  GROUP BY customer_id
)
{% if is_incremental() %}
WHERE loaded_at > {{ since }}
{% endif %}

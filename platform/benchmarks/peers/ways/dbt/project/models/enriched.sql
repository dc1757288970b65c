{{ config(unique_key='event_id') }}
SELECT e.event_id, e.customer_id, e.kind, e.amount, e.happened_at, if(c.op = 'd', NULL, c.segment) AS segment,
  if(c.op = 'd', NULL, c.country) AS country, greatest(e.loaded_at, c.loaded_at) AS loaded_at
FROM {{ ref('event') }} AS e
LEFT JOIN {{ ref('customer_state') }} AS c ON c.customer_id = e.customer_id
{% if is_incremental() %}
WHERE greatest(e.loaded_at, c.loaded_at) > {{ newest_file() }}
{% endif %}

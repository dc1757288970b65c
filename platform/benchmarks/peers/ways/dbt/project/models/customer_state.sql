{{ config(unique_key='customer_id') }}
{% if is_incremental() %}{% set since = newest_file() %}{% endif %}
SELECT customer_id, r.change_id, r.op, r.name, r.segment, r.country, r.changed_at, loaded_at FROM (
  SELECT customer_id, max(loaded_at) AS loaded_at,
    max_by(struct(change_id, op, name, segment, country, changed_at), struct(changed_at, change_id)) AS r
  FROM (
    SELECT change_id, customer_id, op, name, segment, country, changed_at,
      _metadata.file_modification_time AS loaded_at
    FROM {{ source('raw', 'raw_change') }}
    {% if is_incremental() %}
    WHERE _metadata.file_modification_time > {{ since }}
    UNION ALL
    SELECT change_id, customer_id, op, name, segment, country, changed_at, loaded_at FROM {{ this }}
    {% endif %}
  )
  GROUP BY customer_id
)
{% if is_incremental() %}
WHERE loaded_at > {{ since }}
{% endif %}

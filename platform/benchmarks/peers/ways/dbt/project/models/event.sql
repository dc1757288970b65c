{{ config(incremental_strategy='append') }}
SELECT r.* FROM (
  SELECT min_by(struct(event_id, customer_id, kind, amount, happened_at, loaded_at), loaded_at) AS r
  FROM (SELECT *, _metadata.file_modification_time AS loaded_at FROM {{ source('raw', 'raw_event') }})
  {% if is_incremental() %}
  WHERE loaded_at > {{ newest_file() }}
  {% endif %}
  GROUP BY event_id
) AS new
{% if is_incremental() %}
LEFT ANTI JOIN {{ this }} AS known ON known.event_id = new.r.event_id
{% endif %}

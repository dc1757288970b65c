{{ config(materialized='view') }}
SELECT customer_id, change_id, name, segment, country, changed_at
FROM {{ ref('customer_state') }}
WHERE op <> 'd'

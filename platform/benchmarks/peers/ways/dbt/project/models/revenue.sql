{{ config(materialized='table') }}
SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events, sum(amount) AS amount
FROM {{ ref('enriched') }}
GROUP BY segment, CAST(happened_at AS DATE)

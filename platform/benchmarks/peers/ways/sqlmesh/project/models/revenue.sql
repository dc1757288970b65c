MODEL (
  name shop.revenue,
  kind FULL
);

SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events, sum(amount) AS amount
FROM shop.enriched
GROUP BY segment, CAST(happened_at AS DATE);

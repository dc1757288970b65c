CREATE MATERIALIZED TABLE daily_sales (
  PRIMARY KEY (day)
)
PARTITIONED BY (day)
WITH ('partition.unit' = 'day', 'partition.start' = '2026-11-01')
FRESHNESS = INTERVAL '10' MINUTE
AS SELECT
  CAST(sold_at AS DATE) AS day,
  count(*) AS sales,
  sum(amount) AS revenue
FROM sale
GROUP BY CAST(sold_at AS DATE);

CREATE MATERIALIZED TABLE revenue (
  PRIMARY KEY (segment, day)
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events, sum(amount) AS amount
FROM enriched
GROUP BY segment, CAST(happened_at AS DATE);

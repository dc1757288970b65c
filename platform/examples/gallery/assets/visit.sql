CREATE MATERIALIZED TABLE visit (
  PRIMARY KEY (visitor, number)
)
FRESHNESS = INTERVAL '5' MINUTE
AS
WITH paused AS (
  SELECT
    view_id,
    visitor,
    viewed_at,
    lag(viewed_at) OVER (PARTITION BY visitor ORDER BY viewed_at, view_id) AS before
  FROM page_view
  WHERE viewed_at IS NOT NULL
),
numbered AS (
  SELECT
    visitor,
    viewed_at,
    sum(CASE WHEN before >= viewed_at - INTERVAL '30' MINUTE THEN 0 ELSE 1 END)
      OVER (PARTITION BY visitor ORDER BY viewed_at, view_id) AS number
  FROM paused
)
SELECT
  visitor,
  number,
  min(viewed_at) AS started_at,
  max(viewed_at) AS ended_at,
  count(*) AS views
FROM numbered
GROUP BY visitor, number;

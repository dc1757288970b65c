CREATE MATERIALIZED TABLE surprise (
  PRIMARY KEY (origin, day)
)
COMMENT 'Of each airport and day: how many departures were half an hour later than the weather lets expect'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  origin,
  CAST(left_at AS DATE) AS day,
  count(*) AS departures,
  count_if(delay - expected > 30) AS surprises,
  sum(expected) AS expected
FROM expected_delay
WHERE left_at IS NOT NULL
GROUP BY origin, CAST(left_at AS DATE);

CREATE MATERIALIZED TABLE busiest
COMMENT 'The three busiest quarters of an hour of each airport and week'
FRESHNESS = INTERVAL '1' HOUR
AS SELECT origin, week, quarter, departures, place
FROM (
  SELECT
    origin,
    window_start AS week,
    quarter,
    departures,
    rank() OVER (PARTITION BY origin, window_start ORDER BY departures DESC, quarter) AS place
  FROM TABLE(TUMBLE(
    (SELECT origin, window_start AS quarter, departures FROM quarter_hour),
    DESCRIPTOR(quarter), INTERVAL '1' WEEK, TIME_ZONE => 'America/New_York'))
)
WHERE place <= 3;

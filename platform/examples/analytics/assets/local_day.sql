CREATE MATERIALIZED TABLE local_day
COMMENT 'Departures of each day of New York, which has 23 or 25 hours where clocks change'
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  window_start,
  window_end,
  origin,
  count(*) AS departures,
  max(delay) AS longest_delay
FROM TABLE(TUMBLE(TABLE departure, DESCRIPTOR(left_at), INTERVAL '1' DAY, TIME_ZONE => 'America/New_York'))
GROUP BY window_start, window_end, origin;

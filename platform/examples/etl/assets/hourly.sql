CREATE MATERIALIZED TABLE hourly
COMMENT 'Departures of each hour, written once, six hours after it; what came later is in hourly__late'
FRESHNESS = INTERVAL '5' MINUTE
EMIT FINAL ALLOWED LATENESS INTERVAL '6' HOURS
AS SELECT
  window_start,
  window_end,
  origin,
  count(*) AS departures,
  sum(distance) AS miles
FROM TABLE(TUMBLE(TABLE departure, DESCRIPTOR(left_at), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, origin;

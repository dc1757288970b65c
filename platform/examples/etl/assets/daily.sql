CREATE MATERIALIZED TABLE daily
COMMENT 'The hours of each day together, which change no more than these'
FRESHNESS = INTERVAL '5' MINUTE
EMIT FINAL
AS SELECT
  window_start,
  sum(departures) AS departures,
  sum(miles) AS miles
FROM TABLE(TUMBLE((SELECT window_end AS hour_end, departures, miles FROM hourly), DESCRIPTOR(hour_end),
  INTERVAL '1' DAY))
GROUP BY window_start;

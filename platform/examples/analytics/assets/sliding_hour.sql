CREATE MATERIALIZED TABLE sliding_hour
COMMENT 'Departures of the last hour, every quarter of an hour'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  window_start,
  window_end,
  origin,
  count(*) AS departures
FROM TABLE(HOP(TABLE departure, DESCRIPTOR(left_at), INTERVAL '15' MINUTES, INTERVAL '1' HOUR))
GROUP BY window_start, window_end, origin;

CREATE MATERIALIZED TABLE quarter_hour
COMMENT 'Departures of each airport in each quarter of an hour'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  window_start,
  window_end,
  origin,
  count(*) AS departures,
  sum(delay) AS delay
FROM TABLE(TUMBLE(TABLE departure, DESCRIPTOR(left_at), INTERVAL '15' MINUTES))
GROUP BY window_start, window_end, origin;

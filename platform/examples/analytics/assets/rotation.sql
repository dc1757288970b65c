CREATE MATERIALIZED TABLE rotation
COMMENT 'What an aircraft flies from New York without a pause of more than six hours'
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  tail,
  window_start,
  window_end,
  count(*) AS departures
FROM TABLE(SESSION(TABLE departure PARTITION BY tail, DESCRIPTOR(left_at), INTERVAL '6' HOURS))
GROUP BY tail, window_start, window_end;

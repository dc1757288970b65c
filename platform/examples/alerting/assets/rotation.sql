CREATE MATERIALIZED TABLE rotation
COMMENT 'What an aircraft flies from New York without a pause of more than eight hours, and how late it was at worst'
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  tail,
  window_start,
  window_end,
  count(*) AS departures,
  max(delay) AS worst
FROM TABLE(SESSION(TABLE departure PARTITION BY tail, DESCRIPTOR(left_at), INTERVAL '8' HOURS))
GROUP BY tail, window_start, window_end;

CREATE MATERIALIZED TABLE recovered
COMMENT 'Runs of late departures that end with one in time, each departure with its part in the run'
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  tail,
  id,
  part,
  run,
  worst
FROM departure MATCH_RECOGNIZE (
  PARTITION BY tail
  ORDER BY left_at, id
  MEASURES
    CLASSIFIER() AS part,
    MATCH_NUMBER() AS run,
    FINAL max(late.delay) AS worst
  ALL ROWS PER MATCH
  AFTER MATCH SKIP TO LAST in_time
  PATTERN (in_time late{2,4}? in_time)
  DEFINE
    late AS late.delay > 30,
    in_time AS in_time.delay <= 5
);

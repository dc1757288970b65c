CREATE MATERIALIZED TABLE growing
COMMENT 'Aircraft that left later three times in a row, each time by more than ten minutes'
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  tail,
  began,
  ended,
  flights,
  first_delay,
  last_delay
FROM departure MATCH_RECOGNIZE (
  PARTITION BY tail
  ORDER BY left_at, id
  MEASURES
    FIRST(A.left_at) AS began,
    LAST(B.left_at) AS ended,
    count(*) AS flights,
    FIRST(A.delay) AS first_delay,
    LAST(B.delay) AS last_delay
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B{3,})
  DEFINE
    B AS B.delay > PREV(B.delay) + 10
);

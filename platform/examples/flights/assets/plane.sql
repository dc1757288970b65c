CREATE MATERIALIZED TABLE plane (
  PRIMARY KEY (tailnum)
)
COMMENT 'Each plane as its newest record describes it'
WITH (
  'merge' = 'last_row',
  'merge.sequence' = 'recorded_at',
  'merge.tie-breaker' = 'record_id'
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  tailnum,
  year,
  type,
  manufacturer,
  model,
  engines,
  seats,
  recorded_at
FROM plane_record;

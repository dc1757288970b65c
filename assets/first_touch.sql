CREATE MATERIALIZED TABLE first_touch (
  PRIMARY KEY (customer_id)
)
COMMENT 'The first touch of each customer by event time; an earlier one that arrives late takes its place'
WITH (
  'owner' = 'marketing',
  'group' = 'attribution',
  'merge' = 'first_row',
  'merge.order' = 'event_ts',
  'merge.tie-breaker' = 'event_id',
  'merge.late' = 'correct'
)
FRESHNESS = INTERVAL '10' SECOND
AS SELECT
  customer_id,
  event_id,
  event_type,
  campaign_id,
  event_ts
FROM touch_event;

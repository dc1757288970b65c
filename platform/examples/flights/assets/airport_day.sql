CREATE MATERIALIZED TABLE airport_day (
  PRIMARY KEY (origin, flight_date)
)
COMMENT 'How each airport did each day'
PARTITIONED BY (flight_date)
FRESHNESS = INTERVAL '1' HOUR
AS SELECT
  origin,
  flight_date,
  count(*) AS flights,
  count_if(dep_time IS NULL) AS cancelled,
  avg(dep_delay) AS average_delay,
  percentile(dep_delay, 0.9) AS p90_delay
FROM departure
GROUP BY origin, flight_date;

CREATE MATERIALIZED TABLE departure
COMMENT 'Departures with the airline and the plane as they were known when the record arrived'
PARTITIONED BY (flight_date)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  make_date(r.year, r.month, r.day) AS flight_date,
  r.time_hour,
  r.origin,
  r.dest,
  r.carrier,
  a.name AS airline,
  r.flight,
  r.tailnum,
  p.manufacturer,
  p.model,
  p.seats,
  r.sched_dep_time,
  r.dep_time,
  r.dep_delay,
  r.arr_delay,
  r.air_time,
  r.distance
FROM flight_record AS r
LEFT JOIN plane FOR SYSTEM_TIME AS OF PROCTIME() AS p
  ON p.tailnum = r.tailnum
LEFT JOIN airline FOR SYSTEM_TIME AS OF PROCTIME() AS a
  ON a.carrier = r.carrier;

CREATE SOURCE flight_record (
  year INT,
  month INT,
  day INT,
  dep_time INT,
  sched_dep_time INT,
  dep_delay INT,
  arr_time INT,
  sched_arr_time INT,
  arr_delay INT,
  carrier STRING,
  flight INT,
  tailnum STRING,
  origin STRING,
  dest STRING,
  air_time INT,
  distance INT,
  hour INT,
  minute INT,
  time_hour TIMESTAMP
)
COMMENT 'Every departure from a New York airport; without a departure time it was cancelled'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/flight_record',
  'settle' = '0 seconds'
);

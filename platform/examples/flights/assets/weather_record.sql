CREATE SOURCE weather_record (
  origin STRING,
  year INT,
  month INT,
  day INT,
  hour INT,
  temp DOUBLE,
  dewp DOUBLE,
  humid DOUBLE,
  wind_dir INT,
  wind_speed DOUBLE,
  wind_gust DOUBLE,
  precip DOUBLE,
  pressure DOUBLE,
  visib DOUBLE,
  time_hour TIMESTAMP,
  PRIMARY KEY (origin, time_hour)
)
COMMENT 'Hourly weather at the three airports; nothing reads it yet, so it states its own freshness'
FRESHNESS = INTERVAL '1' DAY
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/weather_record',
  'settle' = '0 seconds'
);

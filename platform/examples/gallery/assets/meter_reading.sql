CREATE SOURCE meter_reading (
  reading_id STRING,
  meter STRING,
  kilowatt_hours DECIMAL(10,1),
  read_at TIMESTAMP,
  PRIMARY KEY (reading_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/meter_reading');

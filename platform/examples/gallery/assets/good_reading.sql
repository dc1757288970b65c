CREATE MATERIALIZED TABLE good_reading (
  CONSTRAINT has_value EXPECT (kilowatt_hours IS NOT NULL) ON VIOLATION DROP ROW,
  CONSTRAINT plausible EXPECT (kilowatt_hours IS NULL OR kilowatt_hours BETWEEN 0 AND 1000) ON VIOLATION QUARANTINE,
  CONSTRAINT known_meter EXPECT (meter IS NOT NULL)
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT reading_id, meter, kilowatt_hours, read_at
FROM meter_reading;

CREATE MATERIALIZED TABLE airport_group (
  PRIMARY KEY (airport)
)
COMMENT 'Airports that departures connect, each with the first of its group'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  node AS airport,
  component AS first_airport
FROM CONNECTED_COMPONENTS(TABLE departure, DESCRIPTOR(origin, destination));

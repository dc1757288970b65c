CREATE MATERIALIZED TABLE airport_rank (
  PRIMARY KEY (airport)
)
COMMENT 'The rank of each airport by the departures that lead to it'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  node AS airport,
  rank
FROM PAGERANK(TABLE departure, DESCRIPTOR(origin, destination), TOLERANCE => 0.000001);

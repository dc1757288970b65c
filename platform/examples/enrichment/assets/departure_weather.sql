CREATE MATERIALIZED TABLE departure_weather (
  PRIMARY KEY (id)
)
COMMENT 'Each departure with the weather of its airport at that time'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  d.id,
  d.origin,
  d.destination,
  d.left_at,
  d.delay,
  w.at AS observed_at,
  CAST(round(w.wind) AS INT) AS wind,
  CAST(round(w.visibility) AS INT) AS visibility
FROM departure AS d
LEFT JOIN weather FOR SYSTEM_TIME AS OF d.left_at AS w ON w.origin = d.origin;

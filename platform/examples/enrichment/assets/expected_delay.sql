CREATE MATERIALIZED TABLE expected_delay (
  PRIMARY KEY (id)
)
COMMENT 'The delay that the model expects in such weather, beside the one that there was'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  id,
  origin,
  left_at,
  delay,
  ml_predict(delay_model, hour(left_at), wind, visibility) AS expected,
  model_version_of(delay_model) AS model
FROM departure_weather;

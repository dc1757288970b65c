CREATE MATERIALIZED TABLE address_history (
  PRIMARY KEY (change_id)
)
FRESHNESS = INTERVAL '10' MINUTE
AS SELECT
  customer,
  city,
  changed_at AS valid_from,
  lead(changed_at) OVER (PARTITION BY customer ORDER BY changed_at, change_id) AS valid_to,
  change_id
FROM address_change
WHERE changed_at IS NOT NULL;

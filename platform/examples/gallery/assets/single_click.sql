CREATE MATERIALIZED TABLE single_click (
  PRIMARY KEY (click_id)
)
WITH ('merge' = 'first_row')
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT click_id, page, clicked_at
FROM click;

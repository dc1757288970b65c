CREATE SINK order_search FROM enriched_orders
COMMENT 'The orders for whoever searches'
WITH (
  'connector' = 'opensearch',
  'url' = '${env:FRESHLINE_DEMO_SEARCH}',
  'index' = 'enriched_orders'
);

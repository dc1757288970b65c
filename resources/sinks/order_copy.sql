CREATE SINK order_copy FROM enriched_orders
COMMENT 'The orders for whoever asks a database'
WITH (
  'connector' = 'jdbc',
  'url' = '${env:FRESHLINE_DEMO_DATABASE}',
  'table' = 'public.enriched_orders'
);

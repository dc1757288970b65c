CREATE SINK customer_search FROM customer
COMMENT 'The customers for whoever searches'
WITH (
  'connector' = 'opensearch',
  'url' = '${env:FRESHLINE_DEMO_SEARCH}',
  'index' = 'customer'
);

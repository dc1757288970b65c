CREATE SINK customer_copy FROM customer
COMMENT 'The customers for whoever asks a database'
WITH (
  'connector' = 'jdbc',
  'url' = '${env:FRESHLINE_DEMO_DATABASE}',
  'table' = 'public.customer'
);

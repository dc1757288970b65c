CREATE SOURCE order_feed (
  order_id BIGINT,
  customer_id BIGINT,
  amount DECIMAL(10,2),
  state STRING,
  PRIMARY KEY (order_id)
)
COMMENT 'Each change of an order, as the log of the database has it'
WITH (
  'connector' = 'postgres',
  'url' = '${env:FRESHLINE_DEMO_DATABASE}',
  'table' = 'public.sale_order',
  'slot' = 'freshline_order'
);

CREATE SOURCE sale_order (
  order_id STRING,
  customer_id STRING,
  total_amount DECIMAL(10,2),
  order_ts TIMESTAMP,
  PRIMARY KEY (order_id)
)
COMMENT 'Orders of the shop, one record an order'
WITH (
  'connector' = 'files',
  'format' = 'json',
  'path' = '.freshline/${environment}/landing/sale_order',
  'settle' = '0 seconds'
);

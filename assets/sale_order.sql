CREATE SOURCE sale_order (
  order_id STRING COMMENT 'The number of the order',
  customer_id STRING COMMENT 'The number of the customer',
  total_amount DECIMAL(10,2) COMMENT 'The amount of the order in the currency of the shop, with tax',
  order_ts TIMESTAMP COMMENT 'When the order was placed',
  PRIMARY KEY (order_id)
)
COMMENT 'Orders of the shop, one record an order'
WITH (
  'owner' = 'sales',
  'group' = 'attribution',
  'connector' = 'files',
  'format' = 'json',
  'path' = '.freshline/${environment}/landing/sale_order',
  'settle' = '0 seconds'
);

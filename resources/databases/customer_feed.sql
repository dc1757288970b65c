CREATE SOURCE customer_feed (
  customer_id BIGINT,
  name STRING,
  city STRING,
  notes STRING,
  PRIMARY KEY (customer_id)
)
COMMENT 'Each change of a customer, as the log of the database has it'
WITH (
  'connector' = 'postgres',
  'url' = '${env:FRESHLINE_DEMO_DATABASE}',
  'table' = 'public.customer',
  'slot' = 'freshline_customer'
);

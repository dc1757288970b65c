CREATE SOURCE customer_change (
  event_id STRING COMMENT 'The number of the change',
  op STRING COMMENT 'i (insert), u (update) or d (delete)',
  customer_id STRING COMMENT 'The number of the customer',
  email STRING COMMENT 'Where the customer is written to',
  phone STRING COMMENT 'Where the customer is called',
  segment STRING COMMENT 'The group that marketing put the customer in',
  acquisition_channel STRING COMMENT 'The channel on which the customer came to the shop',
  country STRING COMMENT 'Two letters of ISO 3166',
  opt_in BOOLEAN COMMENT 'Whether the customer accepts advertising',
  updated_at TIMESTAMP COMMENT 'When the customer was changed, by the clock of the shop',
  PRIMARY KEY (event_id)
)
COMMENT 'Changes of customers: op is i (insert), u (update) or d (delete); older changes may arrive after newer ones'
WITH (
  'owner' = 'crm',
  'group' = 'attribution',
  'connector' = 'files',
  'format' = 'json',
  'path' = '.freshline/${environment}/landing/customer_change',
  'settle' = '0 seconds'
);

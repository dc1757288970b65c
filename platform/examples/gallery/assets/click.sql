CREATE SOURCE click (
  click_id STRING,
  page STRING,
  clicked_at TIMESTAMP
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/click');

CREATE SOURCE page_view (
  view_id STRING,
  visitor STRING,
  viewed_at TIMESTAMP,
  PRIMARY KEY (view_id)
)
WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/page_view');

CREATE SOURCE plane_record (
  tailnum STRING,
  year INT,
  type STRING,
  manufacturer STRING,
  model STRING,
  engines INT,
  seats INT,
  speed INT,
  engine STRING,
  recorded_at TIMESTAMP,
  record_id STRING,
  PRIMARY KEY (record_id)
)
COMMENT 'Records of the register of planes: several of one plane, in any order'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'header' = 'true',
  'null-value' = 'NA',
  'path' = '.freshline/${environment}/landing/plane_record',
  'settle' = '0 seconds'
);

CREATE MATERIALIZED TABLE every_order
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT 'europe' AS region, order_id, euros AS amount, 'EUR' AS currency
FROM order_europe
UNION ALL
SELECT 'america', CAST(order_number AS STRING), dollars, 'USD'
FROM order_america;

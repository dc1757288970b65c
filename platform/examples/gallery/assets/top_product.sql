CREATE MATERIALIZED TABLE top_product
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  category,
  product,
  revenue,
  row_number() OVER (PARTITION BY category ORDER BY revenue DESC, product) AS place
FROM (
  SELECT category, product, sum(amount) AS revenue
  FROM product_sale
  GROUP BY category, product
)
QUALIFY row_number() OVER (PARTITION BY category ORDER BY revenue DESC, product) <= 2;

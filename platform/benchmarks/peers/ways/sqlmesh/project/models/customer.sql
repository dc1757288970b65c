MODEL (
  name shop.customer,
  kind VIEW
);

SELECT customer_id, change_id, name, segment, country, changed_at
FROM shop.customer_state
WHERE op <> 'd';

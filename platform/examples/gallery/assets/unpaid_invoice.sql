CREATE MATERIALIZED TABLE unpaid_invoice (
  PRIMARY KEY (invoice_id)
)
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT i.invoice_id, i.customer, i.amount
FROM invoice AS i
LEFT ANTI JOIN payment AS p ON p.invoice_id = i.invoice_id;

"""Everything again by DuckDB: a process a run, from all files of JSON to files of Parquet."""

from __future__ import annotations

import sys

import duckdb

landing, tables = sys.argv[1:]
database = duckdb.connect()
database.execute(f"""
CREATE TABLE event AS SELECT DISTINCT * FROM read_json('{landing}/event/*.json', format = 'newline_delimited', columns =
    {{event_id: 'VARCHAR', customer_id: 'VARCHAR', kind: 'VARCHAR', amount: 'BIGINT', happened_at: 'TIMESTAMP'}});
CREATE TABLE first_event AS SELECT customer_id, event_id, kind, amount, happened_at FROM event
    QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY happened_at, event_id) = 1;
CREATE TABLE customer AS SELECT customer_id, change_id, name, segment, country, changed_at FROM (
    SELECT * FROM read_json('{landing}/change/*.json', format = 'newline_delimited', columns =
        {{change_id: 'VARCHAR', customer_id: 'VARCHAR', op: 'VARCHAR', name: 'VARCHAR', segment: 'VARCHAR',
        country: 'VARCHAR', changed_at: 'TIMESTAMP'}})
    QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY changed_at DESC, change_id DESC) = 1
) WHERE op <> 'd';
CREATE TABLE enriched AS SELECT e.*, c.segment, c.country FROM event e LEFT JOIN customer c USING (customer_id);
CREATE TABLE revenue AS SELECT segment, CAST(happened_at AS DATE) AS day, count(*) AS events,
    CAST(sum(amount) AS BIGINT) AS amount FROM enriched GROUP BY ALL;
""")
for name in ("event", "first_event", "customer", "enriched", "revenue"):
    database.execute(f"COPY {name} TO '{tables}/{name}.parquet'")

"""Where Spark or Delta refuses, the reason and the error name the cause; and queries that were refused for nothing."""

from __future__ import annotations

from freshline.errors import QueryError

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


def declare(lab, name, query, head=""):
    lab.declare(f"CREATE MATERIALIZED TABLE {name} {head} {HOURLY} AS {query}")


def test_queries_that_were_computed_in_full_for_nothing_follow_changes(lab):
    lab.source("o", "id INT, k INT, v BIGINT, ts TIMESTAMP, window_time TIMESTAMP", primary_key=["id"])
    rows = ", ".join(
        f"({n}, {n % 3}, {n * 10}, TIMESTAMP'2026-11-01 00:0{n}:00', TIMESTAMP'2026-11-01 0{n}:00:00')"
        for n in range(6)
    )
    lab.sql(f"INSERT INTO o VALUES {rows}")
    declare(lab, "ranked", "SELECT id, v, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM o", "(PRIMARY KEY (id))")
    declare(lab, "cast_sum", "SELECT k, CAST(sum(v) AS BIGINT) AS s FROM o GROUP BY k", "(PRIMARY KEY (k))")
    declare(lab, "whole", "SELECT CAST(sum(v) AS BIGINT) AS s, CAST(count(*) AS BIGINT) AS n FROM o")
    declare(
        lab,
        "windows",
        "SELECT id, window_start, window_time FROM TUMBLE(TABLE o, DESCRIPTOR(window_time), INTERVAL '2' HOURS)",
    )
    declare(
        lab,
        "sessions",
        "SELECT id, window_time FROM SESSION(TABLE o PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    )
    names = ("ranked", "cast_sum", "whole", "windows", "sessions")
    for name in names:
        outcome = lab.refresh(name)
        assert outcome.error is None, (name, outcome.error)
    lab.sql("UPDATE o SET v = 5, k = 1 WHERE id = 3")

    found = {name: lab.refresh(name) for name in names}

    assert {name: outcome.strategy for name, outcome in found.items()} == {
        "ranked": "keys", "cast_sum": "keys", "whole": "keys", "windows": "noop", "sessions": "keys"
    }  # fmt: skip
    assert (found["whole"].reason.split("(")[0], found["cast_sum"].reason.split("(")[0]) == ("ALGEBRAIC", "ALGEBRAIC")
    assert [lab.diff(name) for name in names] == [[]] * 5


def test_a_refusal_names_its_cause(lab):
    lab.source("o", "id INT, v INT, d INT, ts TIMESTAMP", primary_key=["id"])
    lab.sql("INSERT INTO o VALUES (1, 10, 1, TIMESTAMP'2026-11-01 00:00:00'), (2, 20, 2, NULL)")
    declare(lab, "age", "SELECT id, now() - ts AS age FROM o")
    declare(lab, "plain", "SELECT id, v FROM o", "(PRIMARY KEY (id))")

    failed = lab.refresh("age").error

    assert isinstance(failed, QueryError)
    assert "column age is an INTERVAL, such as the difference of two times" in str(failed)
    assert "spark.databricks" not in str(failed)
    lab.refresh("plain")
    # No changed rows were kept in between: it is the change feed that is missing, and no query is read differently.
    for switch, value in (("false", 21), ("true", 22)):
        lab.sql(f"ALTER TABLE o SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{switch}')")
        lab.sql(f"UPDATE o SET v = {value} WHERE id = 2")
    assert lab.refresh("plain").reason.startswith("CDF_DISABLED(o)")
    assert lab.diff("plain") == []

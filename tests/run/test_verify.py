"""Verify distinguishes equal, different, and what it cannot compare."""

from __future__ import annotations

import shutil

import pytest

from freshline.errors import RequestError

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


@pytest.mark.long
def test_rows_are_compared_as_bags_and_floats_to_nine_digits(lab):
    lab.source("s", "id INT, x DOUBLE, m MAP<STRING, ARRAY<DOUBLE>>")
    lab.sql("INSERT INTO s VALUES (1, 0.1, map('a', array(0.1), 'b', NULL)), (1, 0.1, NULL), (2, DOUBLE('NaN'), NULL)")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT * FROM s")
    lab.refresh("t")
    session, path = lab.runtime.sessions.root, lab.path("t")
    session.sql(f"UPDATE delta.`{path}` SET x = x * (1 + 1e-12)")
    assert lab.diff("t") == []
    session.sql(f"UPDATE delta.`{path}` SET m = map('b', NULL, 'a', array(0.1)) WHERE m IS NOT NULL")
    assert lab.diff("t") == []
    session.sql(f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}` WHERE id = 2")
    found = lab.verify("t")
    assert (found.equal, found.missing, found.extra) == (False, 0, 1)
    session.sql(f"UPDATE delta.`{path}` SET x = 0.2 WHERE id = 1 AND m IS NULL")
    found = lab.verify("t")
    assert (found.missing, found.extra) == (1, 2)
    assert [text[0] for text in found.samples] == ["+", "+", "-"]
    assert set(found.as_json()) >= {"table", "equal", "missing", "extra", "unverified"}


def test_a_table_that_cannot_be_computed_again_is_unverified_and_not_equal(lab):
    lab.source("o", "id INT, k INT")
    lab.source("d", "k INT, v STRING")
    lab.sql("INSERT INTO o VALUES (1, 1)")
    lab.sql("INSERT INTO d VALUES (1, 'x')")
    lab.declare(
        f"CREATE MATERIALIZED TABLE e {HOURLY} "
        "AS SELECT o.id, d.v FROM o LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON o.k = d.k"
    )
    lab.refresh("e")
    lab.sql("UPDATE d SET v = 'y'")
    lab.sql("INSERT INTO o VALUES (2, 1)")
    lab.refresh("e")
    assert lab.verify("e").equal
    # The dimension becomes another table: the rows that were joined then cannot be joined again.
    shutil.rmtree(lab.path("d"))
    frame = lab.runtime.sessions.root.createDataFrame([(1, "z")], "k INT, v STRING")
    frame.write.format("delta").save(str(lab.path("d")))

    found = lab.verify("e")

    assert (found.equal, found.unverified) == (False, 2)
    with pytest.raises(RequestError):
        lab.diff("e")


def test_a_table_without_a_version_and_a_source_say_so(lab):
    lab.source("s", "id INT")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id FROM s")

    assert lab.verify("t").error.startswith("NO_VERSION")
    with pytest.raises(RequestError, match="tables are verified"):
        lab.verify("s")


def test_a_changed_declaration_cannot_be_compared(lab):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1)")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id FROM s")
    lab.refresh("t")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id + 1 AS id FROM s")

    found = lab.verify("t")

    assert (found.equal, found.unverified) == (False, 1)
    assert "declaration changed" in found.detail

"""Values of every type, and names, come through every strategy unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tests.scenarios.tables import declare, declare_merge, fill, follow

COLUMNS = (
    "id INT, d DECIMAL(38,18), ts TIMESTAMP, n TIMESTAMP_NTZ, day DATE, s STRING, b BINARY, t BOOLEAN, f DOUBLE, "
    "a ARRAY<STRING>, m MAP<STRING, DECIMAL(10,2)>, r STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>"
)
ROW = (
    "({id}, 12345678901234567890.123456789012345678, TIMESTAMP'2026-03-29 01:30:00.000001Z', "
    "TIMESTAMP_NTZ'2026-10-25 02:30:00', "
    "DATE'0001-01-01', 'naïve ✓ 日本 \\U0001F600', X'00FF', true, DOUBLE('NaN'), array('x', NULL), "
    "map('k', 1.50, 'j', NULL), "
    "named_struct('x', {id}, 'y', array(named_struct('z', 'deep'))))"
)
NULLS = "({id}" + ", NULL" * 11 + ")"


def test_values_survive_append_merge_partition_and_full(lab):
    fill(lab, "s", COLUMNS, f"{ROW.format(id=1)}, {NULLS.format(id=2)}")
    declare(lab, "SELECT * FROM s", name="appended")
    declare(lab, "SELECT * FROM s LIMIT ALL", "PARTITIONED BY (id)", name="parted")
    declare_merge(lab, "SELECT * FROM s", "id", "last_row", sequence="id", tie_breaker="day", name="merged")
    first = lab.refresh_all()
    lab.sql(f"INSERT INTO s VALUES {ROW.format(id=3)}, {NULLS.format(id=4)}")
    second = lab.refresh_all()

    assert [o.error for o in (*first, *second)] == [None] * 8
    for name in ("appended", "merged", "parted"):
        assert lab.diff(name) == []
        rows = {row["id"]: row for row in lab.rows(name)}
        row = rows[3]
        assert row["d"] == Decimal("12345678901234567890.123456789012345678")
        assert row["ts"] == datetime(2026, 3, 29, 1, 30, 0, 1, UTC)
        assert row["n"] == datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001 - a time without a zone is what is stored
        assert row["day"] == date(1, 1, 1)
        assert row["s"] == "naïve ✓ 日本 \U0001f600"
        assert (row["b"], row["t"], str(row["f"])) == (b"\x00\xff", True, "nan")
        assert (row["a"], row["m"]) == (["x", None], {"k": Decimal("1.50"), "j": None})
        assert row["r"] == {"x": 3, "y": [{"z": "deep"}]}
        assert set(rows[4].values()) == {4, None}


def test_texts_that_are_no_utf_8_stay_as_they_are(lab):
    broken = "CAST(X'61C328FF' AS STRING)"
    fill(lab, "s", "id INT, t STRING", f"(1, {broken})")
    declare(lab, "SELECT id, t FROM s", name="appended")
    declare(lab, "SELECT id, max(concat(t, '')) AS t FROM s GROUP BY id", name="grouped")
    declare_merge(lab, "SELECT * FROM s", "id", "last_row", sequence="id", tie_breaker="t", name="merged")
    first = lab.refresh_all()
    lab.sql(f"INSERT INTO s VALUES (2, {broken}), (3, 'é')")
    second = lab.refresh_all()

    assert [o.error for o in (*first, *second)] == [None] * 8
    for name in ("appended", "grouped", "merged"):
        found = [row["h"] for row in lab.sql(f"SELECT hex(t) AS h FROM {name} ORDER BY id")]
        assert found == ["61C328FF", "61C328FF", "C3A9"], name
        assert lab.verify(name).equal, name


def test_a_column_may_be_null_in_a_later_refresh_that_never_was_before(lab):
    fill(lab, "s", "id INT, v STRING", "(1, 'a')")
    declare(lab, "SELECT id, 'x' AS constant FROM s UNION ALL SELECT id, v FROM s")
    lab.refresh("t")
    follow(lab, "INSERT INTO s VALUES (2, NULL)", by="append")


@pytest.mark.long
def test_a_clustered_table_stays_clustered(lab):
    fill(lab, "s", "id INT, k STRING", "(1, 'a')")
    declare(lab, "SELECT id, k FROM s", "CLUSTER BY (k)")
    for _ in range(2):
        assert lab.refresh("t", full=True).error is None

    (detail,) = lab.sql(f"DESCRIBE DETAIL delta.`{lab.path('t')}`")
    assert detail["clusteringColumns"] == ["k"]
    assert lab.diff("t") == []


@pytest.mark.long
def test_tables_of_one_name_differ_by_their_namespace(lab):
    fill(lab, "a.s", "id INT, n INT", "(1, 1)")
    fill(lab, "a_s", "id INT, n INT", "(2, 2)")
    declare(lab, "SELECT a.s.id, x.n FROM a.s JOIN a.s AS x ON a.s.id = x.id", name="b.t")
    declare(lab, "SELECT a_s.id, t.n FROM a_s LEFT JOIN b.t ON t.id = a_s.id", name="c.t")
    lab.refresh_all()
    lab.sql("INSERT INTO a.s VALUES (2, 5)")
    outcomes = [lab.refresh("c.t"), lab.refresh("b.t")]

    assert [o.error for o in outcomes] == [None, None]
    assert lab.rows("b.t") == [{"id": 1, "n": 1}, {"id": 2, "n": 5}]
    assert lab.rows("c.t") == [{"id": 2, "n": 5}]
    assert lab.diff("b.t") == lab.diff("c.t") == []
    assert lab.path("b.t") == lab.runtime.warehouse.root / "b" / "t"
    assert lab.sql("SELECT count(*) AS n FROM b.t JOIN c.t AS u ON t.id = u.id") == [{"n": 1}]

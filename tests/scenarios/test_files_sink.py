"""Rows that go out to files: each version is whole, also after a stop, and freshline reads its own CSV."""

from __future__ import annotations

import json
from base64 import b64encode

import pyarrow.parquet as pq
import pytest

from tests.crashes import crash


@pytest.fixture
def exported(lab, tmp_path):
    """A table `big` without a key over `ord`, and a sink `out` of it."""
    lab.source("ord", "id INT, note STRING, tags ARRAY<STRING>")
    lab.declare(
        "CREATE MATERIALIZED TABLE big FRESHNESS = INTERVAL '1' MINUTE AS SELECT id, note, tags FROM ord WHERE id < 100"
    )
    lab.declare(f"CREATE SINK out FROM big WITH ('connector' = 'files', 'path' = '{tmp_path}/exports')")
    return lab


def refreshed(lab, name="out", **asked):
    outcome = lab.refresh(name, **asked)
    assert outcome.error is None, outcome.error
    return outcome


def rows(folder):
    current = folder / json.loads((folder / "CURRENT").read_text())["folder"]
    return sorted((row["id"], row["note"], row["tags"]) for row in pq.read_table(current).to_pylist())


def test_versions_follow_the_table_and_stops_leave_whole_ones(exported, tmp_path):
    lab, folder = exported, tmp_path / "exports"
    lab.sql("INSERT INTO ord VALUES (1, 'a', array('x', NULL)), (1, 'a', array('x', NULL)), (500, 'b', NULL)")
    first = refreshed(lab)
    assert (first.strategy, first.rows_out) == ("full", 2)
    assert rows(folder) == [(1, "a", ["x", None])] * 2
    assert refreshed(lab).reason.startswith("NOTHING_NEW")
    assert lab.verify("out").equal
    for number, point in enumerate(("sink-writing", "sink-before-commit", "sink-committed", "sink-written"), 2):
        lab.sql(f"INSERT INTO ord VALUES ({number}, NULL, array())")
        crash(lab, point, "out")
        # A version that is whole: the one before, or this one.
        assert len(rows(folder)) in (number, number + 1)
        outcome = refreshed(lab)
        sent = point in ("sink-writing", "sink-before-commit")
        assert (outcome.rows_out > 0) == sent
        assert rows(folder)[-1] == (number, None, [])
        assert len(rows(folder)) == number + 1
    lab.sql("DELETE FROM ord WHERE id = 1")
    assert refreshed(lab).reason.startswith("WHOLE_VERSIONS")
    assert [row[0] for row in rows(folder)] == [2, 3, 4, 5]
    found = lab.verify("out")
    assert (found.error, found.samples, found.equal) == (None, (), True)
    # Somebody changed it: verify says it, and --full repairs it.
    newest = folder / json.loads((folder / "CURRENT").read_text())["folder"]
    pq.write_table(pq.read_table(newest).slice(1), newest / "part-00000.parquet")
    assert lab.verify("out").missing == 1
    refreshed(lab, full=True)
    assert lab.verify("out").equal
    lab.declare(f"CREATE SINK other FROM big WITH ('connector' = 'files', 'path' = '{folder}')")
    assert lab.refresh("other").error.code == "SINK_FENCED"


def test_a_column_that_the_table_lost_is_in_no_version_from_then_on(exported, tmp_path):
    lab, folder = exported, tmp_path / "exports"
    lab.sql("INSERT INTO ord VALUES (1, 'a', array('x'))")
    refreshed(lab)
    query = "SELECT id, tags FROM ord WHERE id < 100"
    lab.declare(f"CREATE MATERIALIZED TABLE big FRESHNESS = INTERVAL '1' MINUTE AS {query}")
    refreshed(lab, "big", full=True)
    for full in (False, True):
        refreshed(lab, full=full)
        current = folder / json.loads((folder / "CURRENT").read_text())["folder"]
        assert pq.read_table(current).to_pylist() == [{"id": 1, "tags": ["x"]}]
        assert lab.verify("out").equal


def test_freshline_reads_its_own_csv(lab, tmp_path):
    columns = (
        "k STRING, `x\"'` INT, d DECIMAL(20,3), f FLOAT, g DOUBLE, b BINARY, t TIMESTAMP, n TIMESTAMP_NTZ, o BOOLEAN, "
        "day DATE"
    )
    lab.source("src", columns)
    lab.declare("CREATE MATERIALIZED TABLE big FRESHNESS = INTERVAL '1' MINUTE AS SELECT * FROM src")
    lab.declare(f"CREATE SINK out FROM big WITH ('connector' = 'files', 'path' = '{tmp_path}/e', 'format' = 'csv')")
    lab.sql("""INSERT INTO src VALUES
        ('a"\n\\\\,\\'é ', 1, 12345678901234567.891, 1.1, 1e300, X'00ff', TIMESTAMP'9999-12-31 23:59:59.999999',
         TIMESTAMP_NTZ'1582-10-04 00:00:00.000001', true, DATE'0001-01-01'),
        ('', NULL, 0.000, CAST('NaN' AS FLOAT), CAST('-Infinity' AS DOUBLE), X'', NULL, NULL, false, NULL),
        (NULL, -1, NULL, NULL, 0.1, NULL, TIMESTAMP'0001-01-01', NULL, NULL, DATE'9999-12-31')""")
    refreshed(lab)
    assert lab.verify("out").equal
    # Bytes are base64, which a query reads.
    written = columns.replace("b BINARY", "b STRING")
    lab.declare(
        f"CREATE SOURCE back ({written}) WITH ('connector' = 'files', 'format' = 'csv', 'multi-line' = 'true', "
        f"'settle' = '0 seconds', 'path' = '{tmp_path}/e/v=1')"
    )
    outcome = lab.refresh("back")
    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 3, 0)
    names = lab.rows("big")[0]

    def read(name):
        return [[row[each] for each in names] for row in lab.rows(name)]

    sent = [[b64encode(each).decode() if isinstance(each, bytes) else each for each in row] for row in read("big")]
    assert sorted(map(repr, read("back"))) == sorted(map(repr, sent))

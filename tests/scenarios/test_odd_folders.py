"""Folders are only folders: no character in the name of one changes what is read or written."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from freshline.compute.literal import sql_literal
from freshline.testing import Lab

pytestmark = pytest.mark.security

# All but what delta-rs does not write, which is refused.
ODD = "a b%c#d?e*f{h,i}:j+k~l'm\"n`o$q&r;s=tü(u)v<w>@!"
SOURCE = ODD + "[x-z]^|"


@pytest.fixture
def odd_lab(spark, monkeypatch, tmp_path):
    """A Lab whose project, warehouse, landing folders and sources are in an odd folder, beside others it could mean."""
    for name in ("a", "aa", "a b c", "g", "h"):
        (tmp_path / name).mkdir()
    (tmp_path / ODD).mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix="": str(tmp_path / ODD / prefix))
    (tmp_path / ODD / "freshline-lab-").mkdir()
    with Lab(spark) as lab:
        monkeypatch.undo()
        assert ODD in str(lab.settings.warehouse)
        yield lab


@pytest.mark.slow
def test_a_project_in_a_folder_with_an_odd_name_reads_and_writes_as_any_other(odd_lab):
    lab = odd_lab
    lab.files("ev", "id STRING, n INT", primary_key=["id"])
    lab.source("dim", "id STRING, name STRING", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) AS SELECT e.id, e.n, d.name FROM ev e JOIN dim d USING (id)"
    )
    lab.declare("CREATE MATERIALIZED TABLE s AS SELECT name, sum(n) AS n FROM t GROUP BY name")
    lab.sql("INSERT INTO dim VALUES ('1', 'one'), ('2', 'two')")
    for turn in (1, 2):
        lab.land("ev", f"{turn}*.json", [{"id": str(turn), "n": turn}, {"broken": 1, "n": "x"}])
        lab.sql(f"UPDATE dim SET name = 'two {turn}' WHERE id = '2'")
        for outcome in lab.refresh_all():
            assert outcome.error is None, outcome.error
        assert len(lab.quarantine("ev")) == turn

    assert lab.rows("ev") == [{"id": str(turn), "n": turn} for turn in (1, 2)]
    assert lab.rows("t") == [{"id": "1", "n": 1, "name": "one"}, {"id": "2", "n": 2, "name": "two 2"}]
    assert lab.rows("s") == [{"name": "one", "n": 1}, {"name": "two 2", "n": 2}]
    lab.land("ev", "tail.json", [{"id": "9", "n": 9}])
    rows, _ = lab.union("ev")
    assert [row["id"] for row in rows] == ["1", "2", "9"]
    for name in ("t", "s"):
        assert lab.verify(name).equal, lab.verify(name)


def test_a_delta_source_in_a_folder_named_like_a_pattern_is_read_once(lab, tmp_path):
    for place in (SOURCE, "a", ODD + "x"):
        path = tmp_path / place
        # delta-rs does not write in such a folder: its tables come there by a rename, as those of others may.
        for number in range(3):
            write_deltalake(tmp_path / "made", pa.table({"n": [number]}), mode="append")
        (tmp_path / "made").rename(path)
    lab.declare(
        f"CREATE SOURCE s (n BIGINT) WITH ('connector' = 'delta', 'path' = {sql_literal(str(tmp_path / SOURCE))})"
    )
    lab.declare("CREATE MATERIALIZED TABLE t AS SELECT n FROM s")

    outcome = lab.refresh("t")

    assert outcome.error is None, outcome.error
    assert lab.rows("t") == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.long
def test_a_partitioned_table_in_such_a_folder_is_replaced_by_partitions(odd_lab):
    lab = odd_lab
    lab.source("src", "ds STRING, n INT")
    lab.declare("CREATE MATERIALIZED TABLE p PARTITIONED BY (ds) AS SELECT ds, count(*) AS n FROM src GROUP BY ds")
    odd = ["a*", "[b]", "{c,d}", "e%20f", "g#h", "i?j", "k=l", "m:n", "ü"]
    for turn in range(2):
        lab.sql("INSERT INTO src VALUES " + ", ".join(f"('{ds}', {turn})" for ds in odd))
        outcome = lab.refresh("p")
        assert outcome.error is None, outcome.error

    assert lab.rows("p") == [{"ds": ds, "n": 2} for ds in sorted(odd)]

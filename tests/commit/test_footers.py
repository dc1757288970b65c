"""Footers say whether rows have NULL, whoever wrote the files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.footers import have_no_null


def _write(writer, spark, path, rows):
    """The names, as the log has them, of the files that some rows were added in."""
    before = set(DeltaTable(str(path)).get_add_actions()["path"].to_pylist()) if path.exists() else set()
    if writer == "spark":
        spark.createDataFrame(rows).coalesce(1).write.format("delta").mode("append").save(str(path))
    else:
        write_deltalake(str(path), rows, mode="append")
    return sorted(set(DeltaTable(str(path)).get_add_actions()["path"].to_pylist()) - before)


@pytest.mark.parametrize("writer", ["spark", "delta-rs"])
def test_files_with_null_in_a_column_are_known(spark, tmp_path, writer):
    path = tmp_path / "odd folder"
    kind = pa.schema(
        [("k", pa.string()), ("n", pa.int64()), ("Long", pa.string()), ("s", pa.struct([("k", pa.int64())]))]
    )
    some = pa.table([["a", ""], [1, 2], ["x" * 1_000, "y"], [{"k": None}, None]], schema=kind)
    none = pa.table([["b", None], [None, 3], ["x", "y"], [{"k": 1}, {"k": 2}]], schema=kind)
    (whole,), (holed,) = _write(writer, spark, path, some), _write(writer, spark, path, none)

    assert have_no_null(path, [whole], ["K", "n", "long"])
    assert have_no_null(path, [whole, holed], ["long"])
    for column in ("k", "n"):
        assert not have_no_null(path, [whole, holed], [column])
    assert not have_no_null(path, [holed], ["s.k"])
    assert not have_no_null(path, [whole], ["later"])
    assert not have_no_null(path, [whole, "gone.parquet"], ["k"])


def test_files_without_statistics_say_nothing(tmp_path):
    rows = pa.table({"k": ["a", "b"], "n": [1, 2]})
    pq.write_table(rows, tmp_path / "a.parquet", write_statistics=["n"])

    assert have_no_null(tmp_path, ["a.parquet"], ["n"])
    assert not have_no_null(tmp_path, ["a.parquet"], ["k"])


def test_one_of_many_row_groups_with_null_counts(tmp_path):
    pq.write_table(pa.table({"k": [1, 2, 3, 4, None, 6]}), tmp_path / "a b.parquet", row_group_size=2)

    assert not have_no_null(tmp_path, ["a%20b.parquet"], ["k"])

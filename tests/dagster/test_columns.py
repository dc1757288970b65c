"""The columns that Dagster shows, against real Delta logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from freshline.commit.delta_log import open_table
from freshline.dagster import columns
from freshline.dagster.columns import UNKNOWN_TYPE, KnownColumns, column_schema
from freshline.errors import SourceError
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.spec import TableSpec


def table(*columns: str, **changes) -> TableSpec:
    return TableSpec(
        name=TableName(None, "orders"),
        query=PythonQuery("assets/orders.py", "orders", (), "0"),
        written_at=Location("assets/orders.py", 1),
        freshness=Freshness(60),
        columns=columns or None,
        **changes,
    )


def types(spec: TableSpec, path: Path, version: int | None = None) -> dict[str, str] | None:
    schema = column_schema(spec, path, version=version)
    return None if schema is None else {column.name: column.type for column in schema.columns}


def test_types_are_spelled_as_spark_sql_spells_them(tmp_path):
    rows = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "amount": pa.array([None], pa.decimal128(10, 2)),
            "tags": pa.array([["a"]], pa.list_(pa.string())),
            "at": pa.array([0], pa.timestamp("us", "UTC")),
            "place": pa.array([{"x": 1}], pa.struct([("x", pa.int32())])),
            "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int16())),
        }
    )
    write_deltalake(str(tmp_path), rows)

    assert types(table(), tmp_path) == {
        "id": "BIGINT",
        "amount": "DECIMAL(10,2)",
        "tags": "ARRAY<STRING>",
        "at": "TIMESTAMP",
        "place": "STRUCT<x: INT>",
        "counts": "MAP<STRING, SMALLINT>",
    }


def test_columns_that_freshline_keeps_for_itself_are_not_shown(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"id": [1], "_kept": [1]}))

    assert types(table("ID"), tmp_path) == {"id": "BIGINT"}


def test_a_materialization_shows_the_columns_of_its_own_version(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    write_deltalake(str(tmp_path), pa.table({"id": [1], "more": ["x"]}), mode="append", schema_mode="merge")

    assert types(table(), tmp_path, 0) == {"id": "BIGINT"}
    assert types(table(), tmp_path, 1) == {"id": "BIGINT", "more": "STRING"}


def test_before_the_first_commit_the_names_of_the_query_are_shown(tmp_path):
    assert types(table("id", "amount"), tmp_path / "none") == {"id": UNKNOWN_TYPE, "amount": UNKNOWN_TYPE}


def test_before_the_first_commit_nothing_is_known_of_a_python_table(tmp_path):
    assert types(table(), tmp_path / "none") is None


def test_keys_and_partitions_are_marked(tmp_path):
    schema = column_schema(table("id", "ds", primary_key=("ID",), partitioned_by=("ds",)), tmp_path / "none")

    assert schema is not None
    assert schema.constraints.other == ["PRIMARY KEY (ID)"]
    assert [(column.constraints.unique, column.constraints.other) for column in schema.columns] == [
        (True, []),
        (False, ["partition column"]),
    ]


def test_no_column_of_a_wider_key_is_called_unique(tmp_path):
    schema = column_schema(table("id", "ds", primary_key=("id", "ds")), tmp_path / "none")

    assert schema is not None
    assert not any(column.constraints.unique for column in schema.columns)


def test_a_broken_log_is_an_error_that_names_the_folder(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("not JSON")

    with pytest.raises(SourceError, match=str(tmp_path)):
        column_schema(table("id"), tmp_path)


def test_a_log_is_opened_again_only_when_it_has_another_newest_commit(settings, tmp_path, monkeypatch):
    path = tmp_path / "orders"
    opened = []

    def noted(*asked):
        opened.append(asked)
        return open_table(*asked)

    monkeypatch.setattr(columns, "open_table", noted)

    def load() -> dict[str, str]:
        known = KnownColumns(settings)
        schema = column_schema(table(), path, known=known)
        known.save()
        assert schema is not None
        return {column.name: column.type for column in schema.columns}

    assert column_schema(table("id"), path, known=KnownColumns(settings)) == column_schema(table("id"), path)
    write_deltalake(str(path), pa.table({"id": [1]}))
    assert (load(), load(), len(opened)) == ({"id": "BIGINT"}, {"id": "BIGINT"}, 1)

    write_deltalake(str(path), pa.table({"id": [1], "more": ["x"]}), mode="append", schema_mode="merge")
    assert (load(), load(), len(opened)) == ({"id": "BIGINT", "more": "STRING"}, {"id": "BIGINT", "more": "STRING"}, 2)

    # Dropped and made again, it is at the same version.
    shutil.rmtree(path)
    write_deltalake(str(path), pa.table({"id": ["a"]}))
    write_deltalake(str(path), pa.table({"id": ["b"]}), mode="append")
    assert load() == {"id": "STRING"}

"""Rows and changes of a table whose log asks for what only Spark has, as `freshline.reads.rows` gives them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.data_files import physical_name
from freshline.commit.delta_log import open_table, read_commit
from freshline.engine.own_session import own_session
from freshline.errors import ReadError
from freshline.reads.rows import CHANGE, TIME, VERSION, changes_schema, own_columns
from freshline.values.names import quoted
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)
_APP = "freshline.read"


def rows_in_spark(
    settings: Settings, path: Path, table: str, version: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a version. Raises ReadError where they cannot be read, and EngineError where Spark cannot start."""
    opened = open_table(path, version)
    names = own_columns(opened) if columns is None else list(columns)
    whole = pa.schema(opened.schema().to_arrow())
    missing = [name for name in names if name not in whole.names]
    if missing:
        raise ReadError(f"version {version} has no column {missing[0]!r}.", where=table)
    schema = pa.schema([whole.field(name) for name in names])
    session = own_session(settings, app_name=_APP)
    with _refusals(table):
        return _collect(_at(session, path, version).select(*[F.col(quoted(name)) for name in names]), schema)


def changes_in_spark(settings: Settings, path: Path, table: str, after: int, to: int) -> pa.Table:
    """The changes of the versions after one up to another, oldest first. Raises as `rows_in_spark`.

    Changes that Delta has not recorded are the rows in which a version and the one before it differ.
    """
    session = own_session(settings, app_name=_APP)
    with _refusals(table):
        return _changes(session, path, table, after, to)


def _changes(session: SparkSession, path: Path, table: str, after: int, to: int) -> pa.Table:
    newest = open_table(path, to)
    schema = changes_schema(newest)
    parts = [schema.empty_table()]
    # Delta reads no changes over one of columns or types.
    for first, last in _stretches(path, after + 1, to):
        columns = _columns(open_table(path, last), newest, table)
        if all(_has_feed(path, version) for version in range(first, last + 1)):
            try:
                parts.append(_feed(session, path, first, last, columns, schema))
            except PySparkException as error:
                # The rows of each version are there all the same.
                LOG.info(
                    "%s: changes %d to %d are compared, for Delta does not read them: %s", table, first, last, error
                )
            else:
                continue
        for version in range(first, last + 1):
            commit = read_commit(path, version)
            if commit is not None and not commit.changes_data:
                continue
            new, old = _at(session, path, version), _at(session, path, version - 1)
            at = 0 if commit is None else int(commit.info.get("timestamp", 0))
            for kind, rows, others in (("delete", old, new), ("insert", new, old)):
                said = rows.exceptAll(others).select(
                    *columns,
                    F.lit(kind).alias(CHANGE),
                    F.lit(version).cast("bigint").alias(VERSION),
                    F.timestamp_millis(F.lit(at)).alias(TIME),
                )
                parts.append(_collect(said, schema))
    return pa.concat_tables(parts)


def _feed(
    session: SparkSession, path: Path, first: int, last: int, columns: Sequence[Column], schema: pa.Schema
) -> pa.Table:
    """The changes that Delta recorded."""
    feed = (
        session.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", first)
        .option("endingVersion", last)
        .load(str(path))
    )
    return _collect(feed.select(*columns, CHANGE, VERSION, TIME).orderBy(VERSION), schema)


def _stretches(path: Path, first: int, last: int) -> list[tuple[int, int]]:
    """Ranges of versions with the same columns."""
    found: list[tuple[int, int]] = []
    before = None
    for version in range(first, last + 1):
        columns = json.loads(open_table(path, version).schema().to_json())
        found = [*found[:-1], (found[-1][0], version)] if columns == before else [*found, (version, version)]
        before = columns
    return found


def _columns(of: DeltaTable, newest: DeltaTable, table: str) -> list[Column]:
    """The columns of the newest version out of those of another one, which may have had other names and types."""
    there = {physical_name(field): field for field in json.loads(of.schema().to_json())["fields"]}
    found = []
    for field in StructType.fromJson(json.loads(newest.schema().to_json())).fields:
        if field.name not in own_columns(newest):
            continue
        now = field.jsonValue()
        then = there.get(physical_name(now))
        if then is not None and _shape(then["type"]) != _shape(now["type"]):
            raise ReadError(
                f"the fields of column {field.name} were others then. Read the changes before and after that apart.",
                where=table,
            )
        value = F.lit(None) if then is None else F.col(quoted(then["name"]))
        found.append(value.cast(field.dataType).alias(field.name))
    return found


def _shape(kind: Any) -> Any:
    """The fields within a type of Delta's JSON by their names in files: a cast finds them by their places."""
    if isinstance(kind, str):
        return None
    if kind["type"] == "struct":
        return [(physical_name(field), _shape(field["type"])) for field in kind["fields"]]
    return [_shape(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind]


def _has_feed(path: Path, version: int) -> bool:
    return open_table(path, version).metadata().configuration.get("delta.enableChangeDataFeed") == "true"


def _at(session: SparkSession, path: Path, version: int) -> DataFrame:
    return session.read.format("delta").option("versionAsOf", version).load(str(path))


@contextmanager
def _refusals(table: str) -> Iterator[None]:
    """Turn errors of Spark, py4j and Arrow into ReadError."""
    try:
        yield
    except (PySparkException, Py4JError, pa.ArrowException) as error:
        first, _, _ = str(error).partition("\n")
        raise ReadError(f"it cannot be read: {first}", where=table) from error


def _collect(rows: DataFrame, schema: pa.Schema) -> pa.Table:
    found = rows.toArrow()
    columns = [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)

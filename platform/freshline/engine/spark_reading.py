"""Rows and changes of a table whose log asks for what only Spark has, as `freshline.commit.reading` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import open_table, read_commit
from freshline.commit.reading import CHANGE, TIME, VERSION, changes_schema, own_columns
from freshline.declare.settings import Settings
from freshline.engine.own_session import own_session
from freshline.errors import ReadError
from freshline.refresh.literal import quoted

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
    rows = _at(own_session(settings, app_name=_APP), path, version)
    return _collect(rows.select(*[F.col(quoted(name)) for name in names]), schema, table)


def changes_in_spark(settings: Settings, path: Path, table: str, after: int, to: int) -> pa.Table:
    """The changes of the versions after one up to another, oldest first. Raises as `rows_in_spark`.

    Where Delta has not recorded them, they are the rows that one version has and the one before it has not.
    """
    opened = open_table(path, to)
    schema = changes_schema(opened)
    session = own_session(settings, app_name=_APP)
    names = own_columns(opened)
    columns = [F.col(quoted(name)) for name in names]
    versions = range(after, to + 1)
    if all(_has_feed(path, version) for version in versions):
        feed = (
            session.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", after + 1)
            .option("endingVersion", to)
            .load(str(path))
        )
        return _collect(feed.select(*columns, CHANGE, VERSION, TIME).orderBy(VERSION), schema, table)
    parts = [schema.empty_table()]
    for version in versions[1:]:
        commit = read_commit(path, version)
        if commit is not None and not commit.changes_data:
            continue
        new = _at(session, path, version)
        old = _at(session, path, version - 1)
        at = 0 if commit is None else int(commit.info.get("timestamp", 0))
        for gone, rows in ((True, _without(old, new, names)), (False, _without(new, old, names))):
            said = rows.select(
                *columns,
                F.lit("delete" if gone else "insert").alias(CHANGE),
                F.lit(version).cast("bigint").alias(VERSION),
                F.timestamp_millis(F.lit(at)).alias(TIME),
            )
            parts.append(_collect(said, schema, table))
    return pa.concat_tables(parts)


def _has_feed(path: Path, version: int) -> bool:
    return open_table(path, version).metadata().configuration.get("delta.enableChangeDataFeed") == "true"


def _at(session: SparkSession, path: Path, version: int) -> DataFrame:
    return session.read.format("delta").option("versionAsOf", version).load(str(path))


def _without(rows: DataFrame, others: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows that others do not have, as often; NULL for a column that a version did not have yet."""
    one, other = (
        frame.select(*[F.col(quoted(n)) if n in frame.columns else F.lit(None).alias(n) for n in names])
        for frame in (rows, others)
    )
    return one.exceptAll(other)


def _collect(rows: DataFrame, schema: pa.Schema, table: str) -> pa.Table:
    try:
        found = rows.toArrow()
    except (PySparkException, Py4JError, pa.ArrowException) as error:
        first, _, _ = str(error).partition("\n")
        raise ReadError(f"it cannot be read: {first}", where=table) from error
    return pa.table(
        [column.cast(field.type) for column, field in zip(found.columns, schema, strict=True)], schema=schema
    )

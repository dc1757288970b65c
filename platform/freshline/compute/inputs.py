"""The inputs of one refresh, at the versions that it pinned.

From here on nothing newer is seen: whole inputs are read at a version, change sets between two. A log table
is read from its newest snapshot by batch number, so neither compaction nor retention can move its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.compute.answers import found_rows, newest_answers
from freshline.compute.netting import net, net_signed, not_compared
from freshline.compute.small_tables import read_small
from freshline.errors import QueryError, SourceError
from freshline.plan.changes import ChangeKind, Changes, RecordedFiles
from freshline.query.rules.algebra import SIGN
from freshline.values.change import CHANGE_METADATA
from freshline.values.closing import ARRIVED
from freshline.values.connector import FILE as FILE
from freshline.values.connector import HASH as HASH
from freshline.values.connector import INGESTED_AT as INGESTED_AT
from freshline.values.connector import RECORD as RECORD
from freshline.values.connector import SEQ as SEQ
from freshline.values.connector import WATERMARK as WATERMARK
from freshline.values.names import CHANGE_TYPE as CHANGE_TYPE
from freshline.values.names import COMMIT_TIMESTAMP, COMMIT_VERSION, FEED_COLUMNS, TableName, quoted
from freshline.values.position import TablePosition
from freshline.values.spec import SourceSpec, Spec

ARRIVAL = (SEQ, FILE, RECORD)


@dataclass(frozen=True)
class Pinned:
    """One input at one position. `path` is the Delta table.

    `is_newest` says of a log that the version was the newest one a moment ago, that its receipt gave the position, and
    that nobody else has changed its rows since: it has the batches up to that position and no other rows. `ask` asks a
    source by key for what a query over the views of a session needs of it, and raises where answers came that this
    position does not have; None where nobody is asked, as when a refresh is replayed.
    """

    spec: Spec
    path: Path
    position: TablePosition
    is_newest: bool = False
    ask: Callable[[SparkSession, Mapping[TableName, Pinned]], None] | None = field(default=None, compare=False)

    @property
    def name(self) -> TableName:
        return self.spec.name

    @property
    def is_log(self) -> bool:
        return isinstance(self.spec, SourceSpec) and self.spec.is_log


def read_whole(spark: SparkSession, pinned: Pinned, *, arrival: bool = False, arrived: bool = False) -> DataFrame:
    """All rows of an input at its position; with `arrival` a log table's arrival columns and facts of changes too.

    With `arrived` also the columns that decide which rows are FINAL (`freshline.values.closing`), NULL if not known.
    """
    if isinstance(pinned.spec, SourceSpec) and pinned.spec.is_lookup:
        return found_rows(newest_answers(spark, pinned.path, pinned.spec, pinned.position.seq), pinned.spec)
    if pinned.is_log:
        small = read_small(spark, pinned.path, pinned.position.version) if pinned.is_newest else None
        # Each number in a condition makes other code, which Spark compiles anew.
        rows = read_log(spark, pinned).where(F.col(SEQ) <= (pinned.position.seq or 0)) if small is None else small
    else:
        rows = read_version(spark, pinned.path, pinned.position.version)
    return declared_columns(rows, pinned, arrival=arrival, arrived=arrived)


def read_version(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """A Delta table at a version."""
    small = read_small(spark, path, version)
    if small is not None:
        return small
    return spark.read.format("delta").option("versionAsOf", version).load(str(path))


def read_inserted(
    spark: SparkSession, pinned: Pinned, changes: Changes, *, arrival: bool = False, arrived: bool = False
) -> DataFrame:
    """The rows that an input gained between two positions; right for ranges of the kinds NOTHING and APPEND.

    With `arrival` and `arrived` as in `read_whole`.
    """
    return declared_columns(_inserted(spark, pinned, changes), pinned, arrival=arrival, arrived=arrived)


def read_upserted(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    """Every row that came into an input between two positions, or that a row was changed into."""
    came = F.col(CHANGE_TYPE).isin("insert", "update_postimage")
    return declared_columns(_recorded(spark, pinned, changes).where(came), pinned, arrival=False)


def _inserted(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    before = changes.before
    if pinned.is_log:
        start = 0 if before is None or before.seq is None else before.seq
        rows = _added(spark, pinned, changes)
        if rows is not None and changes.files_are_exact:
            return rows
        if rows is None:
            rows = read_log(spark, pinned)
        return rows.where((F.col(SEQ) > start) & (F.col(SEQ) <= (pinned.position.seq or 0)))
    if before is None or before.version == pinned.position.version:
        return read_version(spark, pinned.path, pinned.position.version).where(F.lit(before is None))
    added = _added(spark, pinned, changes)
    if added is not None:
        return added
    return _recorded(spark, pinned, changes).where(F.col(CHANGE_TYPE) == "insert")


def read_log(spark: SparkSession, pinned: Pinned) -> DataFrame:
    """A log table as it is now: the batch number of its rows distinguishes them."""
    small = read_small(spark, pinned.path, None)
    return spark.read.format("delta").load(str(pinned.path)) if small is None else small


def _added(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame | None:
    """The files that the commits of an append-only range added; None where they are unknown or not all there."""
    if changes.kind is not ChangeKind.APPEND or not changes.added_files:
        return None
    return read_small(spark, pinned.path, pinned.position.version, files=changes.added_files)


def read_signed(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    """Every row that came (SIGN 1) or went away (-1) between two positions, as often as it did."""
    if pinned.is_log or changes.kind is ChangeKind.APPEND:
        return read_inserted(spark, pinned, changes).withColumn(SIGN, F.lit(1))
    images = _recorded(spark, pinned, changes)
    columns = [F.col(quoted(column)) for column in column_names(pinned.spec, images)]
    return images.select(*columns, _sign().alias(SIGN))


def _sign() -> SparkColumn:
    return F.when(F.col(CHANGE_TYPE).isin("insert", "update_postimage"), 1).otherwise(-1)


def read_images(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    """Every row as it was before or after a change of the range, also where a later change undid it."""
    if pinned.is_log:
        return read_inserted(spark, pinned, changes)
    images = _recorded(spark, pinned, changes)
    return images.select(*[F.col(quoted(column)) for column in column_names(pinned.spec, images)])


def read_net_images(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    """Every row as it was before or after a change of the range; rows whose net change is nothing are left out."""
    if pinned.is_log:
        return read_inserted(spark, pinned, changes)
    images = _recorded(spark, pinned, changes)
    return net(images.withColumn(SIGN, _sign()), column_names(pinned.spec, images))


def read_net_signed(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    """As `read_net_images`, each row as often as it came (SIGN 1) or went away (-1) on balance."""
    if pinned.is_log or changes.kind is ChangeKind.APPEND:
        return read_inserted(spark, pinned, changes).withColumn(SIGN, F.lit(1))
    images = _recorded(spark, pinned, changes)
    return net_signed(images.withColumn(SIGN, _sign()), column_names(pinned.spec, images))


def _recorded(spark: SparkSession, pinned: Pinned, changes: Changes) -> DataFrame:
    """The recorded changes of a range, each with its kind in the column CHANGE_TYPE.

    Delta finds their files with a job and a plan of its own, which for a few files takes longer than the rest.
    """
    assert changes.before is not None
    rows = None if changes.recorded is None else _of_files(spark, pinned, changes.recorded)
    return _change_feed(spark, pinned, changes.before) if rows is None else rows


def _of_files(spark: SparkSession, pinned: Pinned, recorded: RecordedFiles) -> DataFrame | None:
    """The rows of recorded changes; None where Delta must read them."""
    path, version = pinned.path, pinned.position.version
    changed = read_small(spark, path, version, files=recorded.changed, also=CHANGE_TYPE)
    if changed is None or not recorded.added:
        return changed
    added = read_small(spark, path, version, files=recorded.added)
    return None if added is None else changed.unionByName(added.withColumn(CHANGE_TYPE, F.lit("insert")))


def _change_feed(spark: SparkSession, pinned: Pinned, before: TablePosition) -> DataFrame:
    return (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", before.version + 1)
        .option("endingVersion", pinned.position.version)
        .load(str(pinned.path))
    )


def read_at(spark: SparkSession, pinned: Pinned) -> DataFrame:
    """The rows of one version, as they were; of a log table too."""
    return declared_columns(read_version(spark, pinned.path, pinned.position.version), pinned, arrival=False)


def read_feed(spark: SparkSession, pinned: Pinned, before: TablePosition, *, net: bool) -> DataFrame:
    """The changes between two versions with what Delta says of each; with `net` only what is left of them."""
    if before.version >= pinned.position.version:
        rows = read_version(spark, pinned.path, pinned.position.version).where(F.lit(False))
        rows = rows.withColumn(CHANGE_TYPE, F.lit("")).withColumn(COMMIT_VERSION, F.lit(0).cast("bigint"))
        feed = rows.withColumn(COMMIT_TIMESTAMP, F.lit(None).cast("timestamp"))
    else:
        feed = _change_feed(spark, pinned, before)
    columns = [F.col(quoted(name)) for name in column_names(pinned.spec, feed)]
    if isinstance(pinned.spec, SourceSpec) and pinned.is_log:
        columns = _log_columns(pinned.spec)
    if not net:
        return feed.select(*columns, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP).orderBy(COMMIT_VERSION)
    signed = feed.select(*columns, _sign().alias(SIGN))
    names = [name for name in signed.columns if name != SIGN]
    without = not_compared(signed, names)
    if without is not None:
        raise QueryError(
            f"what is left of changes of {pinned.name} is not known: values of {without} cannot be compared. Read the "
            "changes as they were.",
            where=str(pinned.spec.written_at),
        )
    left = net_signed(signed, names)
    kind = F.when(F.col(SIGN) > 0, "insert").otherwise("delete").alias(CHANGE_TYPE)
    return left.select(*[F.col(quoted(name)) for name in names], kind)


def column_names(spec: Spec, rows: DataFrame) -> tuple[str, ...]:
    """The columns that queries see of an input."""
    if isinstance(spec, SourceSpec):
        return tuple(column.name for column in spec.columns)
    return tuple(name for name in rows.columns if is_shown(name))


def is_shown(column: str) -> bool:
    """Whether queries see a stored column of a table: it is neither ours nor of a change feed."""
    return not column.startswith("_freshline_") and column.lower() not in FEED_COLUMNS


def declared_columns(rows: DataFrame, pinned: Pinned, *, arrival: bool, arrived: bool = False) -> DataFrame:
    """An input's stored rows as queries see them; with `arrival` and `arrived` as in `read_whole`."""
    spec = pinned.spec
    final = [_or_null(rows, name, pinned.is_log).alias(name) for name in ARRIVED] if arrived else []
    if not isinstance(spec, SourceSpec):
        return rows.select(*[F.col(quoted(name)) for name in column_names(spec, rows)], *final)
    if spec.is_log:
        facts = [each.stored for each in CHANGE_METADATA.values()] if spec.is_change_feed else []
        also = [F.col(name) for name in (*ARRIVAL, *facts)] if arrival else []
        return rows.select(*_log_columns(spec), *also, *final)
    _check_columns(rows.schema, spec, pinned.path)
    return rows.select(*[F.col(quoted(column.name)).alias(column.name) for column in spec.columns])


def _or_null(rows: DataFrame, name: str, is_log: bool) -> SparkColumn:
    """A column of freshline's own; NULL in a table, and in a log from before there was such a column."""
    if is_log and name in rows.columns:
        return F.col(name)
    return F.lit(None).cast("timestamp" if name == WATERMARK else "bigint")


def _log_columns(spec: SourceSpec) -> list[SparkColumn]:
    return [F.col(quoted(spec.stored_column(column.name))).alias(column.name) for column in spec.columns]


def _check_columns(schema: StructType, spec: SourceSpec, path: Path) -> None:
    """The declared columns of a source that is read in place must be there, with their types."""
    there = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    declared = StructType.fromDDL(", ".join(f"{quoted(column.name)} {column.type}" for column in spec.columns))
    assert isinstance(declared, StructType)
    for column in declared.fields:
        found = there.get(column.name.lower())
        if found is None:
            raise SourceError(
                f"the Delta table at {path} has no column {column.name}. Its columns are {', '.join(there)}.",
                where=str(spec.written_at),
            )
        if found != column.dataType.simpleString():
            raise SourceError(
                f"column {column.name} is declared {column.dataType.simpleString()}, the Delta table at {path} has "
                f"{found}. Declare it as {found}.",
                where=str(spec.written_at),
            )


def shadow_inputs(frames: Mapping[TableName, DataFrame]) -> None:
    """Make each input visible to the query under its own name, as a view of the session that it was read in."""
    for name, frame in frames.items():
        frame.createOrReplaceTempView(quoted(name.view))


def drop_views(spark: SparkSession, names: Sequence[TableName]) -> None:
    """Take the session's views away again."""
    for name in names:
        spark.catalog.dropTempView(name.view)

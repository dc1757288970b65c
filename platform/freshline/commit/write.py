"""One fenced Delta commit a refresh, and reading it back.

Every write carries its receipt (`userMetadata`) and the transaction `freshline/<table id>` at
`epoch << 32 | seq`. Delta skips a write whose transaction version is not above the stored one, and says nothing: so
each write is followed by reading the newest receipt back. Stopped at any point, either the commit is there with all
of it or nothing is; files without a commit are no part of the table.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from freshline.commit.data_files import MAPPING_MODE, PHYSICAL_NAME
from freshline.commit.delta_log import (
    Newest,
    changed_rows,
    describe_table,
    newest_version,
    read_commit,
    read_newest,
    table_id,
)
from freshline.commit.small import (
    append_small,
    application,
    change_small,
    create_small,
    delete_small,
    insert_small,
    open_small,
    replace_small,
    restore_small,
)
from freshline.compute.arrow_rows import ArrowRows, in_arrow, in_spark
from freshline.errors import FencedError
from freshline.values.names import MAPPED_IN_COLUMN, quoted
from freshline.values.receipt import Receipt

WRITE_CONFS = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)


# Columns may have any name. Delta gives those that Parquet does not take other names in its files.
_BY_NAME = {MAPPING_MODE: "name"}
# The key whose rows a change takes away; NULL for one that finds no row.
_FOUND_BY = "_freshline_found_by"
_IS_STORED, _IS_NEW = "_freshline_is_stored", "_freshline_is_new"


@dataclass(frozen=True)
class Committed:
    """A commit that was read back: its version, the rows it wrote by Delta's metrics, and its receipt."""

    version: int
    rows_out: int
    receipt: Receipt


def create_table(
    spark: SparkSession,
    path: Path,
    schema: StructType,
    *,
    partitioned_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    history_seconds: int,
    statistics_on: Sequence[str] | None = None,
) -> str:
    """Create an empty managed table where there is none, and return its id. Every column may be NULL.

    `statistics_on` names the columns whose least and greatest values are kept for each file; Delta's own choice
    without.
    """
    nullable = StructType([StructField(field.name, field.dataType, True) for field in schema.fields])
    properties = _properties(history_seconds, statistics_on)
    if _is_mapped(nullable):
        nullable = _with_own_names(nullable)
        properties |= _BY_NAME
    if not cluster_by and create_small(path, nullable.json(), partitioned_by=partitioned_by, configuration=properties):
        return table_id(path)
    builder = DeltaTable.createIfNotExists(spark).location(str(path)).addColumns(nullable)
    if partitioned_by:
        builder = builder.partitionedBy(*partitioned_by)
    elif cluster_by:
        builder = builder.clusterBy(*map(quoted, cluster_by))
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()
    return table_id(path)


def _properties(history_seconds: int, statistics_on: Sequence[str] | None) -> dict[str, str]:
    interval = f"interval {history_seconds} seconds"
    properties = {
        "delta.enableChangeDataFeed": "true",
        "delta.deletedFileRetentionDuration": interval,
        "delta.logRetentionDuration": interval,
        "delta.isolationLevel": "Serializable",
        "delta.checkpointInterval": "50",
        # By itself Delta removes old commits whoever still needs them; `commit/maintenance.py` does it instead.
        "delta.enableExpiredLogCleanup": "false",
    }
    if statistics_on is not None:
        properties["delta.dataSkippingStatsColumns"] = ",".join(quoted(name) for name in statistics_on)
    return properties


def _is_mapped(kind: DataType) -> bool:
    """Whether a column of it, or a field in one, has a name that Parquet does not take."""
    match kind:
        case StructType():
            return any(MAPPED_IN_COLUMN.search(field.name) or _is_mapped(field.dataType) for field in kind.fields)
        case ArrayType():
            return _is_mapped(kind.elementType)
        case MapType():
            return _is_mapped(kind.keyType) or _is_mapped(kind.valueType)
        case _:
            return False


def _with_own_names(schema: StructType) -> StructType:
    """The columns of a new table, of which those with plain names have them in its files too."""
    numbers = itertools.count(1)

    def named(kind: DataType) -> DataType:
        match kind:
            case StructType():
                return StructType([of_field(each) for each in kind.fields])
            case ArrayType():
                return ArrayType(named(kind.elementType), kind.containsNull)
            case MapType():
                return MapType(named(kind.keyType), named(kind.valueType), kind.valueContainsNull)
            case _:
                return kind

    def of_field(field: StructField) -> StructField:
        facts = field.metadata
        if not MAPPED_IN_COLUMN.search(field.name):
            own = {"delta.columnMapping.id": next(numbers), PHYSICAL_NAME: field.name}
            facts = {**facts, **own}
        return StructField(field.name, named(field.dataType), field.nullable, facts)

    return StructType([of_field(field) for field in schema.fields])


def _map_names(rows: DataFrame, path: Path) -> None:
    """Have Delta map the names of columns where one of the rows needs it. The columns that are there keep theirs."""
    if _is_mapped(rows.schema) and MAPPING_MODE not in describe_table(path).metadata.configuration:
        ((name, value),) = _BY_NAME.items()
        rows.sparkSession.sql(f"ALTER TABLE delta.{quoted(str(path))} SET TBLPROPERTIES ('{name}' = '{value}')")


def append_rows(
    rows: DataFrame | ArrowRows, path: Path, receipt: Receipt, *, merge_schema: bool = False, count: int | None = None
) -> None:
    """Add rows; `count` is how many, where they are computed already and cheap to read again."""
    table = None if count is None else open_small(path, rows=count)
    here = None if table is None or count is None else in_arrow(rows, count)
    if table is not None and here is not None and append_small(table, here, receipt):
        return
    rows = in_spark(rows)
    if merge_schema:
        _map_names(rows, path)
    writer = _fenced(rows, path, receipt).mode("append")
    if merge_schema:
        writer = writer.option("mergeSchema", "true")
    writer.save(str(path))


def overwrite_table(
    rows: DataFrame,
    path: Path,
    receipt: Receipt,
    *,
    partitioned_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    few: bool = False,
) -> None:
    """Replace all rows and, where the query's columns changed, the schema.

    `few` says that they are a few thousand and kept in the driver.
    """
    table = open_small(path) if few and not cluster_by else None
    fits = table is not None and table.metadata().partition_columns == list(partitioned_by)
    if table is not None and fits and replace_small(table, rows.toArrow(), receipt):
        return
    _map_names(rows, path)
    writer = _fenced(rows, path, receipt).mode("overwrite")
    if cluster_by and _has_columns_of(rows, path):
        # A plain overwrite takes the clustering away, in every form that Delta has for it.
        writer.option("replaceWhere", "true").save(str(path))
        return
    writer = writer.option("overwriteSchema", "true")
    if partitioned_by:
        writer = writer.partitionBy(*partitioned_by)
    writer.save(str(path))
    if cluster_by:
        columns = ", ".join(quoted(column) for column in cluster_by)
        rows.sparkSession.sql(f"ALTER TABLE delta.{quoted(str(path))} CLUSTER BY ({columns})")


def stored_schema(path: Path) -> StructType:
    """The columns of the newest version of a table as Spark has them, read from its log without Spark."""
    return StructType.fromJson(json.loads(describe_table(path).schema.to_json()))


def _has_columns_of(rows: DataFrame, path: Path) -> bool:
    stored = stored_schema(path)
    columns = [[(field.name, field.dataType.simpleString()) for field in schema] for schema in (stored, rows.schema)]
    return columns[0] == columns[1]


def replace_partitions(
    rows: DataFrame, path: Path, receipt: Receipt, *, predicate: str, merge_schema: bool = False
) -> None:
    """Replace exactly the rows that match the predicate; Delta refuses rows of other partitions."""
    if merge_schema:
        _map_names(rows, path)
    writer = _fenced(rows, path, receipt).mode("overwrite").option("replaceWhere", predicate)
    if merge_schema:
        writer = writer.option("mergeSchema", "true")
    writer.save(str(path))


def insert_new_keys(rows: DataFrame, path: Path, receipt: Receipt, *, keys: Sequence[str], count: int) -> bool:
    """Add those of at most `count` rows, unique by key and without NULL in it, whose key is not there yet.

    False, and nothing is written, where `merge_rows` must do it.
    """
    table = open_small(path, found_by=keys)
    here = None if table is None else in_arrow(rows, count)
    return table is not None and here is not None and insert_small(table, here, receipt, keys=keys)


def merge_rows(
    spark: SparkSession,
    rows: DataFrame,
    path: Path,
    receipt: Receipt,
    *,
    keys: Sequence[str],
    columns: Sequence[str],
    update_when: str | None,
    delete: str | None,
) -> None:
    """Merge rows that are unique by key.

    `update_when` is a condition over `s` (new) and `t` (stored) under which a stored row is touched, None for
    never. `delete` names the boolean column of the new rows that says that the key goes away. The session must
    be used by nothing else: the fence is in its confs.
    """
    if _is_refused_by_merge(path):
        _overwrite_merged(spark, rows, path, receipt, keys=keys, columns=columns, touched=update_when, delete=delete)
        return
    rows.createOrReplaceTempView("freshline_merge_source")
    on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    clauses = []
    if update_when is not None:
        if delete is not None:
            clauses.append(f"WHEN MATCHED AND s.{delete} AND ({update_when}) THEN DELETE")
        values = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
        clauses.append(f"WHEN MATCHED AND ({update_when}) THEN UPDATE SET {values}")
    names = ", ".join(quoted(name) for name in columns)
    news = ", ".join(f"s.{quoted(name)}" for name in columns)
    condition = f" AND NOT s.{delete}" if delete is not None else ""
    clauses.append(f"WHEN NOT MATCHED{condition} THEN INSERT ({names}) VALUES ({news})")
    statement = f"MERGE INTO delta.{quoted(str(path))} t USING freshline_merge_source s ON {on} " + " ".join(clauses)
    try:
        with fenced_session(spark, path, receipt):
            spark.sql(statement)
    finally:
        spark.catalog.dropTempView("freshline_merge_source")


def apply_changes(
    spark: SparkSession,
    changes: DataFrame | ArrowRows,
    path: Path,
    receipt: Receipt,
    *,
    op: str,
    keys: Sequence[str],
    unique: bool,
    near: str | None,
    count: int | None = None,
) -> None:
    """Insert, update and delete rows in one commit.

    `changes` has the table's columns and `op`: I, U or D. With `unique`, rows are found by `keys`, of which each occurs
    once. Without, a D takes away every row that has its values of `keys`, and each I adds a row; there is no U. NULL is
    a value like any other. `near` is a condition over `t` that all rows of the keys match, for Delta to skip files by.
    `count` is how many changes there are, where they are computed already and cheap to read again. The session must be
    used by nothing else: the fence is in its confs.
    """
    table = None if count is None else open_small(path, found_by=keys, rows=count)
    here = None if table is None or count is None else in_arrow(changes, count)
    if table is not None and here is not None and change_small(table, here, receipt, op=op, keys=keys, unique=unique):
        return
    changes = in_spark(changes)
    if _is_refused_by_merge(path):
        _overwrite_changed(spark, changes, path, receipt, op=op, keys=keys, unique=unique)
        return
    columns = [name for name in changes.columns if name != op]
    if unique:
        on = [f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys]
    else:
        # An insert never finds a row, so it always inserts. Were that a condition beside the keys, Spark would compare
        # each stored row with all inserts of its key: for a key with a million rows, a million times a million.
        types = {field.name.lower(): field.dataType for field in stored_schema(path).fields}
        key = F.struct(*[F.col(quoted(name)).cast(types[name.lower()]).alias(name) for name in keys])
        changes = changes.withColumn(_FOUND_BY, F.when(F.col(op) == "D", key))
        on = [f"struct({', '.join(f't.{quoted(name)}' for name in keys)}) = s.{_FOUND_BY}"]
    changes.createOrReplaceTempView("freshline_changes")
    if near is not None:
        on.append(f"({near})")
    clauses = [f"WHEN MATCHED AND s.{op} = 'D' THEN DELETE"]
    if unique:
        values = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
        clauses.append(f"WHEN MATCHED AND s.{op} = 'U' THEN UPDATE SET {values}")
    names = ", ".join(quoted(name) for name in columns)
    news = ", ".join(f"s.{quoted(name)}" for name in columns)
    clauses.append(f"WHEN NOT MATCHED AND s.{op} = 'I' THEN INSERT ({names}) VALUES ({news})")
    statement = (
        f"MERGE INTO delta.{quoted(str(path))} t USING freshline_changes s ON {' AND '.join(on)} {' '.join(clauses)}"
    )
    try:
        with fenced_session(spark, path, receipt):
            spark.sql(statement)
    finally:
        spark.catalog.dropTempView("freshline_changes")


def _is_refused_by_merge(path: Path) -> bool:
    """Whether Delta 4.4 cannot MERGE into a table: for the change feed it writes a name without doubling a backtick."""
    return any("`" in field.name for field in stored_schema(path).fields)


def _overwrite_merged(
    spark: SparkSession,
    rows: DataFrame,
    path: Path,
    receipt: Receipt,
    *,
    keys: Sequence[str],
    columns: Sequence[str],
    touched: str | None,
    delete: str | None,
) -> None:
    """As `merge_rows`, by writing the whole table anew."""
    stored = spark.read.format("delta").load(str(path))
    old = stored.withColumn(_IS_STORED, F.lit(True)).alias("t")
    new = rows.withColumn(_IS_NEW, F.lit(True)).alias("s")
    on = [F.col(f"t.{quoted(key)}") == F.col(f"s.{quoted(key)}") for key in keys]
    condition = "false" if touched is None else f"coalesce({touched}, false)"
    takes_new = F.coalesce(_IS_NEW, F.lit(False)) & (F.col(_IS_STORED).isNull() | F.expr(condition))
    given = {name.lower() for name in columns}
    merged = old.join(new, on, "full_outer")
    if delete is not None:
        merged = merged.where(~(takes_new & F.coalesce(F.col(f"s.{delete}"), F.lit(False))))

    def column(name: str) -> Column:
        old_value = F.col(f"t.{quoted(name)}")
        if name.lower() not in given:
            return old_value.alias(name)
        return F.when(takes_new, F.col(f"s.{quoted(name)}")).otherwise(old_value).alias(name)

    _overwrite(merged.select(*[column(name) for name in stored.columns]), path, receipt)


def _overwrite_changed(
    spark: SparkSession,
    changes: DataFrame,
    path: Path,
    receipt: Receipt,
    *,
    op: str,
    keys: Sequence[str],
    unique: bool,
) -> None:
    """As `apply_changes`, by writing the whole table anew."""
    stored = spark.read.format("delta").load(str(path))
    gone = changes.where(F.col(op).isin("D", "U") if unique else F.col(op) == "D")
    named = gone.select(*[F.col(quoted(key)).alias(f"_freshline_k{number}") for number, key in enumerate(keys)])
    found = [F.col(quoted(key)).eqNullSafe(F.col(f"_freshline_k{number}")) for number, key in enumerate(keys)]
    came = changes.where(F.col(op).isin("I", "U"))
    columns = [F.col(quoted(name)) for name in stored.columns]
    left = stored.join(named, reduce(and_, found, F.lit(True)), "left_anti")
    _overwrite(left.select(*columns).unionAll(came.select(*columns)), path, receipt)


def _overwrite(rows: DataFrame, path: Path, receipt: Receipt) -> None:
    # This form of it leaves partitions and clustering as they are.
    _fenced(rows, path, receipt).mode("overwrite").option("replaceWhere", "true").save(str(path))


def restore_version(spark: Callable[[], SparkSession], path: Path, version: int, receipt: Receipt) -> None:
    """Bring the rows and columns of an earlier version back; `spark` gives a session that nothing else uses."""
    table = open_small(path)
    if table is not None and restore_small(table, version, receipt):
        return
    session = spark()
    with fenced_session(session, path, receipt):
        session.sql(f"RESTORE TABLE delta.{quoted(str(path))} TO VERSION AS OF {int(version)}")


def delete_rows(spark: Callable[[], SparkSession], path: Path, predicate: str | None, receipt: Receipt) -> None:
    """Delete the rows that match a condition, or all; `spark` gives a session that nothing else uses."""
    table = open_small(path)
    if table is not None and delete_small(table, predicate, receipt):
        return
    session = spark()
    with fenced_session(session, path, receipt):
        session.sql(f"DELETE FROM delta.{quoted(str(path))}" + (f" WHERE {predicate}" if predicate else ""))


def set_null(spark: SparkSession, path: Path, column: str, predicate: str, receipt: Receipt) -> None:
    """Set a column to NULL in the rows that match a condition."""
    with fenced_session(spark, path, receipt):
        spark.sql(f"UPDATE delta.{quoted(str(path))} SET {quoted(column)} = NULL WHERE {predicate}")


def carry_receipt(spark: Callable[[], SparkSession], path: Path, receipt: Receipt) -> None:
    """Commit a receipt without rows."""
    table = open_small(path)
    if table is not None:
        nothing = pa.schema(table.schema().to_arrow()).empty_table()
        if append_small(table, nothing, receipt):
            return
    session = spark()
    append_rows(session.createDataFrame([], stored_schema(path)), path, receipt)


def _fenced(rows: DataFrame, path: Path, receipt: Receipt) -> DataFrameWriter:
    return (
        rows.write.format("delta")
        .option("txnAppId", application(table_id(path)))
        .option("txnVersion", receipt.transaction_version)
        .option("userMetadata", receipt.to_json())
    )


@contextmanager
def fenced_session(spark: SparkSession, path: Path, receipt: Receipt) -> Iterator[None]:
    """Fence the statements of a session: MERGE, DELETE and UPDATE take the transaction from session confs only."""
    values = (application(table_id(path)), str(receipt.transaction_version), receipt.to_json())
    for conf, value in zip(WRITE_CONFS, values, strict=True):
        spark.conf.set(conf, value)
    try:
        yield
    finally:
        for conf in WRITE_CONFS:
            spark.conf.unset(conf)


def write_and_read_back(
    write: Callable[[], None], path: Path, receipt: Receipt, require_warehouse: Callable[[], None]
) -> Committed | None:
    """Run the write and find its commit.

    None means that another writer's commit stands where this one was planned; plan again. Raises FencedError when that
    writer has a higher epoch, and what `require_warehouse` raises where the tables are not at their path any more.
    """
    before = newest_version(path)
    known = None if before is None or receipt.maintenance else read_newest(path)
    if known is not None and known.receipt is not None and _is_after(known, receipt):
        _require_epoch(known.receipt, receipt)
        return None
    try:
        write()
    except Exception as error:
        if not _is_overtaken(error):
            # The write's error about missing files helps nobody where all of them are somewhere else.
            require_warehouse()
            raise
    # delta-rs makes folders that are missing. Where the warehouse was moved while it wrote, the commit stands alone at
    # the old path. Asked before the commit is read: a commit that is found afterwards is in the folder of the lock.
    require_warehouse()
    committed = read_back(path, receipt, since=-1 if before is None else before)
    if committed is not None:
        return committed
    newest = newest_version(path)
    for version in range(newest if newest is not None else -1, -1, -1):
        commit = read_commit(path, version)
        if commit is None:
            break
        found = commit.receipt
        if found is not None:
            _require_epoch(found, receipt)
            break
    return None


def _is_overtaken(error: Exception) -> bool:
    """Whether Spark did not commit because another writer did; reading back shows who."""
    text = str(error) if isinstance(error, (PySparkException, Py4JJavaError)) else ""
    return "ConcurrentTransactionException" in text or "DELTA_CONCURRENT" in text


def _is_after(known: Newest, receipt: Receipt) -> bool:
    """Whether another refresh was committed since this one was planned. Numbers may be skipped, so versions decide."""
    assert known.receipt is not None
    if known.receipt.seq >= receipt.seq:
        return True
    planned, at = receipt.planned, known.receipt_version
    return planned is not None and at is not None and at > planned and not known.receipt.maintenance


def _require_epoch(found: Receipt, receipt: Receipt) -> None:
    if found.epoch > receipt.epoch:
        raise FencedError(
            f"a newer engine (epoch {found.epoch}, this one has {receipt.epoch}) writes this table now. "
            "Nothing was written; ask again.",
            where=str(receipt.table),
        )


def read_back(path: Path, receipt: Receipt, *, since: int) -> Committed | None:
    """The commit above version `since` that carries this attempt's receipt, None where there is none."""
    newest = newest_version(path)
    for version in range(newest if newest is not None else -1, since, -1):
        commit = read_commit(path, version)
        found = None if commit is None else commit.receipt
        if commit is not None and found is not None and found.attempt == receipt.attempt:
            return Committed(version, changed_rows(commit), found)
    return None

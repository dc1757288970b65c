"""Commits of a few changed rows, written without Spark.

Spark plans and schedules a MERGE for seconds, whatever its size, and reads the table twice. delta-rs writes a few
thousand changed rows of a small table in tens of milliseconds, and a hundred thousand into six million rows with a
fifth of the CPU: the same receipt, the same transaction, the same change data, one commit, by the same engine. Where
anything about the table, its types or the size is not surely served, None or False is the answer, and Spark writes.

The fence: a transaction version that is not above the stored one writes nothing, as with Delta. The stored one is read
from the snapshot that the commit is made against, and the commit is not tried again: one that another writer's
overtook fails.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.table import TableMerger

from freshline.commit.delta_log import APPLICATION
from freshline.plan.maintenance import FULL_FILE_BYTES
from freshline.values.names import FEED_COLUMNS, MAPPED_IN_COLUMN
from freshline.values.receipt import Receipt, seq_of

# Above this size of the table Spark, which works on many machines and leaves files out, is the better one.
MOST_BYTES = 1 << 30
MOST_FILES = 1_000
# Up to this many changed rows, and this many bytes of them, pass through the engine's own process.
MOST_ROWS = 200_000
# So few rows pass without a check of their size.
FEW_ROWS = 20_000
MOST_ROWS_BYTES = 256 << 20
# The memory of a row, as a multiple of its size in a file.
INFLATION = 10
# Without it delta-rs makes one file of 100 MB where there were several, and each later change of a row in it writes
# all of that again. Delta's own writers have settings of the session instead, and ignore it.
FILE_SIZE = {"delta.targetFileSize": str(FULL_FILE_BYTES)}
# The features that the protocol may ask of a writer. Deletion vectors, mapped or generated columns, clustering and
# whatever is not known here are left to Delta itself.
FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed", "timestampNtz"})
# Up to this version of the protocol a table has all features of its time; whether it uses them stands in its metadata.
LEGACY_VERSION = 4
COLUMN_RULES = ("delta.invariants", "delta.generationExpression", "__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS")
TABLE_RULES = ("delta.constraints.", "delta.columnMapping.")
NAMED_IN_PATHS = ("string", "integer", "long", "short", "byte", "date", "boolean")
SIMPLE = frozenset({*NAMED_IN_PATHS, "float", "double", "binary", "timestamp", "timestamp_ntz"})
FOUND_BY = (*NAMED_IN_PATHS, "timestamp", "timestamp_ntz", "binary")
# A double has so many exact digits: delta-rs keeps the least and the greatest decimal of a file as doubles.
EXACT_DIGITS = 15
# Up to here a power of ten is a double, by which delta-rs divides.
_EXACT_SCALE = 22
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FRACTIONS = ("double", "float")
logger = logging.getLogger(__name__)


def application(identity: str) -> str:
    """The application id of a table's transactions."""
    return f"{APPLICATION}{identity}"


def open_small(path: Path, *, found_by: Sequence[str] = (), rows: int = 0) -> DeltaTable | None:
    """The newest snapshot of a table that is written here; None where Spark must write.

    `found_by` names the columns by which stored rows are found, which makes the table's size matter; `rows` is how
    many are to be written, as far as they are more than a few.
    """
    try:
        table = DeltaTable(str(path))
    except DeltaError:
        # Delta itself says what is wrong with the table, in the words that the rest of freshline knows.
        return None
    if not _is_plain(table):
        return None
    kinds = {name.lower(): kind for name, kind in _kinds(table).items()}
    if any(kinds[name.lower()] not in NAMED_IN_PATHS for name in table.metadata().partition_columns):
        return None
    if any(not _is_found_by(kinds[name.lower()]) for name in found_by):
        return None
    return table if _is_small(table, rows, changed=bool(found_by)) else None


def _is_small(table: DeltaTable, rows: int, *, changed: bool) -> bool:
    """Whether so many rows may pass through this process, and whether, to be `changed`, stored ones are few enough."""
    if not changed and rows <= FEW_ROWS:
        return True
    files = table.get_add_actions(flatten=True)
    stored_bytes = sum(files["size_bytes"].to_pylist())
    if changed and (files.num_rows > MOST_FILES or stored_bytes > MOST_BYTES):
        return False
    if rows <= FEW_ROWS:
        return True
    stored_rows = sum(files["num_records"].to_pylist()) if _is_counted(files) else 0
    return rows <= MOST_ROWS and stored_rows > 0 and rows * INFLATION * stored_bytes / stored_rows <= MOST_ROWS_BYTES


def _is_counted(files: Any) -> bool:
    """Whether the log has the number of rows of every file."""
    return "num_records" in files.schema.names and all(count is not None for count in files["num_records"].to_pylist())


def _is_plain(table: DeltaTable) -> bool:
    """Whether the protocol asks for nothing but FEATURES, and no column for more than its type."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    if protocol.min_writer_version > LEGACY_VERSION and not (protocol.min_writer_version == 7 and features <= FEATURES):
        return False
    schema = table.schema().to_json()
    return not any(key in schema for key in COLUMN_RULES) and not any(
        key.startswith(TABLE_RULES) for key in metadata.configuration
    )


def _is_found_by(kind: str) -> bool:
    """Whether values are equal here where they are for Spark: not so for fractions, of which some are not a number."""
    return kind in FOUND_BY or kind.startswith("decimal")


def _kinds(table: DeltaTable) -> dict[str, str]:
    """The types of columns by their names, empty for those that are made of others."""
    return {field.name: str(getattr(field.type, "type", "")) for field in table.schema().fields}


def _is_bounded(kind: str) -> bool:
    """Whether the least and the greatest value that delta-rs notes of a file always bound all of its values.

    Those of fractions leave out what is not a number, which Spark takes for the greatest of all; those of long decimals
    are rounded. Whoever skips files or groups of rows by them misses rows.
    """
    digits = _DECIMAL.fullmatch(kind)
    return kind in FOUND_BY or (digits is not None and int(digits[1]) <= EXACT_DIGITS)


def writing(
    table: DeltaTable, new: pa.Table | None, *, again: bool, compression: tuple[str, int | None] = ("SNAPPY", None)
) -> WriterProperties:
    """The properties of delta-rs's files: bounds and nulls are noted only of columns whose bounds are true.

    `new` are rows that are written in the table's types, and `again` says that stored ones are written with them. For
    fields of a STRUCT nothing is noted.
    """
    kinds = _kinds(table)
    is_long = any(kind.startswith("decimal") and not _is_bounded(kind) for kind in kinds.values())
    stored = pa.table(table.get_add_actions(flatten=True)) if again and is_long else None
    held = [name for name, kind in kinds.items() if _is_bounded(kind) or _holds(name, kind, new, stored, again=again)]
    codec, level = compression
    return WriterProperties(
        compression=codec,  # type: ignore[arg-type]
        compression_level=level,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(held, ColumnProperties(statistics_enabled="PAGE")),
    )


def _holds(name: str, kind: str, new: pa.Table | None, stored: pa.Table | None, *, again: bool) -> bool:
    """Whether bounds of a column's values are true: each fraction is a number, no decimal has too many digits."""
    column = None if new is None else new[name]
    if kind in _FRACTIONS:
        # The log does not say whether one of the stored ones is not a number.
        return not again and (column is None or not bool(pc.any(pc.is_nan(column)).as_py()))
    digits = _DECIMAL.fullmatch(kind)
    if digits is None or int(digits[2]) > _EXACT_SCALE:
        return False
    beyond = Decimal(10) ** (EXACT_DIGITS - int(digits[2]))
    if column is not None:
        found = pc.min_max(column).as_py()
        if found["min"] is not None and not -beyond < found["min"] <= found["max"] < beyond:
            return False
    if not again or stored is None:
        return not again
    least, greatest, nulls = f"min.{name}", f"max.{name}", f"null_count.{name}"
    if not {least, greatest, nulls, "num_records"} <= set(stored.column_names):
        return bool(stored.num_rows == 0)
    # A bound is rounded as its value is, but not to below a power of ten.
    return all(
        (low is not None and high is not None and -beyond < low <= high < beyond)
        or (empty is not None and empty == rows)
        for low, high, empty, rows in zip(
            *[stored[column].to_pylist() for column in (least, greatest, nulls, "num_records")], strict=True
        )
    )


def create_small(path: Path, schema: str, *, partitioned_by: Sequence[str], configuration: Mapping[str, str]) -> bool:
    """Create an empty table of a schema in Delta's JSON, where there is none. False where Delta itself must do it."""
    kind = json.loads(schema)
    # A table of partition columns alone would have files without a column; Delta refuses it in its own words.
    if not _is_simple(kind) or len(partitioned_by) >= len(kind["fields"]):
        return False
    try:
        DeltaTable.create(
            str(path),
            schema=Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partitioned_by),
            configuration=dict(configuration) | FILE_SIZE,
        )
    except DeltaError as error:
        logger.info("%s: left to Delta: %s", path, error)
        return False
    return True


def _is_simple(kind: Any) -> bool:
    """Whether a type of Delta's JSON is one that is served here, with names that Parquet takes."""
    if isinstance(kind, str):
        return kind in SIMPLE or kind.startswith("decimal(")
    if kind["type"] == "array":
        return _is_simple(kind["elementType"])
    if kind["type"] == "map":
        return _is_simple(kind["keyType"]) and _is_simple(kind["valueType"])
    if kind["type"] != "struct":
        return False
    names = [field["name"] for field in kind["fields"]]
    lowered = {name.lower() for name in names}
    odd = any(MAPPED_IN_COLUMN.search(name) for name in names) or len(lowered) < len(names) or lowered & FEED_COLUMNS
    return not odd and all(_is_simple(field["type"]) and not field.get("metadata") for field in kind["fields"])


def replace_small(table: DeltaTable, rows: pa.Table, receipt: Receipt) -> bool:
    """Replace all rows by others of the same columns. False where Spark must write."""
    if rows.column_names != pa.schema(table.schema().to_arrow()).names:
        return False
    # Bytes are bytes here, and the column may have had texts before.
    fitting = _fit(rows, table, texts_as_bytes=False)
    if fitting is None:
        return False

    how = writing(table, fitting, again=False)

    def replace(properties: CommitProperties) -> None:
        write_deltalake(table, fitting, mode="overwrite", writer_properties=how, commit_properties=properties)

    return _commit(table, receipt, replace)


def append_small(table: DeltaTable, rows: pa.Table, receipt: Receipt) -> bool:
    """Add rows; a table of none commits the receipt alone. False where Spark must write."""
    fitting = _fit(rows, table)
    if fitting is None:
        return False
    return _commit(
        table,
        receipt,
        lambda properties: write_deltalake(
            table,
            fitting,
            mode="append",
            writer_properties=writing(table, fitting, again=False),
            commit_properties=properties,
        ),
    )


def insert_small(table: DeltaTable, rows: pa.Table, receipt: Receipt, *, keys: Sequence[str]) -> bool:
    """Add the rows whose key is not there yet. False where Spark must write."""
    fitting = _fit(rows, table)
    if fitting is None:
        return False

    def insert(properties: CommitProperties) -> None:
        kinds = _kinds(table)
        # Equality leaves out files by their bounds, which for long decimals are not true, whoever wrote them: delta-rs
        # reads them as doubles. There is no NULL in a key.
        equal = {key: "=" if _is_bounded(kinds[key]) else "IS NOT DISTINCT FROM" for key in _as_stored(keys, fitting)}
        merge = table.merge(
            fitting,
            " AND ".join(f"t.{_quoted(key)} {sign} s.{_quoted(key)}" for key, sign in equal.items()),
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            # No stored row is written again where all that a merge does is insert.
            writer_properties=writing(table, fitting, again=False),
            commit_properties=properties,
        )
        _execute(table, merge.when_not_matched_insert(_values(fitting.column_names)), properties)

    return _commit(table, receipt, insert)


def change_small(
    table: DeltaTable, changes: pa.Table, receipt: Receipt, *, op: str, keys: Sequence[str], unique: bool
) -> bool:
    """Insert, update and delete rows as `write.apply_changes` does. False where Spark must write."""
    rows = _fit(changes.select([name for name in changes.column_names if name != op]), table)
    if rows is None:
        return False
    source = rows.append_column(op, changes[op].cast(pa.string()))

    def change(properties: CommitProperties) -> None:
        on = [f"(t.{_quoted(key)} IS NOT DISTINCT FROM s.{_quoted(key)})" for key in _as_stored(keys, rows)]
        if not unique:
            # An insert never finds a row, so it always inserts.
            on.append(f"(s.{op} = 'D')")
        merge = table.merge(
            source,
            " AND ".join(on),
            source_alias="s",
            target_alias="t",
            streamed_exec=False,
            writer_properties=writing(table, rows, again=True),
            commit_properties=properties,
        )
        merge = merge.when_matched_delete(f"s.{op} = 'D'")
        if unique:
            merge = merge.when_matched_update(_values(rows.column_names), f"s.{op} = 'U'")
        _execute(table, merge.when_not_matched_insert(_values(rows.column_names), f"s.{op} = 'I'"), properties)

    return _commit(table, receipt, change)


def restore_small(table: DeltaTable, version: int, receipt: Receipt) -> bool:
    """Bring the rows and columns of an earlier version back. False where Spark must do it."""
    if not _is_plain(DeltaTable(table.table_uri, version=version)):
        return False
    return _commit(table, receipt, lambda properties: _restore(table, version, properties), again=True)


def _restore(table: DeltaTable, version: int, properties: CommitProperties) -> None:
    table.restore(version, commit_properties=properties)


def delete_small(table: DeltaTable, predicate: str | None, receipt: Receipt) -> bool:
    """Delete the rows that match a condition, or all. False where Spark must do it."""
    return _commit(table, receipt, lambda properties: _delete(table, predicate, properties), again=True)


def _delete(table: DeltaTable, predicate: str | None, properties: CommitProperties) -> None:
    table.delete(predicate, writer_properties=writing(table, None, again=True), commit_properties=properties)


def _execute(table: DeltaTable, merge: TableMerger, properties: CommitProperties) -> None:
    """Merge. Where no row differs delta-rs commits nothing: the receipt is committed alone."""
    before = table.version()
    merge.execute()
    if table.version() == before:
        nothing = pa.schema(table.schema().to_arrow()).empty_table()
        write_deltalake(table, nothing, mode="append", commit_properties=properties)


def _fit(rows: pa.Table, table: DeltaTable, *, texts_as_bytes: bool = True) -> pa.Table | None:
    """The rows with the table's columns, in its types; None where they have others. Texts may be given as bytes."""
    schema = pa.schema(table.schema().to_arrow())
    there = {name.lower(): name for name in rows.column_names}
    if there.keys() != {name.lower() for name in schema.names}:
        return None
    fitting = rows.select([there[name.lower()] for name in schema.names]).rename_columns(schema.names)
    # A cast to another type would change values: a field that a STRUCT gained would be gone, and a text be a number.
    for given, kept in zip(fitting.schema, schema, strict=True):
        if not _is_same(given.type, kept.type, texts_as_bytes):
            logger.info("left to Spark: column %s is %s, and %s is stored", given.name, given.type, kept.type)
            return None
    try:
        return fitting.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        logger.debug("left to Spark: %s", error)
        return None


def _is_same(given: pa.DataType, stored: pa.DataType, texts_as_bytes: bool) -> bool:
    """Whether values of a type are those of the stored one. Texts may be given as bytes, where that is said."""
    if _is_text(stored):
        return _is_text(given) or (texts_as_bytes and _is_bytes(given))
    if _is_bytes(stored):
        return _is_bytes(given)
    if pa.types.is_struct(stored):
        return (
            pa.types.is_struct(given)
            and [field.name for field in given.fields] == [field.name for field in stored.fields]
            and all(_is_same(g.type, s.type, texts_as_bytes) for g, s in zip(given.fields, stored.fields, strict=True))
        )
    if pa.types.is_map(stored):
        return (
            pa.types.is_map(given)
            and _is_same(given.key_type, stored.key_type, texts_as_bytes)
            and _is_same(given.item_type, stored.item_type, texts_as_bytes)
        )
    if _is_list(stored):
        return _is_list(given) and _is_same(given.value_type, stored.value_type, texts_as_bytes)
    return bool(given.equals(stored))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    """Whether a type of Arrow is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    """Whether a type of Arrow is one of bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _commit(
    table: DeltaTable, receipt: Receipt, write: Callable[[CommitProperties], None], *, again: bool = False
) -> bool:
    """Write if the fence is open; `again` says that the number may have been written before, by a lower epoch."""
    name = application(str(table.metadata().id))
    if not _is_above(table, name, receipt, again=again):
        # As Delta does: nothing is written, and reading back shows that it was not.
        return True
    properties = CommitProperties(
        custom_metadata={"userMetadata": receipt.to_json()},
        max_commit_retries=0,
        app_transactions=[Transaction(name, receipt.transaction_version, int(time.time() * 1000))],
    )
    try:
        write(properties)
    except CommitFailedError as error:
        # Another writer was first. Whether it is known by reading back.
        logger.info("%s: overtaken: %s", receipt.table, error)
    except DeltaError as error:
        # Nothing was committed: Spark may write it, or say better what is wrong.
        logger.warning("%s: delta-rs refused a small commit, Spark writes it: %s", receipt.table, error)
        return False
    return True


def _is_above(table: DeltaTable, name: str, receipt: Receipt, *, again: bool) -> bool:
    """Whether the transaction is above the stored one: the fence is open for it.

    Its number is a new one too, unless `again`: an engine of a lower epoch may have committed the same refresh since
    this write was begun.
    """
    stored = table.transaction_version(name)
    if stored is None:
        return True
    is_new = again or receipt.maintenance or seq_of(stored) < receipt.seq
    return is_new and stored < receipt.transaction_version


def _as_stored(keys: Sequence[str], rows: pa.Table) -> list[str]:
    """Columns by the table's own names: delta-rs, unlike Spark, distinguishes capital letters from small ones."""
    stored = {name.lower(): name for name in rows.column_names}
    return [stored[key.lower()] for key in keys]


def _values(columns: Sequence[str]) -> dict[str, str]:
    return {_quoted(name): f"s.{_quoted(name)}" for name in columns}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

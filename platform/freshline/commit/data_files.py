"""Rows of a table's files, as Arrow, without Spark, where its files do not have rows as the table has them.

A deletion vector marks rows of a file as deleted. With column mapping a file has columns under names of its own. With
type widening older files have narrower types. Other features of the protocol change where the log is, not its rows, and
one that is not known here is left to Spark: None is the answer then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import ParquetReadOptions

from freshline.errors import SourceError
from freshline.values.names import CHANGE_TYPE

# Spark wrote times in a form that Arrow takes for nanoseconds, which reach to the year 2262.
TIMES = ParquetReadOptions(coerce_int96_timestamp_unit="us")
DELETION_VECTORS = "deletionVectors"
# The features of readers that need nothing, as delta-rs has them.
_PLAIN = frozenset({"timestampNtz", "variantType", "variantType-preview"})
# And those that are served here.
_SERVED = frozenset(
    {
        DELETION_VECTORS,
        "columnMapping",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
MAPPING_MODE = "delta.columnMapping.mode"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
# The rows of a file that are there, by the file's own name, which is unique.
Masks = Mapping[str, pa.BooleanArray]


def is_plain(table: DeltaTable) -> bool:
    """Whether files have rows as the table has them."""
    return _features(table) <= _PLAIN and _mode(table) == "none"


def is_served(table: DeltaTable) -> bool:
    """Whether its files are read here. Columns that are found by numbers are left to Spark."""
    return _features(table) <= _SERVED and _mode(table) in ("none", "name")


def _features(table: DeltaTable) -> set[str]:
    return {*(table.protocol().reader_features or ())}


def _mode(table: DeltaTable) -> str:
    return str(table.metadata().configuration.get(MAPPING_MODE, "none"))


def read_masks(table: DeltaTable) -> Masks | None:
    """The masks of rows that are there, for files with a deletion vector; None where only Spark can read them."""
    if DELETION_VECTORS not in _features(table):
        return {}
    try:
        found = pa.table(table.deletion_vectors())
    except DeltaError:
        # It does not know another feature of the table.
        return None
    names = [unquote(urlsplit(uri).path).rpartition("/")[2] for uri in found["filepath"].to_pylist()]
    if len(set(names)) < len(names):
        return None
    vectors = found["selection_vector"].combine_chunks()
    return {name: vectors[number].values for number, name in enumerate(names)}


def count_deleted(table: DeltaTable) -> int | None:
    """The number of rows of its files that are marked as deleted; None where delta-rs does not know it."""
    masks = read_masks(table)
    return None if masks is None else sum(len(mask) - mask.true_count for mask in masks.values())


def read_stored(table: DeltaTable, path: Path, columns: Sequence[str], most: int | None = None) -> pa.Table | None:
    """The rows of a version, as the table has them; None where Spark must read it.

    With `most` no file is read after so many rows. Raises OSError, ArrowException or ValueError where a file cannot be
    read, and KeyError for a column that there is not.
    """
    if is_plain(table):
        dataset = table.to_pyarrow_dataset(parquet_read_options=TIMES)
        read: pa.Table = dataset.to_table(columns=list(columns)) if most is None else dataset.head(most, list(columns))
        return read
    masks = read_masks(table) if is_served(table) else None
    if masks is None:
        return None
    whole = pa.schema(table.schema().to_arrow())
    schema = pa.schema([whole.field(name) for name in columns])
    files = pa.table(table.get_add_actions(flatten=False))
    names = files.column_names
    values = files["partition"].to_pylist() if "partition" in names else [{}] * files.num_rows
    parts = [schema.empty_table()]
    unused = set(masks)
    for file, partition in zip(files["path"].to_pylist(), values, strict=True):
        name = unquote(file).rpartition("/")[2]
        unused.discard(name)
        rows = read_file(table, path / unquote(file), partition)
        if name in masks:
            rows = rows.filter(_of_length(masks[name], rows.num_rows))
        parts.append(fit(rows, schema))
        if most is not None and sum(part.num_rows for part in parts) >= most:
            break
    else:
        if unused:
            return None
    found = pa.concat_tables(parts)
    return found if most is None else found.slice(0, most)


def read_column(table: DeltaTable, path: Path, column: str) -> pa.ChunkedArray:
    """The values of a column of a table of freshline's own. Raises SourceError where only Spark reads it."""
    rows = read_stored(table, path, [column])
    if rows is None:
        raise SourceError(
            f"the table has features that freshline gives no table of its own: {', '.join(sorted(_features(table)))}.",
            where=str(path),
        )
    return rows[column]


def read_file(table: DeltaTable, file: Path, partition: Mapping[str, Any]) -> pa.Table:
    """All rows of one file with the table's names; the values by which it is partitioned stand in the log.

    Raises OSError or ArrowException where it cannot be read.
    """
    return _of_table(table, _parquet(file).read(), partition)


def read_pieces(table: DeltaTable, file: Path, partition: Mapping[str, Any], rows: int) -> Iterator[pa.Table]:
    """As `read_file`, in pieces of at most so many rows, in their order."""
    for batch in _parquet(file).iter_batches(rows):
        yield _of_table(table, pa.Table.from_batches([batch]), partition)


def _parquet(file: Path) -> pq.ParquetFile:
    return pq.ParquetFile(file, coerce_int96_timestamp_unit=TIMES.coerce_int96_timestamp_unit)


def _of_table(table: DeltaTable, rows: pa.Table, partition: Mapping[str, Any]) -> pa.Table:
    """Rows of a file as the table has them."""
    physical: dict[str, str] = {}
    if _mode(table) != "none":
        kind = json.loads(table.schema().to_json())
        physical = {field["name"]: physical_name(field) for field in kind["fields"]}
        rows = _with_own_names(rows, kind["fields"])
    # A file from before the table was partitioned so has the column itself.
    for name in set(table.metadata().partition_columns) - set(rows.column_names):
        value = partition.get(physical.get(name, name), partition.get(name))
        # The log has it as a text, of which the empty one is NULL, and delta-rs in its type.
        values = [None if value == "" else value] * rows.num_rows
        rows = rows.append_column(name, pa.array(values, pa.string() if value is None or value == "" else None))
    return rows


def physical_name(field: Mapping[str, Any]) -> str:
    """The name that a field of Delta's JSON has in files, which stays when it is renamed."""
    return str(field["metadata"].get(PHYSICAL_NAME, field["name"]))


def _with_own_names(rows: pa.Table, fields: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The columns of a file under the table's names. One that was dropped may have had the name of another one."""
    own = {physical_name(field): field for field in fields}
    there = [name for name in rows.column_names if name in own]
    found = {own[name]["name"]: _renamed(rows[name].combine_chunks(), own[name]["type"]) for name in there}
    if CHANGE_TYPE in rows.column_names:
        found[CHANGE_TYPE] = rows[CHANGE_TYPE]
    return pa.table(found) if found else rows.select([])


def _renamed(values: pa.Array, kind: Any) -> pa.Array:
    """Values with the names that a type of Delta's JSON has, instead of those in files."""
    if isinstance(kind, str):
        return values
    missing = values.is_null()
    if kind["type"] == "struct":
        stored = {field.name: number for number, field in enumerate(values.type.fields)}
        there = [field for field in kind["fields"] if physical_name(field) in stored]
        parts = [_renamed(values.field(stored[physical_name(field)]), field["type"]) for field in there]
        fields = [pa.field(field["name"], part.type) for field, part in zip(there, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=missing)
    if kind["type"] == "array":
        return pa.ListArray.from_arrays(values.offsets, _renamed(values.values, kind["elementType"]), mask=missing)
    keys, items = _renamed(values.keys, kind["keyType"]), _renamed(values.items, kind["valueType"])
    return pa.MapArray.from_arrays(values.offsets, keys, items, mask=missing)


def fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns of a schema, in its types; NULL for those that an older file does not have."""
    return pa.table([_fit(rows, field) for field in schema], schema=schema)


def _fit(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows[field.name]
    if pa.types.is_string(column.type) and pa.types.is_timestamp(field.type):
        # In the log a time is in UTC. delta-rs writes it without a zone, and Spark with one.
        plain = pc.utf8_rtrim(column, characters="Z")
        return plain.cast(pa.timestamp("us")).cast(field.type)
    return column.cast(field.type)


def kept_and_gone(
    rows: pa.Table, before: pa.BooleanArray | None, after: pa.BooleanArray | None
) -> tuple[pa.Table, pa.Table]:
    """Of a file whose deletion vector is another one now: the rows that came back, and those that went away."""
    old, new = (_of_length(mask, rows.num_rows) for mask in (before, after))
    return rows.filter(pc.and_not(new, old)), rows.filter(pc.and_not(old, new))


def masked(rows: pa.Table, mask: pa.BooleanArray | None) -> pa.Table:
    """The rows of a file that are there."""
    return rows if mask is None else rows.filter(_of_length(mask, rows.num_rows))


def _of_length(mask: pa.BooleanArray | None, rows: int) -> pa.BooleanArray:
    """A mask for every row of a file: it may end with the last row that is marked."""
    given = pa.array([], pa.bool_()) if mask is None else mask
    return pa.concat_arrays([given, pa.array([True] * (rows - len(given)), pa.bool_())])

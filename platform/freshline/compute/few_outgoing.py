"""A few changes on their way to a sink, read from their files in the engine's own process.

By Spark, a query over two files of a thousand rows is planned, sent and collected for many times what it works. Here
the files that Delta's log names are read as they are, and what came and went is set off against each other. Where
anything about the table, its types or the size is not surely served, None is the answer, and Spark computes the rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from freshline.compute.arrow_rows import are_served, is_exact
from freshline.compute.delta_tables import Description, describe
from freshline.compute.few_changes import plain_values
from freshline.compute.inputs import Pinned, is_shown
from freshline.compute.materialize import FEW_ROWS, MOST_BYTES
from freshline.compute.small_tables import MOST_FILES, is_plain
from freshline.plan.changes import ChangeKind, Changes, RecordedFiles
from freshline.query.rules.algebra import SIGN
from freshline.values.names import CHANGE_TYPE
from freshline.values.spec import TableSpec

# Whether there was a row before, and its columns by their numbers.
HAD, BEFORE = "_freshline_had", "_freshline_before_"
_NUMBER = "_freshline_number"
_CAME = ("insert", "update_postimage")
# Spark 2 counted days otherwise, and newer ones say so of a file for which they do it too.
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def few_changed(spec: TableSpec, pinned: Pinned, changes: Changes) -> pa.Table | None:
    """The rows that came (SIGN 1) and those whose keys went away (-1), as `outgoing.changed_rows` has them.

    For a sink with `needs_before` also BEFORE and HAD. None where Spark has to find them.
    """
    recorded = _files_of(changes)
    if recorded is None or not spec.primary_key:
        return None
    try:
        table = describe(pinned.path, pinned.position.version)
    except DeltaError:
        return None
    kinds = _served_columns(table, spec.primary_key)
    if kinds is None:
        return None
    images = _read(pinned.path, recorded, to_arrow_schema(kinds, timezone="UTC"))
    if images is None:
        return None
    if changes.kind is ChangeKind.APPEND:
        return images
    needs_before = spec.sink is not None and spec.sink.needs_before
    return _net(images, spec.primary_key, needs_before=needs_before)


def _files_of(changes: Changes) -> RecordedFiles | None:
    """The files that have the changes; None where they are unknown or many."""
    if changes.kind is ChangeKind.APPEND:
        found = RecordedFiles((), changes.added_files) if changes.added_files else None
    else:
        found = changes.recorded
    if found is None or changes.rows > FEW_ROWS or len(found.changed) + len(found.added) > MOST_FILES:
        return None
    return found


def _served_columns(table: Description, keys: Sequence[str]) -> StructType | None:
    """The columns that queries see; None where values of one of them are not read and compared here."""
    if not is_plain(table.protocol, table.metadata):
        return None
    fields = StructType.fromJson(json.loads(table.schema.to_json())).fields
    shown = StructType([field for field in fields if is_shown(field.name)])
    kinds = {field.name: field.dataType for field in shown.fields}
    return shown if are_served(shown) and all(key in kinds and is_exact(kinds[key]) for key in keys) else None


def _read(path: Path, recorded: RecordedFiles, schema: pa.Schema) -> pa.Table | None:
    """The images in the files, with SIGN; None where there are many, or a file has values in another form."""
    named = [(name, True) for name in recorded.changed] + [(name, False) for name in recorded.added]
    left_rows, left_bytes, parts = 4 * FEW_ROWS, MOST_BYTES, []
    for name, is_signed in named:
        try:
            file = pq.ParquetFile(path / unquote(name), coerce_int96_timestamp_unit="us")
        except (OSError, pa.ArrowException):
            # Spark says what is wrong with it.
            return None
        with file:
            facts = file.metadata
            left_rows -= facts.num_rows
            left_bytes -= sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
            if left_rows < 0 or left_bytes < 0 or any(note in (facts.metadata or {}) for note in _LEGACY):
                return None
            rows = file.read()
        part = _with_sign(rows, schema, is_signed=is_signed)
        if part is None:
            return None
        parts.append(part)
    return pa.concat_tables(parts) if parts else None


def _with_sign(rows: pa.Table, schema: pa.Schema, *, is_signed: bool) -> pa.Table | None:
    columns = []
    for field in schema:
        column = rows[field.name] if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        if not _may_become(column.type, field.type):
            return None
        columns.append(column.cast(field.type))
    if is_signed:
        if CHANGE_TYPE not in rows.column_names:
            return None
        came = pc.is_in(rows[CHANGE_TYPE], pa.array(_CAME))
        signs = pc.if_else(came, pa.scalar(1, pa.int32()), pa.scalar(-1, pa.int32()))
    else:
        signs = pa.repeat(pa.scalar(1, pa.int32()), rows.num_rows)
    return pa.table([*columns, signs], names=[*schema.names, SIGN])


def _may_become(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a file are those of the table: the same, or in another form of the same type."""
    if stored == wanted or pa.types.is_null(stored):
        return True
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted):
        # A time of INT96 has no zone, and is in UTC.
        return stored.unit == "us" and wanted.tz is not None
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(stored) or pa.types.is_string_view(stored))
    return bool(pa.types.is_binary(wanted) and (pa.types.is_large_binary(stored) or pa.types.is_binary_view(stored)))


def _net(images: pa.Table, keys: Sequence[str], *, needs_before: bool) -> pa.Table | None:
    """Of each key the row that came, or the one that went away; None where a key has several of either."""
    images = images.combine_chunks()
    names = [name for name in images.column_names if name != SIGN]
    plain = pa.table([plain_values(images[name]) for name in names], names=names)
    numbered = plain.append_column(SIGN, images[SIGN]).append_column(_NUMBER, pa.array(range(images.num_rows)))
    # A row that came and went is in one group with itself, and that of a key is in no other.
    groups = numbered.group_by(names, use_threads=False).aggregate([(SIGN, "sum"), (_NUMBER, "min")])
    came = groups.filter(pc.greater(groups[f"{SIGN}_sum"], 0))[f"{_NUMBER}_min"].to_pylist()
    gone = groups.filter(pc.less(groups[f"{SIGN}_sum"], 0))[f"{_NUMBER}_min"].to_pylist()
    values = list(zip(*[plain[key].to_pylist() for key in keys], strict=True))
    after, before = {values[at]: at for at in came}, {values[at]: at for at in gone}
    if len(after) < len(came) or len(before) < len(gone):
        return None
    went = [at for key, at in before.items() if key not in after]
    rows = images.select(names).take(pa.array([*came, *went], pa.int64()))
    rows = rows.append_column(SIGN, pa.array([1] * len(came) + [-1] * len(went), pa.int32()))
    if not needs_before:
        return rows
    was = [*(before.get(values[at]) for at in came), *went]
    # A row that is new stands beside itself, which has no meaning.
    beside = images.take(pa.array([at if old is None else old for at, old in zip([*came, *went], was, strict=True)]))
    for number, name in enumerate(names):
        rows = rows.append_column(f"{BEFORE}{number}", beside[name])
    return rows.append_column(HAD, pa.array([old is not None for old in was], pa.bool_()))

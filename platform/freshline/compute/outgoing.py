"""Rows on their way to a sink: computed by Spark, kept here where they are few and in files where they are not.

Of a table with a key there is one row for each key that changed: the row that is there now, or the one that went away.
So a sink sees the difference of two versions and none of the states between them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from freshline.compute.arrow_rows import take
from freshline.compute.few_outgoing import BEFORE, HAD
from freshline.compute.inputs import Pinned, column_names, read_signed, read_whole
from freshline.compute.materialize import FEW_ROWS
from freshline.compute.netting import net_signed
from freshline.plan.changes import ChangeKind, Changes
from freshline.query.rules.algebra import SIGN
from freshline.values.changed_rows import ChangedRows
from freshline.values.names import quoted
from freshline.values.sink import JSON
from freshline.values.spec import TableSpec

# As many rows are in memory at once.
BATCH_ROWS = 20_000
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_ROW = "_freshline_row"
# Without these, Spark leaves out what is NULL, and cuts times to milliseconds.
_AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True)
class Outgoing:
    """Rows in batches, with SIGN where some of them went away. `read` gives them; a person may cancel between two."""

    schema: pa.Schema
    upserts: int
    deletes: int
    read: Callable[[], Iterator[pa.RecordBatch]]

    def read_upserts(self) -> Iterator[pa.RecordBatch]:
        """The rows that are there now."""
        return self._of_sign(1)

    def read_deletes(self) -> Iterator[pa.RecordBatch]:
        """The rows whose keys went away."""
        return self._of_sign(-1) if self.deletes else iter(())

    def _of_sign(self, sign: int) -> Iterator[pa.RecordBatch]:
        for batch in self.read():
            rows = batch
            if SIGN in batch.schema.names:
                rows = batch.filter(pc.equal(batch[SIGN], sign))
            if rows.num_rows:
                yield rows.select(self.schema.names)

    def read_changes(self) -> Iterator[ChangedRows]:
        """All rows, with those before them where they were asked for."""
        for batch in self.read():
            if not batch.num_rows:
                continue
            after = batch.select(self.schema.names)
            signed = SIGN in batch.schema.names
            has = pc.equal(batch[SIGN], 1) if signed else pa.repeat(pa.scalar(True), batch.num_rows)
            before, had = after, pc.invert(has)
            if HAD in batch.schema.names:
                numbers = range(len(self.schema.names))
                columns = [batch.column(f"{BEFORE}{number}") for number in numbers]
                before, had = pa.RecordBatch.from_arrays(columns, names=self.schema.names), batch[HAD]
            yield ChangedRows(before, after, had, has)


def changed_rows(spark: SparkSession, spec: TableSpec, pinned: Pinned, changes: Changes) -> DataFrame:
    """The rows that came (SIGN 1) and those whose keys went away (-1) between two versions of the table."""
    signed = as_written(read_signed(spark, pinned, changes), spec)
    if changes.kind is ChangeKind.APPEND:
        return signed
    columns = [name for name in signed.columns if name != SIGN]
    left = net_signed(signed, columns)
    if not spec.primary_key:
        return left
    row = F.struct(*[F.col(quoted(name)).alias(name) for name in columns])
    # The rows of one key are the one before and the one after, of which the second counts.
    by_key = left.groupBy(*[F.col(quoted(key)).alias(f"_freshline_k{n}") for n, key in enumerate(spec.primary_key)])
    last = [F.max_by(row, SIGN).alias(_ROW), F.max(SIGN).cast("int").alias(SIGN)]
    shown = [F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in columns]
    if spec.sink is None or not spec.sink.needs_before:
        return by_key.agg(*last).select(*shown, SIGN)
    first = [F.min_by(row, SIGN).alias(BEFORE), (F.min(SIGN) < 0).alias(HAD)]
    before = [F.col(f"{BEFORE}.{quoted(name)}").alias(f"{BEFORE}{number}") for number, name in enumerate(columns)]
    return by_key.agg(*last, *first).select(*shown, SIGN, *before, HAD)


def touched_rows(spark: SparkSession, spec: TableSpec, pinned: Pinned, changes: Changes) -> DataFrame:
    """As `changed_rows`, with every key that a version in between changed, also where a later one changed it back.

    An attempt at a version in between may have written such a key, and nothing else would take that back.
    """
    if changes.kind is ChangeKind.APPEND:
        return changed_rows(spark, spec, pinned, changes)
    images = as_written(read_signed(spark, pinned, changes), spec)
    touched = images.dropDuplicates([*spec.primary_key]).alias("touched")
    now = whole_table(spark, spec, pinned).alias("now")
    same = [F.col(f"touched.{quoted(key)}").eqNullSafe(F.col(f"now.{quoted(key)}")) for key in spec.primary_key]
    came = now.join(touched, same, "left_semi").withColumn(SIGN, F.lit(1))
    gone = touched.join(now, same, "left_anti").withColumn(SIGN, F.lit(-1))
    return came.unionByName(gone)


def whole_table(spark: SparkSession, spec: TableSpec, pinned: Pinned) -> DataFrame:
    """All rows of the table at its pinned version."""
    return as_written(read_whole(spark, pinned), spec)


def is_nested(kind: DataType) -> bool:
    """Whether values of a type hold others."""
    return isinstance(kind, ArrayType | MapType | StructType | VariantType)


def as_written(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """The rows with JSON texts in the place of values that hold others, but for a sink that takes these."""
    assert spec.sink is not None
    if spec.sink.takes_nested:
        return rows
    names = (*column_names(spec, rows), *([SIGN] if SIGN in rows.columns else []))
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    return rows.select(*[_as_text(name, kinds[name]) for name in names])


def _as_text(name: str, kind: DataType) -> Column:
    column = F.col(quoted(name))
    if not is_nested(kind):
        return column
    return F.to_json(column, _AS_JSON).alias(name)


@contextmanager
def collected(
    rows: DataFrame, folder: Path, *, nested: Collection[str], expected: int, check: Callable[[], None]
) -> Iterator[Outgoing]:
    """The rows, computed once: in memory where about as few are `expected`, else in files in `folder`.

    `nested` are the columns of JSON texts. `check` raises where a person has cancelled the refresh. The files are
    removed at the end; those of a process that was killed are removed at the beginning.
    """
    shutil.rmtree(folder, ignore_errors=True)
    few = take(rows, FEW_ROWS) if expected <= FEW_ROWS else None
    if few is not None:
        yield in_memory(_with_texts(few.table, few.schema), nested, check)
        return
    try:
        _write_files(rows, folder)
        files = ds.dataset(folder, format="parquet")

        def read_many() -> Iterator[pa.RecordBatch]:
            for batch in files.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
                check()
                yield batch

        gone = files.count_rows(filter=pc.field(SIGN) == -1) if SIGN in files.schema.names else 0
        yield Outgoing(_shown(files.schema, nested), files.count_rows() - gone, gone, read_many)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def in_memory(table: pa.Table, nested: Collection[str], check: Callable[[], None]) -> Outgoing:
    """Rows that are here, with SIGN where some of them went away. The other arguments are as in `collected`."""

    def read() -> Iterator[pa.RecordBatch]:
        check()
        yield from table.to_batches(max_chunksize=BATCH_ROWS)

    gone = 0 if SIGN not in table.column_names else (pc.sum(pc.equal(table[SIGN], -1)).as_py() or 0)
    return Outgoing(_shown(table.schema, nested), table.num_rows - gone, gone, read)


def _write_files(rows: DataFrame, folder: Path) -> None:
    spark = rows.sparkSession
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Spark's own form of times has no place for those before 1677 and after 2262.
    before = spark.conf.get(_TIMESTAMPS) or "INT96"
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        rows.write.mode("overwrite").parquet(str(folder))
    finally:
        spark.conf.set(_TIMESTAMPS, before)
    folder.chmod(0o700)


def _shown(schema: pa.Schema, nested: Collection[str]) -> pa.Schema:
    """The columns of the table, those of JSON texts with a note of it."""
    own = (SIGN, HAD)
    fields = [each.remove_metadata() for each in schema if each.name not in own and not each.name.startswith(BEFORE)]
    return pa.schema([field.with_metadata({JSON: b""}) if field.name in nested else field for field in fields])


def _with_texts(table: pa.Table, schema: StructType) -> pa.Table:
    """Texts as texts, whatever their bytes are: only the system can say whether it takes them."""
    for index, field in enumerate(schema.fields):
        column = table.column(index)
        kind = _with_text_type(column.type, field.dataType)
        if kind != column.type:
            chunks = [chunk.view(kind) for chunk in column.chunks]
            table = table.set_column(index, field.name, pa.chunked_array(chunks, kind))
    return table


def _with_text_type(kind: pa.DataType, of: DataType) -> pa.DataType:
    """The type of Arrow with texts for bytes that are texts in Spark, also within other values."""
    match of:
        case StringType():
            return pa.string()
        case ArrayType():
            return pa.list_(kind.value_field.with_type(_with_text_type(kind.value_type, of.elementType)))
        case MapType():
            key, item = kind.key_field, kind.item_field
            return pa.map_(
                key.with_type(_with_text_type(key.type, of.keyType)),
                item.with_type(_with_text_type(item.type, of.valueType)),
            )
        case StructType():
            fields = [kind.field(index) for index in range(kind.num_fields)]
            typed = zip(fields, of.fields, strict=True)
            return pa.struct([field.with_type(_with_text_type(field.type, each.dataType)) for field, each in typed])
        case _:
            return kind


def from_texts(rows: DataFrame, kinds: Mapping[str, DataType]) -> DataFrame:
    """The rows of a sink as those of its table: values that hold others from their JSON texts."""
    read = {"timestampFormat": _AS_JSON["timestampFormat"], "timestampNTZFormat": _AS_JSON["timestampNTZFormat"]}
    there = {field.name: field.dataType for field in rows.schema.fields}

    def column(name: str, kind: DataType) -> Column:
        if is_nested(kind) and isinstance(there[name], StringType):
            return F.from_json(quoted(name), kind, read).alias(name)  # type: ignore[arg-type]
        return F.col(quoted(name)).cast(kind).alias(name)

    return rows.select(*[column(name, kind) for name, kind in kinds.items()])


def outgoing_schema(rows: DataFrame, kinds: Mapping[str, DataType], spec: TableSpec) -> pa.Schema:
    """The columns of rows as a writer is given them; `kinds` are those of the table."""
    nested = frozenset() if spec.sink is not None and spec.sink.takes_nested else nested_of(kinds)
    return _shown(to_arrow_schema(rows.schema, timezone="UTC"), nested)


def nested_of(kinds: Mapping[str, DataType]) -> frozenset[str]:
    """The columns whose values hold others."""
    return frozenset(name for name, kind in kinds.items() if is_nested(kind))

"""As `repeated`, for a few records that are in the engine's own process: nothing is asked of Spark.

The bytes of two keys decide whether they are equal, so keys of other types are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from freshline.commit.delta_log import count_all, newest_version
from freshline.compute.arrow_rows import ArrowRows, is_exact
from freshline.compute.inputs import FILE, HASH, INGESTED_AT, RECORD, SEQ
from freshline.compute.log_keys import Bits
from freshline.compute.small_tables import files_of_batches
from freshline.ingest.duplicates import KeysAfter, LogBefore, log_keys
from freshline.sources.records import ERROR, REDELIVERED
from freshline.values.spec import SourceSpec

BITS = "_freshline_bits"
"""The column with the 64 bits of the key of a record."""
# Of so many files with rows that may have a key Spark opens some at a time.
MOST_FILES = 200
# So many rows of them pass through this process, and so many may be left for having values of the keys.
MOST_READ = 2_000_000
MOST_LEFT = 50_000
_Key = tuple[Any, ...]


def is_marked_in_memory(spec: SourceSpec, schema: StructType) -> bool:
    """Whether records of a source with these columns can be marked here. Those without a key need not be marked."""
    kinds = {field.name: field.dataType for field in schema.fields}
    return not spec.is_change_feed and all(_is_equal(kinds[name]) for name in spec.primary_key)


def _is_equal(kind: DataType) -> bool:
    # Times are not read from files here: Spark writes them in a way of its own.
    return is_exact(kind) and not isinstance(kind, TimestampNTZType | TimestampType)


def mark_duplicates_in_memory(
    spark: SparkSession, log: LogBefore, rows: ArrowRows
) -> tuple[ArrowRows, KeysAfter] | None:
    """Judged records, with BITS, as `repeated.mark_repeated` marks them; None where Spark has to, of a log too large.

    A scan of the log's keys is Spark's, where they are not kept.
    """
    key = tuple(log.spec.primary_key)
    before = log_keys(spark, log, count_all([log.path])[0], key)
    if before is None:
        return None
    table = rows.table
    bits: Bits = np.asarray(table[BITS].to_numpy(), dtype=np.int64)
    good = pc.is_null(table[ERROR]).to_numpy()
    each, times = np.unique(bits[good], return_counts=True)
    suspects, repeated = each[before.among(each)], each[times > 1]
    looked_at = np.flatnonzero(good & np.isin(bits, np.union1d(suspects, repeated)))
    if not len(looked_at):
        return rows, partial(before.after, bits=bits[good], seq=log.seq)
    sought = table.take(looked_at[np.isin(bits[looked_at], suspects)]).select(key)
    known = _stored_hashes(log, before.seqs_of(suspects), sought) if len(suspects) else {}
    if known is None:
        # Spark, which checks them instead, need not read the keys again.
        log.known.keep(log.path, before)
        return None
    codes = _codes(table.take(looked_at), key, known)
    errors = table[ERROR].to_pylist()
    for place, code in zip(looked_at.tolist(), codes, strict=True):
        errors[place] = None if code is None else code.encode()
    marked = rows.put(ERROR, pa.array(errors, table.schema.field(ERROR).type))
    stay = pc.is_null(marked.table[ERROR]).to_numpy()
    return marked, partial(before.after, bits=bits[stay], seq=log.seq)


def _codes(records: pa.Table, key: Sequence[str], known: Mapping[_Key, int]) -> list[str | None]:
    """The code of each good record: REDELIVERED, KEY_CONFLICT, or None of the first one of a key that is not known."""
    keys, hashes = _tuples(records, key), records[HASH].to_pylist()
    # As Spark orders them: nothing comes before something.
    places = [(file is not None, file, at is not None, at) for file, at in _tuples(records, (FILE, RECORD))]
    first = dict(known)
    codes: list[str | None] = [None] * len(keys)
    for number in sorted(range(len(keys)), key=places.__getitem__):
        if keys[number] in first:
            codes[number] = REDELIVERED if first[keys[number]] == hashes[number] else "KEY_CONFLICT"
        else:
            first[keys[number]] = hashes[number]
    return codes


def _stored_hashes(log: LogBefore, seqs: Sequence[int], sought: pa.Table) -> dict[_Key, int] | None:
    """The hash of the first record of each key in some batches of the log; None where Spark must read them."""
    version = newest_version(log.path)
    files = None if version is None else files_of_batches(log.path, version, seqs)
    if files is None or len(files) > MOST_FILES:
        return None
    if sum(pq.read_metadata(log.path / unquote(file)).num_rows for file in files) > MOST_READ:
        return None
    wanted = set(_tuples(sought, sought.column_names))
    found: dict[_Key, tuple[int, int]] = {}
    for file in files:
        rows = _rows_of(log, log.path / unquote(file), seqs, sought)
        if rows.num_rows > MOST_LEFT:
            return None
        for key, seq, value in zip(_tuples(rows, sought.column_names), *_lists(rows, (SEQ, HASH)), strict=True):
            if key in wanted and (key not in found or seq < found[key][0]):
                found[key] = seq, value
    return {key: value for key, (_, value) in found.items()}


def _rows_of(log: LogBefore, file: Path, seqs: Sequence[int], sought: pa.Table) -> pa.Table:
    """Of a file of the log the keys, SEQ and HASH of rows of some batches that may have one of the keys."""
    there = {name.lower(): name for name in pq.read_schema(file).names}
    names = [*sought.column_names, SEQ, HASH]
    seconds = log.spec.deduplicate_seconds
    also = [] if seconds is None else [INGESTED_AT]
    stored = [there[name.lower()] for name in (*names, *also)]
    rows = pq.read_table(
        str(file),
        columns=stored,
        filesystem=LocalFileSystem(),
        filters=pc.field(there[SEQ]).isin(pa.array(seqs, pa.int64())),
        coerce_int96_timestamp_unit="us",
        partitioning=None,
    ).rename_columns([*names, *also])
    if seconds is not None:
        oldest = pa.scalar(log.now - timedelta(seconds=seconds), pa.timestamp("us", "UTC"))
        rows = rows.filter(pc.greater(rows[INGESTED_AT].cast(oldest.type), oldest))
    for name in sought.column_names:
        # A text as its bytes, which need not be UTF-8.
        kind = sought.schema.field(name).type
        rows = rows.set_column(names.index(name), name, rows[name].cast(kind))
        rows = rows.filter(pc.is_in(rows[name], sought[name].combine_chunks()))
    return rows


def _tuples(rows: pa.Table, names: Sequence[str]) -> list[_Key]:
    return list(zip(*_lists(rows, names), strict=True))


def _lists(rows: pa.Table, names: Iterable[str]) -> list[list[Any]]:
    return [rows[name].to_pylist() for name in names]

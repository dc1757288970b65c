"""The kept values of each key of a `freshline.process`: its first waiting timer, and the state of its instance.

They lie beside the control store, so that a refresh need not replay a key from its first row. They may be lost, damaged
or old at any time: they name the receipt and the positions that they belong to, and the sum of each file. Values that
do not belong to those of the table are not used, and keys are replayed.

The entries of keys are in layers, of which the newest one that has a key counts. A refresh adds a layer of the keys
that it processed, together with the layers before it that are not much larger. So a few keys among many cost a few
entries, and there are few layers. The entries that belong to the receipt before are kept too, for a refresh that is
stopped before its commit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.commit.delta_log import table_id
from freshline.keyed.batches import AGAIN, ENTRY, KEY, KIND, LAYER, STATE, TIMER
from freshline.keyed.state import FORMAT
from freshline.refresh.attempt import Attempt
from freshline.values.names import TableName
from freshline.values.position import Position
from freshline.values.process import Process
from freshline.values.query import PythonQuery
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

LOG = logging.getLogger(__name__)

# Types of which equal values are one value, in Spark and in Python.
_IDENTICAL = (
    *(BinaryType, BooleanType, DateType, DecimalType, IntegralType),
    *(StringType, TimestampType, TimestampNTZType),
)
# A layer takes in those before it that have at most so many times its entries.
_TAKES_IN = 2
# So many entries are in one file.
_FILE_ROWS = 500_000
_OF = "of.json"


@dataclass(frozen=True)
class Layer:
    """Some entries: the name of their folder, how many, and the sum of each file in it."""

    name: str
    rows: int
    files: Mapping[str, str]


@dataclass(frozen=True)
class KeyEntries:
    """The entries that belong to the rows of a table. With `complete` a key without one has no rows."""

    folder: Path
    layers: tuple[Layer, ...]
    complete: bool
    schema: StructType

    @property
    def rows(self) -> int:
        """How many entries there are, of some keys more than one."""
        return sum(layer.rows for layer in self.layers)

    def entries(self, spark: SparkSession) -> DataFrame:
        """All entries: KEY by number, TIMER, STATE, and LAYER, of which the greatest of a key counts."""
        return _entries(spark, self.folder, self.layers, self.schema)


def keeping_state(spec: TableSpec, *, knows_all: bool = False) -> TableSpec:
    """The same table, whose class gives an entry for each key; with `knows_all` keys without one are new."""
    assert isinstance(spec.query, PythonQuery)
    process = replace(_process_of(spec), keeps_state=True, knows_all=knows_all)
    return replace(spec, query=replace(spec.query, process=process))


def read_kept(attempt: Attempt, rows: StructType) -> KeyEntries | None:
    """The kept values for the table's rows; `rows` is the schema of the input. None where they are not known."""
    receipt, schema = attempt.receipt, _schema(attempt.spec, rows)
    if receipt is None or schema is None:
        return None
    folder = _folder(attempt)
    before = {name: change.before for name, change in attempt.changes.items() if change.before is not None}
    try:
        belongs = _belongs_to(attempt, receipt, before, rows)
        for each in json.loads((folder / _OF).read_text(encoding="utf-8")):
            if each["of"] == belongs:
                layers = tuple(Layer(**layer) for layer in each["layers"])
                _require_whole(attempt, folder, layers)
                return KeyEntries(folder, layers, each["complete"] is True, schema)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        if folder.exists():
            LOG.warning("%s: the state of keys cannot be read, and keys are replayed: %s", attempt.spec.name, error)
    return None


def is_still_whole(attempt: Attempt, kept: KeyEntries) -> bool:
    """Whether the files are as they were written, of which it was thought so."""
    for layer in kept.layers:
        for file in layer.files:
            attempt.runtime.checked_files.pop(kept.folder / layer.name / file, None)
    try:
        _require_whole(attempt, kept.folder, kept.layers)
    except (OSError, ValueError) as error:
        LOG.warning("%s: the state of keys is damaged, and keys are replayed: %s", attempt.spec.name, error)
        return False
    return True


def entries_of(made: Sequence[DataFrame]) -> DataFrame:
    """The entries among results of a class, of which a later result counts more.

    Keys that are to be replayed have an empty one.
    """
    every = [
        rows.where(F.col(KIND).isNotNull()).select(
            *[F.col(name) for name in rows.columns if name.startswith(KEY)],
            F.when(F.col(KIND) == ENTRY, F.col(TIMER)).alias(TIMER),
            F.when(F.col(KIND) == ENTRY, F.col(STATE)).alias(STATE),
            F.lit(number).alias(LAYER),
        )
        for number, rows in enumerate(made)
    ]
    return reduce(DataFrame.unionAll, every)


def again_of(made: DataFrame) -> DataFrame:
    """The keys that are to be replayed, by number."""
    return made.where(F.col(KIND) == AGAIN).select(*[name for name in made.columns if name.startswith(KEY)])


def keep(
    attempt: Attempt,
    entries: DataFrame,
    kept: KeyEntries | None,
    receipt: Receipt,
    positions: Mapping[TableName, Position],
    rows: StructType,
    *,
    complete: bool,
) -> None:
    """Keep entries, and those that were kept before, for the rows that a receipt stands for.

    `entries` are as in `entries_of`, computed already. `positions` and `rows` are those of the input.
    """
    schema = _schema(attempt.spec, rows)
    if schema is None:
        return
    folder = _folder(attempt)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = _layers(attempt, folder, entries, () if kept is None else kept.layers, schema)
        said = {
            "of": _belongs_to(attempt, receipt, positions, rows),
            "layers": [vars(layer) for layer in found],
            "complete": complete,
        }
        # A commit that never comes leaves the receipt that there is, and what belongs to it.
        before = [] if kept is None else [each for each in _read(folder) if _names(each) == _named(kept.layers)][:1]
        _write(folder, [said, *before])
        _clean(folder, {name for each in (said, *before) for name in _names(each)})
    except (OSError, PySparkException, Py4JError) as error:
        LOG.warning("%s: the state of keys cannot be kept: %s", attempt.spec.name, error)
    attempt.runtime.failpoint("table-keys-kept")


def _layers(
    attempt: Attempt, folder: Path, entries: DataFrame, layers: Sequence[Layer], schema: StructType
) -> list[Layer]:
    """The layers with these entries on top."""
    count = entries.count()
    if count == 0:
        return list(layers)
    left, taken, total = list(layers), list[Layer](), count
    while left and left[-1].rows <= _TAKES_IN * total:
        taken.insert(0, left.pop())
        total += taken[0].rows
    # New entries are above all old ones.
    ranked = entries.withColumn(LAYER, F.col(LAYER) + len(taken))
    if taken:
        ranked = _entries(attempt.spark, folder, taken, schema).unionAll(ranked)
    keys = [F.col(name) for name in schema.names if name.startswith(KEY)]
    newest = ranked.groupBy(*keys).agg(F.max_by(F.struct(TIMER, STATE), LAYER).alias("_freshline_entry"))
    shown = newest.select(*keys, "_freshline_entry.*")
    name = uuid4().hex
    shown.coalesce(1 + total // _FILE_ROWS).write.parquet(str(folder / name))
    files = sorted((folder / name).glob("part-*"))
    for file in files:
        _note(attempt, file)
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    return [*left, Layer(name, rows, {file.name: _sum(file) for file in files})]


def _entries(spark: SparkSession, folder: Path, layers: Sequence[Layer], schema: StructType) -> DataFrame:
    read = [
        spark.read.schema(schema).parquet(str(folder / layer.name)).withColumn(LAYER, F.lit(number))
        for number, layer in enumerate(layers)
    ]
    return reduce(DataFrame.unionAll, read) if read else spark.createDataFrame([], schema).withColumn(LAYER, F.lit(0))


def _schema(spec: TableSpec, rows: StructType) -> StructType | None:
    """The columns of entries; None where a key has a type of which equal values may differ."""
    kinds = {field.name.lower(): field.dataType for field in rows.fields}
    keys = [kinds[name.lower()] for name in _process_of(spec).keys]
    if not all(_is_identical(kind) for kind in keys):
        return None
    fields = [StructField(f"{KEY}{number}", kind) for number, kind in enumerate(keys)]
    return StructType([*fields, StructField(TIMER, TimestampType()), StructField(STATE, StringType())])


def _is_identical(kind: DataType) -> bool:
    return isinstance(kind, _IDENTICAL) and (not isinstance(kind, StringType) or kind == StringType())


def named_keys(spec: TableSpec, rows: StructType) -> list[Column]:
    """The keys of entries under the names that they have in the input."""
    names = {name.lower(): name for name in rows.names}
    return [F.col(f"{KEY}{number}").alias(names[key.lower()]) for number, key in enumerate(_process_of(spec).keys)]


def _process_of(spec: TableSpec) -> Process:
    assert isinstance(spec.query, PythonQuery)
    assert spec.query.process is not None
    return spec.query.process


def _belongs_to(
    attempt: Attempt, receipt: Receipt, positions: Mapping[TableName, Position], rows: StructType
) -> dict[str, object]:
    """The identity of the rows of the table, and of its input, that the entries are for, and of their readers."""
    return {
        "format": FORMAT,
        "python": list(sys.version_info[:2]),
        "table": table_id(attempt.path),
        "fingerprint": attempt.spec.fingerprint,
        "columns": rows.simpleString(),
        "epoch": receipt.epoch,
        "seq": receipt.seq,
        "positions": {str(name): position.as_json() for name, position in sorted(positions.items(), key=str)},
    }


def _folder(attempt: Attempt) -> Path:
    return attempt.runtime.settings.state / "keys" / ".".join(part.lower() for part in attempt.spec.name.parts)


# -- files


def _read(folder: Path) -> list[Any]:
    try:
        found = json.loads((folder / _OF).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def _names(said: Any) -> list[str]:
    return [str(layer.get("name")) for layer in said["layers"]]


def _named(layers: Sequence[Layer]) -> list[str]:
    return [layer.name for layer in layers]


def _write(folder: Path, said: list[Any]) -> None:
    made = folder / f".{uuid4().hex}"
    made.write_text(json.dumps(said), encoding="utf-8")
    made.replace(folder / _OF)


def _clean(folder: Path, names: set[str]) -> None:
    """Take away what no receipt needs, also what a refresh that was stopped left."""
    for each in folder.iterdir():
        if each.name not in (_OF, *names):
            shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink(missing_ok=True)


def _require_whole(attempt: Attempt, folder: Path, layers: Sequence[Layer]) -> None:
    """Raises ValueError for files that are not as they were written; they are read once in the life of an engine."""
    for layer in layers:
        if {file.name for file in (folder / layer.name).glob("part-*")} != set(layer.files):
            raise ValueError(f"{folder / layer.name} has other files than it had")
        for name, known in layer.files.items():
            file = folder / layer.name / name
            if attempt.runtime.checked_files.get(file) != _look(file):
                if _sum(file) != known:
                    raise ValueError(f"{file} is not as it was written")
                _note(attempt, file)


def _note(attempt: Attempt, file: Path) -> None:
    attempt.runtime.checked_files[file] = _look(file)


def _look(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _sum(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

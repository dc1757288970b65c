"""Small Delta tables, read without Delta's search for files.

Before each scan Delta finds the files of the version, and those that may match, with a Spark query over its log. On a
table of a few files that query costs more than reading the files, a third of what a refresh of small tables took. Here
the files of a version come from delta-rs, which reads the log in milliseconds, and Spark reads them as they are.

Only where a file has rows as the table has them: no partitions, no deletion vectors, no mapped columns (all of which
raise the protocol's reader version or stand in the metadata).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Metadata
from deltalake.exceptions import DeltaError
from deltalake.table import ProtocolVersions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from freshline.compute.delta_tables import shared_table
from freshline.values.connector import SEQ

# Where a path of a list has one of these, Spark 4.2 takes it for a pattern and reads all files of the list once more,
# with `__globPaths__` off too. A list of one is read right.
PATTERN = frozenset("*?[]{}\\")
# Begins what Delta notes of a column for those who write: rules, the next identity, the default.
_OF_WRITERS = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT")
# Above this many files Delta's search pays, because it leaves files out. At a new version it costs one to two
# CPU-seconds, and opening 200 files half of one.
MOST_FILES = 200


def read_small(
    spark: SparkSession,
    path: Path,
    version: int | None,
    *,
    files: Sequence[str] | None = None,
    also: str | None = None,
) -> DataFrame | None:
    """The rows of a version (None: the newest), or of those of its files that are named as the log names them.

    `also` names a column of texts that these files have beside those of the table. None where Delta must read it.
    """
    try:
        table = DeltaTable(str(path)) if version is None else shared_table(path, version)
    except DeltaError:
        # Delta itself says what is wrong with the table, in the words that the rest of freshline knows.
        return None
    if not is_plain(table.protocol(), table.metadata()):
        return None
    found = (
        [Path(unquote(uri.removeprefix("file://"))) for uri in table.file_uris()]
        if files is None
        else _named(path, files)
    )
    if not found or len(found) > MOST_FILES or not all(file.is_file() for file in found):
        return None
    if len(found) > 1 and any(PATTERN & set(str(file)) for file in found):
        return None
    schema = _without_rules(StructType.fromJson(json.loads(table.schema().to_json())))
    schema = schema if also is None else schema.add(also, "string")
    reader = spark.read.schema(schema).option("__globPaths__", "false")
    return reader.parquet(*[str(file) for file in found])


def _without_rules(schema: StructType) -> StructType:
    """The columns without what Delta's writers keep of them, as Delta's own reading has them.

    A table that is made of them would have the generated, identity and default columns of its input.
    """
    return StructType(
        [
            StructField(
                field.name,
                field.dataType,
                field.nullable,
                {key: value for key, value in field.metadata.items() if not key.startswith(_OF_WRITERS)},
            )
            for field in schema.fields
        ]
    )


def files_of_batches(path: Path, version: int, seqs: Sequence[int]) -> list[str] | None:
    """The files of a version of a log that may have rows of some batches, as its log names them.

    None of a log whose files do not have rows as the table has them.
    """
    try:
        table = shared_table(path, version)
    except DeltaError:
        return None
    if not is_plain(table.protocol(), table.metadata()):
        return None
    files = pa.table(table.get_add_actions(flatten=True))
    least, greatest = f"min.{SEQ}", f"max.{SEQ}"
    if not {least, greatest} <= set(files.column_names):
        return [str(file) for file in files["path"].to_pylist()]
    ordered = sorted(seqs)
    found: list[str] = []
    for file, first, last in zip(*[files[name].to_pylist() for name in ("path", least, greatest)], strict=True):
        after = 0 if first is None else bisect_left(ordered, first)
        if first is None or last is None or (after < len(ordered) and ordered[after] <= last):
            found.append(file)
    return found


def _named(path: Path, files: Sequence[str]) -> list[Path]:
    return [path / unquote(file) for file in files]


def is_plain(protocol: ProtocolVersions, metadata: Metadata) -> bool:
    """Whether files have rows as the table has them."""
    return (
        protocol.min_reader_version == 1
        and not metadata.partition_columns
        and "delta.columnMapping.mode" not in metadata.configuration
    )

"""Rows and changes of a table, as Arrow, without Spark.

A reader's columns are those that are declared: what freshline keeps beside them is left out. A version or change that
is no longer there is an error, never fewer rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import ParquetReadOptions

from freshline.commit.delta_log import Commit, newest_version, open_table, read_commit
from freshline.commit.maintenance import list_checkpoints, read_commits
from freshline.declare.names import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from freshline.errors import ReadError
from freshline.plan.read import History

OWN = "_freshline"
CHANGE, VERSION, TIME = CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP
# Spark wrote times in a form that Arrow takes for nanoseconds, which reach to the year 2262.
_TIMES = ParquetReadOptions(coerce_int96_timestamp_unit="us")
# What a change does to the number of rows of its values.
_CAME = ("insert", "update_postimage")


def read_history(path: Path, table: str) -> History:
    """What a table's log has. Raises ReadError where there is no table."""
    if newest_version(path) is None:
        raise ReadError("it has no version yet. Refresh it first.", where=table)
    commits = read_commits(path)
    first = commits[0][0]
    # The log may begin with the commits behind a checkpoint that is itself the oldest version to be read.
    checkpoints = [version for version in list_checkpoints(path) if version >= first]
    return History(table, commits, 0 if first == 0 else min(checkpoints, default=commits[-1][0]))


def read_rows(path: Path, table: str, version: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a version. Raises ReadError where its files are gone."""
    opened = open_table(path, version)
    _require_plain_names(opened, table)
    wanted = list(columns) if columns is not None else [f.name for f in opened.schema().fields if not _is_own(f.name)]
    try:
        dataset = opened.to_pyarrow_dataset(parquet_read_options=_TIMES)
        found: pa.Table = dataset.to_table(columns=wanted)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise _gone(table, f"version {version}", error) from error
    except ValueError as error:
        # delta-rs makes dates of Python of what a file has at least and at most.
        raise ReadError(
            f"version {version} has a date that Python cannot hold ({error}). "
            "Read it with Spark, as `freshline sql` does.",
            where=table,
        ) from error
    return found


def _require_plain_names(opened: DeltaTable, table: str) -> None:
    """Raise ReadError for a table whose files have its columns under other names."""
    if opened.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise ReadError(
            "its columns have other names in its files (column mapping). Read it with Spark, as `freshline sql` does.",
            where=table,
        )


def read_changes(path: Path, table: str, after: int, to: int) -> pa.Table:
    """The changes of the versions after one up to another, oldest first, with what happened to each row, and when.

    The columns beside the declared ones are `_change_type` (insert, delete, update_preimage, update_postimage),
    `_commit_version` and `_commit_timestamp`. Raises ReadError where a file of them is gone.
    """
    opened = open_table(path, to)
    _require_plain_names(opened, table)
    partitioned_by = opened.metadata().partition_columns
    kept = [field for field in pa.schema(opened.schema().to_arrow()) if not _is_own(field.name)]
    more = [pa.field(CHANGE, pa.string()), pa.field(VERSION, pa.int64()), pa.field(TIME, pa.timestamp("us", "UTC"))]
    schema = pa.schema([*kept, *more])
    parts = [schema.empty_table()]
    for version in range(after + 1, to + 1):
        commit = read_commit(path, version)
        if commit is None:
            raise _gone(table, f"the changes of version {version}", "its commit is no longer in the log")
        at = datetime.fromtimestamp(int(commit.info.get("timestamp", 0)) / 1000, UTC)
        for action, kind in _changed_files(commit):
            if action.get("deletionVector") is not None:
                raise ReadError(
                    f"version {version} marks rows as deleted in its files; read its changes with Spark, as "
                    '`freshline sql "SELECT * FROM read_changes(..)"` does.',
                    where=table,
                )
            rows = _read_file(path, table, action, partitioned_by)
            kinds = rows[CHANGE] if kind is None else pa.array([kind] * rows.num_rows, pa.string())
            said = {
                CHANGE: kinds,
                VERSION: pa.array([version] * rows.num_rows, pa.int64()),
                TIME: pa.array([at] * rows.num_rows, pa.timestamp("us", "UTC")),
            }
            parts.append(pa.table([_column(rows, field, said) for field in schema], schema=schema))
    return pa.concat_tables(parts)


def _changed_files(commit: Commit) -> list[tuple[dict[str, Any], str | None]]:
    """The files that hold a commit's changes, each with what happened to its rows; None where the rows say so."""
    written = [(action["cdc"], None) for action in commit.actions if "cdc" in action]
    if written:
        return list(written)
    came = [(action, "insert") for action in commit.data_actions("add")]
    return [*((action, "delete") for action in commit.data_actions("remove")), *came]


def _read_file(path: Path, table: str, action: Mapping[str, Any], partitioned_by: Sequence[str]) -> pa.Table:
    """The rows of one file; the values by which it is partitioned stand in the log."""
    try:
        rows = pq.ParquetFile(
            path / unquote(str(action["path"])), coerce_int96_timestamp_unit=_TIMES.coerce_int96_timestamp_unit
        ).read()
    except (OSError, pa.ArrowException) as error:
        raise _gone(table, f"a file of changes, {action['path']},", error) from error
    values = action.get("partitionValues") or {}
    # A file from before the table was partitioned so has the column itself.
    for name in set(partitioned_by) - set(rows.column_names):
        value = values.get(name)
        rows = rows.append_column(name, pa.array([value or None] * rows.num_rows, pa.string()))
    return rows


def _column(rows: pa.Table, field: pa.Field, said: Mapping[str, Any]) -> Any:
    if field.name in said:
        return said[field.name]
    if field.name not in rows.column_names:
        # The file was written before the table had the column.
        return pa.nulls(rows.num_rows, field.type)
    column = rows[field.name]
    if pa.types.is_string(column.type) and pa.types.is_timestamp(field.type):
        # In the log a time is in UTC. delta-rs writes it without a zone, and Spark with one.
        plain = pc.utf8_rtrim(column, characters="Z")
        return plain.cast(pa.timestamp("us")).cast(field.type)
    return column.cast(field.type)


def net_changes(changes: pa.Table) -> pa.Table:
    """What is left of changes when those that undo each other are taken out: `insert` and `delete` by values.

    >>> rows = {"a": [1, 1, 2], "_change_type": ["insert", "delete", "insert"]}
    >>> left = net_changes(pa.table(rows | {"_commit_version": [1, 2, 2], "_commit_timestamp": [0, 1, 1]}))
    >>> left.to_pylist()
    [{'a': 2, '_change_type': 'insert'}]
    """
    names = [name for name in changes.column_names if name not in (CHANGE, VERSION, TIME)]
    rows = changes.select(names)
    sign = pc.if_else(pc.is_in(changes[CHANGE], pa.array(_CAME)), 1, -1)
    if any(pa.types.is_nested(field.type) for field in rows.schema):
        return _net_nested(rows, sign)
    # Under names of their own: a column may be called as the count is.
    own = [f"c{number}" for number in range(len(names))]
    grouped = rows.rename_columns(own).append_column("net", sign).group_by(own).aggregate([("net", "sum")])
    return _repeated(grouped.select(own).rename_columns(names), grouped["net_sum"].to_pylist())


def _net_nested(rows: pa.Table, sign: pa.ChunkedArray) -> pa.Table:
    """The same for values that Arrow does not group, by their texts."""
    texts = [repr(row) for row in rows.to_pylist()]
    count: Counter[str] = Counter()
    place: dict[str, int] = {}
    for number, (text, one) in enumerate(zip(texts, sign.to_pylist(), strict=True)):
        count[text] += one
        place.setdefault(text, number)
    kept = [text for text in place if count[text]]
    return _repeated(rows.take(pa.array([place[text] for text in kept], pa.int64())), [count[text] for text in kept])


def _repeated(rows: pa.Table, counts: Sequence[int]) -> pa.Table:
    places = [number for number, count in enumerate(counts) for _ in range(abs(count))]
    kinds = ["insert" if counts[number] > 0 else "delete" for number in places]
    return rows.take(pa.array(places, pa.int64())).append_column(CHANGE, pa.array(kinds, pa.string()))


def _is_own(name: str) -> bool:
    return name.lower().startswith(OWN)


def _gone(table: str, what: str, error: Exception | str) -> ReadError:
    first, _, _ = str(error).partition("\n")
    return ReadError(
        f"{what} cannot be read: {first}. Its files may have been removed; read the newest rows.",
        where=table,
    )

"""Rows and changes of a table, as Arrow, without Spark.

A reader's columns are those that are declared: what freshline keeps beside them is left out. A version or change that
is no longer there is an error, never fewer rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from freshline.commit.data_files import (
    Masks,
    fit,
    is_plain,
    is_served,
    kept_and_gone,
    masked,
    read_file,
    read_masks,
    read_pieces,
    read_stored,
)
from freshline.commit.delta_log import Commit, newest_version, open_table, read_commit
from freshline.commit.maintenance import list_checkpoints, read_commits
from freshline.errors import ReadError
from freshline.plan.read import LogHistory
from freshline.values.names import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

OWN = "_freshline"
CHANGE, VERSION, TIME = CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP
# The kinds of changes that add a row of its values.
_CAME = ("insert", "update_postimage")


def read_history(path: Path, table: str) -> LogHistory:
    """The history of a table by its log. Raises ReadError where there is no table."""
    if newest_version(path) is None:
        raise ReadError("it has no version yet. Refresh it first.", where=table)
    commits = read_commits(path)
    first = commits[0][0]
    # The log may begin with the commits behind a checkpoint that is itself the oldest version to be read.
    checkpoints = [version for version in list_checkpoints(path) if version >= first]
    return LogHistory(table, commits, 0 if first == 0 else min(checkpoints, default=commits[-1][0]))


def read_rows(path: Path, table: str, version: int, columns: Sequence[str] | None = None) -> pa.Table | None:
    """The rows of a version; None where Spark must read it. Raises ReadError where its files are gone."""
    opened = open_table(path, version)
    wanted = list(columns) if columns is not None else own_columns(opened)
    try:
        return read_stored(opened, path, wanted)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise gone(table, f"version {version}", error) from error
    except KeyError as error:
        raise ReadError(f"version {version} has no column {error}.", where=table) from error
    except ValueError as error:
        # delta-rs makes dates of Python of what a file has at least and at most.
        raise ReadError(
            f"version {version} has a date that Python cannot hold ({error}). "
            "Read it with Spark, as `freshline sql` does.",
            where=table,
        ) from error


def own_columns(opened: DeltaTable) -> list[str]:
    """The columns of a version without those of freshline's own."""
    return [field.name for field in opened.schema().fields if not _is_own(field.name)]


def changes_schema(opened: DeltaTable) -> pa.Schema:
    """The columns of the changes of a table, as `read_changes` gives them."""
    kept = [field for field in pa.schema(opened.schema().to_arrow()) if not _is_own(field.name)]
    more = [pa.field(CHANGE, pa.string()), pa.field(VERSION, pa.int64()), pa.field(TIME, pa.timestamp("us", "UTC"))]
    return pa.schema([*kept, *more])


def read_changes(path: Path, table: str, after: int, to: int) -> pa.Table | None:
    """The changes of the versions after one up to another, oldest first, with what happened to each row, and when.

    The columns beside the declared ones are `_change_type` (insert, delete, update_preimage, update_postimage),
    `_commit_version` and `_commit_timestamp`. None where Spark must read them. Raises ReadError where a file of them is
    gone.
    """
    opened = open_table(path, to)
    if not is_served(opened) and not is_plain(opened):
        return None
    schema = changes_schema(opened)
    parts = [schema.empty_table()]
    for version in range(after + 1, to + 1):
        commit = read_commit(path, version)
        if commit is None:
            raise gone(table, f"the changes of version {version}", "its commit is no longer in the log")
        at = datetime.fromtimestamp(int(commit.info.get("timestamp", 0)) / 1000, UTC)
        try:
            pieces = changed_pieces(opened, path, commit)
            if pieces is None:
                return None
            changed = list(pieces)
        except (OSError, pa.ArrowException) as error:
            raise gone(table, f"a file of the changes of version {version}", error) from error
        for rows, kind in changed:
            said = pa.table(
                {
                    CHANGE: rows[CHANGE] if kind is None else pa.array([kind] * rows.num_rows, pa.string()),
                    VERSION: pa.array([version] * rows.num_rows, pa.int64()),
                    TIME: pa.array([at] * rows.num_rows, pa.timestamp("us", "UTC")),
                }
            )
            values = fit(rows, pa.schema(list(schema)[:-3]))
            parts.append(pa.table([*values.columns, *said.columns], schema=schema))
    return pa.concat_tables(parts)


def changed_pieces(
    opened: DeltaTable, path: Path, commit: Commit, rows: int | None = None
) -> Iterator[tuple[pa.Table, str | None]] | None:
    """The changed rows of a commit, each piece with its kind (None: a column says it); None for Spark's.

    A piece is a file, or with `rows` at most so many rows of one in which none is marked as deleted. The order is the
    same each time. The iterator raises OSError or ArrowException where a file cannot be read.
    """
    written = [action["cdc"] for action in commit.actions if "cdc" in action]
    if written:
        return ((piece, None) for action in written for piece in _pieces(opened, path, action, None, rows))
    away, came = (commit.data_actions(kind) for kind in ("remove", "add"))
    before = _masks(path, commit.version - 1, away)
    after = _masks(path, commit.version, came)
    if before is None or after is None:
        return None
    return _pieces_of_files(opened, path, (away, before), (came, after), rows)


def _pieces_of_files(
    opened: DeltaTable,
    path: Path,
    away: tuple[Sequence[Mapping[str, Any]], Masks],
    came: tuple[Sequence[Mapping[str, Any]], Masks],
    rows: int | None,
) -> Iterator[tuple[pa.Table, str | None]]:
    (removed, before), (added, after) = away, came
    # A file that stays with other rows of it marked as deleted is taken out and put in.
    again = {str(action["path"]) for action in removed} & {str(action["path"]) for action in added}
    for action in added:
        name = str(action["path"])
        if name in again:
            whole = next(_pieces(opened, path, action, None, None))
            back, gone_rows = kept_and_gone(whole, before.get(_file(name)), after.get(_file(name)))
            yield from ((gone_rows, "delete"), (back, "insert"))
    for actions, masks, kind in ((removed, before, "delete"), (added, after, "insert")):
        for action in actions:
            if action["path"] not in again:
                for piece in _pieces(opened, path, action, masks.get(_file(action["path"])), rows):
                    yield piece, kind


def _pieces(
    opened: DeltaTable, path: Path, action: Mapping[str, Any], mask: pa.BooleanArray | None, rows: int | None
) -> Iterator[pa.Table]:
    file, partition = path / unquote(str(action["path"])), action.get("partitionValues") or {}
    if rows is None or mask is not None:
        yield masked(read_file(opened, file, partition), mask)
    else:
        yield from read_pieces(opened, file, partition, rows)


def _masks(path: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> Masks | None:
    """The masks of rows that are there, of files of a version that actions name; None where they are not known."""
    marked = {_file(str(action["path"])) for action in actions if action.get("deletionVector") is not None}
    if not marked:
        return {}
    masks = read_masks(open_table(path, version))
    return None if masks is None or not marked <= masks.keys() else {name: masks[name] for name in marked}


def _file(path: str) -> str:
    """The name of a file without its folder: it is unique."""
    return unquote(path).rpartition("/")[2]


def net_changes(changes: pa.Table, *, in_order: bool = False) -> pa.Table:
    """The changes without those that undo each other: `insert` and `delete` by values.

    With `in_order` the same changes give the same order of rows each time, which is that of their first ones.

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
    signed = rows.rename_columns(own).append_column("net", sign)
    grouped = signed.group_by(own, use_threads=not in_order).aggregate([("net", "sum")])
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


def gone(table: str, what: str, error: Exception | str) -> ReadError:
    """The error for rows or changes of a table that cannot be read any more."""
    first, _, _ = str(error).partition("\n")
    return ReadError(
        f"{what} cannot be read: {first}. Its files may have been removed; read the newest rows.",
        where=table,
    )

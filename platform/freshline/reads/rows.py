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
        raise _gone(table, f"version {version}", error) from error
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
            raise _gone(table, f"the changes of version {version}", "its commit is no longer in the log")
        at = datetime.fromtimestamp(int(commit.info.get("timestamp", 0)) / 1000, UTC)
        try:
            changed = _changed_rows(opened, path, commit)
        except (OSError, pa.ArrowException) as error:
            raise _gone(table, f"a file of the changes of version {version}", error) from error
        if changed is None:
            return None
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


def _changed_rows(opened: DeltaTable, path: Path, commit: Commit) -> list[tuple[pa.Table, str | None]] | None:
    """The changed rows of a commit by files, each with its kind (None: a column says it); None for Spark's."""

    def read(action: Mapping[str, Any]) -> pa.Table:
        return read_file(opened, path / unquote(str(action["path"])), action.get("partitionValues") or {})

    written = [action["cdc"] for action in commit.actions if "cdc" in action]
    if written:
        return [(read(action), None) for action in written]
    gone, came = (commit.data_actions(kind) for kind in ("remove", "add"))
    before = _masks(path, commit.version - 1, gone)
    after = _masks(path, commit.version, came)
    if before is None or after is None:
        return None
    # A file that stays with other rows of it marked as deleted is taken out and put in.
    again = {str(action["path"]) for action in gone} & {str(action["path"]) for action in came}
    found: list[tuple[pa.Table, str | None]] = []
    for action in came:
        name = str(action["path"])
        if name in again:
            back, away = kept_and_gone(read(action), before.get(_file(name)), after.get(_file(name)))
            found += [(away, "delete"), (back, "insert")]
    found += [(masked(read(one), before.get(_file(one["path"]))), "delete") for one in gone if one["path"] not in again]
    found += [(masked(read(one), after.get(_file(one["path"]))), "insert") for one in came if one["path"] not in again]
    return found


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


def net_changes(changes: pa.Table) -> pa.Table:
    """The changes without those that undo each other: `insert` and `delete` by values.

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

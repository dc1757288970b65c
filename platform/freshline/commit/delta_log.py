"""Reading Delta logs without Spark.

Versions, ids, receipts, transactions and the class of a range of changes come from the log files and from
delta-rs. Nothing here writes, and nothing here starts a JVM, so planning, status and the Dagster side may call it.
Rules of the log: Delta's PROTOCOL.md (actions add, remove, metaData, txn, commitInfo).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshline.errors import SourceError
from freshline.freshness.lag import lag_seconds
from freshline.plan.changes import ChangeKind, Changes, RecordedFiles
from freshline.plan.disk import CommitSize
from freshline.values.connector import WATERMARK
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt, epoch_of, seq_of
from freshline.values.result import RefreshResult, State

if TYPE_CHECKING:
    import deltalake

    from freshline.compute.delta_tables import Description

COMMIT_FILE = re.compile(r"(\d{20})\.json\Z")
# The file that says where the newest checkpoint is (PROTOCOL.md, "Last Checkpoint File").
LAST_CHECKPOINT = "_last_checkpoint"
# Our tables have a checkpoint every 50 commits; a log without one for longer is listed.
_MOST_AFTER_CHECKPOINT = 500
# So begins the name under which freshline's transactions stand in a table's log; the table's id follows.
APPLICATION = "freshline/"


@dataclass(frozen=True)
class Commit:
    """One commit of a Delta log: its version, its commitInfo and all other actions."""

    version: int
    info: dict[str, Any]
    actions: tuple[dict[str, Any], ...]

    @property
    def receipt(self) -> Receipt | None:
        return Receipt.from_json(self.info.get("userMetadata"))

    @property
    def table_id(self) -> str | None:
        """The table's id where the commit has it: in new metadata, or in a transaction of freshline's."""
        found = [action["metaData"]["id"] for action in self.actions if "metaData" in action]
        found += [
            action["txn"]["appId"].removeprefix(APPLICATION)
            for action in self.actions
            if "txn" in action and action["txn"]["appId"].startswith(APPLICATION)
        ]
        return str(found[0]) if found else None

    @property
    def changes_data(self) -> bool:
        """Whether rows were added or removed: compaction rewrites files without changing data."""
        return any(self.data_actions("add")) or any(self.data_actions("remove"))

    def data_actions(self, kind: str) -> list[dict[str, Any]]:
        """The `add` or `remove` actions that change data."""
        return [action[kind] for action in self.actions if kind in action and action[kind].get("dataChange", True)]

    @property
    def restored_version(self) -> int | None:
        """The version that a RESTORE brought back: the table has the rows that its receipt says again."""
        if self.info.get("operation") != "RESTORE":
            return None
        version = (self.info.get("operationParameters") or {}).get("version")
        return None if version is None else int(version)

    @property
    def is_restore(self) -> bool:
        """Whether it brought earlier rows back."""
        receipt = self.receipt
        return self.restored_version is not None or (receipt is not None and receipt.restored is not None)

    @property
    def metrics(self) -> dict[str, int]:
        """Delta's operation metrics that are whole numbers."""
        found = self.info.get("operationMetrics") or {}
        return {key: int(value) for key, value in found.items() if str(value).lstrip("-").isdigit()}


@dataclass(frozen=True)
class Newest:
    """The newest version of a table, and the newest receipt in its log.

    `receipt` is None where no commit of the log that is still there carries one. `receipt_version` is the version of
    the commit that moved the rows or carried the receipt on. `foreign` says that later commits changed data without
    one. `table_id` is the table's id in these commits, None where they do not have it and `table_id()` has to be asked.
    """

    version: int
    receipt: Receipt | None
    receipt_version: int | None
    foreign: bool
    table_id: str | None = None


def exists(path: Path) -> bool:
    """Whether a Delta table stands at the path."""
    return newest_version(path) is not None


def newest_version(path: Path) -> int | None:
    """The newest committed version, None where there is no Delta table. Raises SourceError for a log not to be read."""
    log = path / "_delta_log"
    try:
        version = _after_checkpoint(log)
        if version is not None:
            return version
        if not log.is_dir():
            return None
        versions = [int(match.group(1)) for entry in log.iterdir() if (match := COMMIT_FILE.match(entry.name))]
    except OSError as error:
        raise _unreadable(log, error) from error
    if not versions:
        return None
    _remember(str(log), max(versions))
    return max(versions)


def _after_checkpoint(log: Path) -> int | None:
    """The newest version, found by asking for one commit after another from the last checkpoint on.

    A log keeps every commit for as long as its history is declared, tens of thousands for a table that is never older
    than seconds, and a list of them costs as much as the rest of a check. Where it was found before, it is asked for
    from there on. None where the log names no checkpoint, or its commit is not there, or so many follow that a list is
    cheaper.
    """
    place = str(log)
    seen = _seen.get(place)
    found = None if seen is None else _last_in_row(place, seen)
    if found is None:
        try:
            version = int(json.loads((log / LAST_CHECKPOINT).read_text(encoding="utf-8"))["version"])
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None
        found = _last_in_row(place, version)
    if found is not None and found != seen:
        _remember(place, found)
    return found


# The newest versions of logs that were found last. One that is not there any more is not believed.
_seen: dict[str, int] = {}
_MOST_SEEN = 10_000


def _remember(log: str, version: int) -> None:
    if len(_seen) >= _MOST_SEEN:
        _seen.clear()
    _seen[log] = version


def _last_in_row(log: str, first: int) -> int | None:
    """The last of the commits that follow each other from `first` on; None where it is not there, or many do."""
    # A refresh asks some hundred times, and a Path takes ten times as long as its text.
    if not os.path.exists(f"{log}/{first:020d}.json"):  # noqa: PTH110
        return None
    for later in range(first + 1, first + _MOST_AFTER_CHECKPOINT):
        if not os.path.exists(f"{log}/{later:020d}.json"):  # noqa: PTH110
            return later - 1
    return None


def _actions(file: Path) -> list[dict[str, Any]]:
    """The actions of one commit file: JSON objects, one a line.

    A line ends at a line feed and nowhere else: U+2028 and its kin may stand in a JSON text as they are, and
    `str.splitlines` would cut there.
    """
    return [json.loads(line) for line in file.read_bytes().split(b"\n") if line.strip()]


def newest_commit(path: Path) -> Path | None:
    """The file of the newest commit, None where there is no Delta table. Raises SourceError as `newest_version`."""
    version = newest_version(path)
    return None if version is None else path / "_delta_log" / f"{version:020d}.json"


def read_commit(path: Path, version: int) -> Commit | None:
    """One commit, None where its file is gone from the log. Raises SourceError for one that cannot be read.

    Others have the same object.
    """
    file = path / "_delta_log" / f"{version:020d}.json"
    try:
        facts = file.stat()
        if facts.st_size > _MOST_KEPT_BYTES:
            return _commit(version, _actions(file))
        # Nobody changes a commit, but a log may lose it and get another one.
        return _kept_commit(file, version, facts.st_ino, facts.st_mtime_ns, facts.st_size)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error


# A refresh asks for the same few commits some twenty times.
_MOST_KEPT_BYTES = 1 << 16


@lru_cache(maxsize=256)
def _kept_commit(file: Path, version: int, *_identity: int) -> Commit:
    return _commit(version, _actions(file))


def _commit(version: int, found: Sequence[dict[str, Any]]) -> Commit:
    info: dict[str, Any] = {}
    actions = []
    for action in found:
        if "commitInfo" in action:
            info = action["commitInfo"]
        else:
            actions.append(action)
    return Commit(version, info, tuple(actions))


def commit_file(path: Path, version: int) -> Path:
    """The file of a commit."""
    return path / "_delta_log" / f"{version:020d}.json"


def commit_digest(path: Path, version: int) -> str | None:
    """A digest that no other commit with the same number has; None where the commit's file is gone.

    Raises SourceError for one that cannot be read.
    """
    file = commit_file(path, version)
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError | ValueError) -> SourceError:
    reason = (error.strerror if isinstance(error, OSError) else None) or "it is damaged"
    return SourceError(f"the log of the table cannot be read: {reason}.", where=str(file))


def read_newest(path: Path) -> Newest | None:
    """The newest version with its receipt; None where there is no table."""
    newest = newest_version(path)
    if newest is None:
        return None
    foreign = False
    identity: str | None = None
    for version in range(newest, -1, -1):
        commit = read_commit(path, version)
        if commit is None:
            return Newest(newest, None, None, foreign, identity)
        # A later commit that replaced the table gave it its present id.
        identity = identity or commit.table_id
        receipt = commit.receipt
        if receipt is not None:
            foreign = foreign or receipt.foreign or _is_mixed(path, receipt, version)
            return Newest(newest, receipt, version, foreign, identity)
        restored = commit.restored_version
        if restored is not None:
            return Newest(newest, receipt_at(path, restored), restored, foreign, identity)
        foreign = foreign or commit.changes_data
    return Newest(newest, None, None, foreign, identity)


def _is_mixed(path: Path, receipt: Receipt, version: int) -> bool:
    """Whether others changed data between the version that a refresh was planned on and its commit at `version`.

    Delta lets a blind append pass another one, and the fence passes an engine of a lower number that was first.
    """
    if receipt.planned is None:
        return False
    for between in range(receipt.planned + 1, version):
        commit = read_commit(path, between)
        if commit is None or not commit.changes_data:
            continue
        other = commit.receipt
        if other is None or not other.maintenance:
            return True
    return False


def receipt_at(path: Path, version: int) -> Receipt | None:
    """The receipt that was the newest one at a version."""
    for number in range(version, -1, -1):
        commit = read_commit(path, number)
        if commit is None:
            return None
        receipt = commit.receipt
        if receipt is not None:
            return receipt
        if commit.restored_version is not None:
            return receipt_at(path, commit.restored_version)
    return None


def last_seq(path: Path) -> int:
    """The number of the refresh that was committed last, even if a RESTORE took its rows away; 0 before the first."""
    newest = newest_version(path)
    for version in range(-1 if newest is None else newest, -1, -1):
        commit = read_commit(path, version)
        if commit is None:
            # The log was cleaned up below here: the transaction is kept in its checkpoint.
            return seq_of(_transaction(path))
        if commit.receipt is not None:
            return commit.receipt.seq
    return 0


def read_receipts(path: Path, *, since: int = 0) -> Iterator[tuple[int, Receipt]]:
    """Receipts of refreshes, newest first, down to version `since`; ends early where the log was cleaned up."""
    newest = newest_version(path)
    if newest is None:
        return
    for version in range(newest, since - 1, -1):
        commit = read_commit(path, version)
        if commit is None:
            return
        receipt = commit.receipt
        if receipt is not None and not receipt.maintenance:
            yield version, receipt


def read_refreshes(path: Path, most: int) -> list[RefreshResult]:
    """The newest refreshes that committed, at most so many, from the table's own commits, newest first."""
    found: list[RefreshResult] = []
    for version, receipt in read_receipts(path):
        commit = read_commit(path, version)
        if commit is None or "timestamp" not in commit.info:
            return found
        at = datetime.fromtimestamp(int(commit.info["timestamp"]) / 1000, UTC)
        found.append(
            RefreshResult(
                table=receipt.table,
                at=at,
                state=State.SUCCEEDED,
                strategy=receipt.strategy,
                reason=receipt.reason,
                seconds=receipt.seconds,
                version=version,
                fingerprint=receipt.fingerprint,
                rows_in=receipt.rows_in,
                rows_out=receipt.rows_out,
                rejected=receipt.rejected,
                committed=True,
                data_timestamp=receipt.data_timestamp,
                mode=receipt.mode,
                lag_seconds=lag_seconds(receipt.data_timestamp, at),
            )
        )
        if len(found) == most:
            return found
    return found


def commit_sizes(path: Path, most: int) -> list[CommitSize]:
    """The sizes of the newest commits that moved rows, at most so many; without those that made the table."""
    newest = newest_version(path)
    found: list[CommitSize] = []
    # A table is made empty, as version 0, and filled, or both at once.
    for version in range(-1 if newest is None else newest, 1, -1):
        commit = read_commit(path, version)
        if commit is None or len(found) == most:
            break
        if not commit.changes_data or "timestamp" not in commit.info:
            continue
        added, replaced = (
            sum(int(action.get("size") or 0) for action in commit.data_actions(kind)) for kind in ("add", "remove")
        )
        feed = sum(int(action["cdc"].get("size") or 0) for action in commit.actions if "cdc" in action)
        at = datetime.fromtimestamp(int(commit.info["timestamp"]) / 1000, UTC)
        found.append(CommitSize(at, added, replaced, feed))
    return found


def open_table(path: Path, version: int | None = None) -> deltalake.DeltaTable:
    """The table in delta-rs, to be read only. Raises SourceError where it cannot be opened."""
    with _reading(path, version):
        return _opened(path, version)


def describe_table(path: Path, version: int | None = None) -> Description:
    """The columns and settings of a version, None for the newest. Raises SourceError where it cannot be opened."""
    from freshline.compute.delta_tables import describe

    with _reading(path, version):
        number = newest_version(path) if version is None else version
        # delta-rs says of a folder without a version that there is none.
        return describe(path, _opened(path, None).version() if number is None else number)


@contextmanager
def _reading(path: Path, version: int | None) -> Iterator[None]:
    # Commits are read without it, and for `freshline plan` they are all that is read.
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise SourceError(
            f"cannot read the Delta table at {path}{'' if version is None else f' at version {version}'}: {error}",
            where=str(path),
        ) from error


def _opened(path: Path, version: int | None) -> deltalake.DeltaTable:
    """A version of a table, None for the newest. Raises what delta-rs does."""
    import deltalake

    from freshline.compute.delta_tables import shared_table

    number = newest_version(path) if version is None else version
    return deltalake.DeltaTable(str(path)) if number is None else shared_table(path, number)


def table_id(path: Path) -> str:
    """The id in the table's metadata."""
    return str(describe_table(path).metadata.id)


def newest_epoch(path: Path) -> int:
    """The epoch of the engine that wrote a table last, 0 for one that no engine wrote."""
    return epoch_of(_transaction(path))


def _transaction(path: Path) -> int:
    """The version of freshline's transaction that is stored with a table, 0 where there is none."""
    table = open_table(path)
    return table.transaction_version(f"{APPLICATION}{table.metadata().id}") or 0


def position_of(path: Path, version: int, identity: str | None = None) -> TablePosition:
    """The position that a version of a table is, with the seq of its newest receipt where it has one."""
    return position_at(identity or table_id(path), version, receipt_at(path, version))


def position_at(identity: str, version: int, receipt: Receipt | None) -> TablePosition:
    """The position that a version is whose newest receipt is known."""
    if receipt is None:
        return TablePosition(identity, version)
    return TablePosition(identity, version, receipt.seq, receipt.epoch)


def count_nulls(path: Path, version: int, column: str) -> int | None:
    """How many rows have NULL in a column, by the statistics in the log; all of them where there is no such column."""
    table = _opened(path, version)
    if column not in {field.name for field in table.schema().fields}:
        return count_rows(path, version)
    if _deleted_rows(table) != 0:
        # Which of the deleted rows have one is not known.
        return None
    actions = table.get_add_actions(flatten=True)
    names, nulls = actions.schema.names, f"null_count.{column}"
    total = 0
    for number in range(actions.num_rows):
        # A file from before the column has NULL in every row.
        found = actions[nulls][number].as_py() if nulls in names else None
        if found is None and "num_records" in names:
            found = actions["num_records"][number].as_py()
        if found is None:
            return None
        total += int(found)
    return total


def count_rows(path: Path, version: int | None = None) -> int | None:
    """The number of rows by the statistics in the log, and by its marks of deleted rows; None where it has none."""
    table = _opened(path, version)
    actions = table.get_add_actions(flatten=True)
    if actions.num_rows == 0:
        return 0
    if "num_records" not in actions.schema.names:
        return None
    counts = actions["num_records"].to_pylist()
    if any(count is None for count in counts):
        return None
    deleted = _deleted_rows(table)
    return None if deleted is None else int(sum(counts)) - deleted


def _deleted_rows(table: deltalake.DeltaTable) -> int | None:
    """The number of rows of its files that a version marks as deleted; None where delta-rs does not know it."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return 0
    # It loads pyarrow's datasets, and most tables have none.
    from freshline.commit.data_files import count_deleted

    return count_deleted(table)


def count_files(path: Path, version: int) -> tuple[int, int]:
    """How many files a version has, and their bytes."""
    actions = _opened(path, version).get_add_actions(flatten=True)
    return actions.num_rows, sum(actions["size_bytes"].to_pylist()) if actions.num_rows else 0


def _statistics(path: Path, version: int) -> Any | None:
    """The files of a version with their statistics, a row each; None where these go by other names of the columns."""
    table = _opened(path, version)
    if "delta.columnMapping.mode" in table.metadata().configuration:
        return None
    return table.get_add_actions(flatten=True)


def greatest_time(path: Path, version: int, column: str) -> datetime | None:
    """The greatest value of a TIMESTAMP column by the statistics of a version, to the millisecond.

    None where there is none, or a file has no statistics of the column.
    """
    return max(_times_of(path, version, column, "max") or (), default=None)


def least_time(path: Path, version: int, column: str) -> datetime | None:
    """The least value of a TIMESTAMP column, as `greatest_time` has the greatest."""
    return min(_times_of(path, version, column, "min") or (), default=None)


def _times_of(path: Path, version: int, column: str, which: str) -> list[datetime] | None:
    """The `min` or `max` of each file that has values; None where one has no statistics of them."""
    actions = _statistics(path, version)
    if actions is None:
        return None
    names = {name.lower(): name for name in actions.schema.names}
    greatest, nulls = names.get(f"{which}.{column.lower()}"), names.get(f"null_count.{column.lower()}")
    if greatest is None or "num_records" not in actions.schema.names:
        return None
    found: list[datetime] = []
    empty = actions[nulls].to_pylist() if nulls is not None else [None] * actions.num_rows
    for value, none, rows in zip(actions[greatest].to_pylist(), empty, actions["num_records"].to_pylist(), strict=True):
        if isinstance(value, datetime):
            # A TIMESTAMP_NTZ has no zone: it is taken as UTC, as everywhere here.
            found.append(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
        elif none is None or none != rows:
            return None
    return found


def may_have_times(path: Path, position: TablePosition, column: str, least: int, greatest: int) -> bool:
    """Whether a version may have rows with a time in a stretch, of a TIMESTAMP column, by its statistics.

    Both ends are included, in microseconds since 1970.
    """
    found = _file_times(path, position.table_id, position.version, column.lower())
    return found is None or any(low <= greatest and high >= least for low, high in found)


@lru_cache(maxsize=128)
def _file_times(path: Path, identity: str, version: int, column: str) -> tuple[tuple[int, int], ...] | None:
    """The least and the greatest time of each file that has one, None where a file has no statistics of the column.

    They are in microseconds, and wider than the rows by a millisecond, to which statistics are cut.
    """
    del identity  # versions of a table that was made anew are others
    actions = _statistics(path, version)
    if actions is None:
        return None
    if actions.num_rows == 0:
        return ()
    names = {name.lower(): name for name in actions.schema.names}
    asked = [names.get(f"{part}.{column}") for part in ("min", "max", "null_count")]
    if asked[0] is None or asked[1] is None or "num_records" not in actions.schema.names:
        return None
    try:
        lows, highs = (actions[name].to_pylist() for name in asked[:2] if name is not None)
    except (OverflowError, ValueError):
        # A year that Python does not know.
        return None
    empty = actions[asked[2]].to_pylist() if asked[2] is not None else [None] * actions.num_rows
    found = []
    for low, high, none, rows in zip(lows, highs, empty, actions["num_records"].to_pylist(), strict=True):
        if isinstance(low, datetime) and isinstance(high, datetime):
            found.append((_micros(low) - 1_000, _micros(high) + 1_000))
        elif none is None or none != rows:
            return None
    return tuple(found)


def _micros(time: datetime) -> int:
    # A TIMESTAMP_NTZ has no zone: it is taken as UTC, as everywhere here.
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def is_never_null(path: Path, version: int, column: str) -> bool:
    """Whether the statistics of a version surely say that no row has NULL in a column."""
    actions = _statistics(path, version)
    # A name with a dot could be that of a field.
    if actions is None or "." in column:
        return False
    if actions.num_rows == 0:
        return True
    names = {name.lower(): name for name in actions.schema.names}
    counts = names.get(f"null_count.{column.lower()}")
    return counts is not None and all(count == 0 for count in actions[counts].to_pylist())


def count_all(paths: Iterable[Path]) -> list[int | None]:
    """The rows of the newest version of each table that is there, None for one whose log does not count them."""
    return [count_rows(path) for path in paths if exists(path)]


def classify(
    name: TableName,
    path: Path,
    before: TablePosition | None,
    after: TablePosition,
    *,
    log: bool,
    declared: frozenset[str] | None = None,
) -> Changes:
    """The changes that the commits (before, after] made (see `Changes`).

    `declared` are the columns that queries see, in lower case, None for all; no other one counts.
    """
    if before is None:
        return Changes(name, None, after, ChangeKind.REPLACE, log=log)
    if before.table_id != after.table_id:
        return Changes(name, before, after, ChangeKind.SOURCE_REPLACED, log=log, detail="it has another table id")
    if after.version < before.version:
        return Changes(
            name,
            before,
            after,
            ChangeKind.SOURCE_REPLACED,
            log=log,
            detail=f"version {before.version} was read, the newest is {after.version}",
        )
    if _is_committed_anew(path, before, after):
        detail = f"version {before.version} was read, and another commit has this number now"
        return Changes(name, before, after, ChangeKind.SOURCE_REPLACED, log=log, detail=detail)
    if before.version == after.version or (log and before.seq == after.seq):
        return Changes(name, before, after, ChangeKind.NOTHING, log=log)
    commits: list[Commit] = []
    for version in range(before.version + 1, after.version + 1):
        commit = read_commit(path, version)
        if commit is not None:
            commits.append(commit)
        elif log:
            # The rows of a log carry their batch number: its history is in the rows, not only in the commits.
            return Changes(name, before, after, ChangeKind.APPEND, log=True)
        else:
            gone = f"commit {version} is no longer in its log"
            return Changes(name, before, after, ChangeKind.HISTORY_GONE, detail=gone)
    back = [(c.version, _restored_seq(path, c)) for c in commits if c.is_restore] if log else []
    if back:
        # No row of a log says which rows a restore took away.
        ahead = [version for version, seq in back if before.seq is None or before.seq > seq]
        if ahead:
            detail = f"version {ahead[0]} brought back rows from before what was read"
            return Changes(name, before, after, ChangeKind.SOURCE_REPLACED, log=True, detail=detail)
        kept = sum(changed_rows(commit) for commit in commits if not commit.is_restore)
        return Changes(name, before, after, ChangeKind.APPEND, log=True, rows=kept)
    added = [add for commit in commits for add in commit.data_actions("add")]
    rows = sum(changed_rows(commit) for commit in commits)
    old, new = describe_table(path, before.version), describe_table(path, after.version)
    noted = any("metaData" in action for commit in commits for action in commit.actions)
    was, now = (_columns(table, log=log, declared=declared) if noted else {} for table in (old, new))
    gained = tuple(column for column in now if column not in was)
    if list(was.items()) != [(column, field) for column, field in now.items() if column not in gained]:
        about = ", ".join(_differences(was, now))
        return Changes(name, before, after, ChangeKind.SCHEMA_CHANGED, log=log, rows=rows, detail=about)
    settings = [table.metadata.configuration for table in (old, new)]
    # It may have been off in between.
    settings += [
        each["metaData"].get("configuration") or {} for c in commits for each in c.actions if "metaData" in each
    ]
    feed = all(each.get("delta.enableChangeDataFeed") == "true" for each in settings)
    # A file of which rows are marked as deleted does not have the rows that came.
    files = () if any("deletionVector" in add for add in added) else tuple(str(add["path"]) for add in added)
    kind = max((_kind_of(commit) for commit in commits), key=_order)
    exact, recorded = not log or _are_within(commits, before, after), _recorded_files(commits) if feed else None
    return Changes(name, before, after, kind, log, feed, files, exact, recorded, rows, gained=gained)


def _recorded_files(commits: Sequence[Commit]) -> RecordedFiles | None:
    """The files of what these commits changed; None where one removes rows of which none are recorded."""
    changed: list[str] = []
    added: list[str] = []
    for commit in commits:
        found = [str(action["cdc"]["path"]) for action in commit.actions if "cdc" in action]
        if found:
            # Where there are some, they are all of the commit's changes (Delta's protocol, "Change data files").
            changed += found
        elif commit.data_actions("remove") or any("deletionVector" in add for add in commit.data_actions("add")):
            return None
        else:
            added += [str(add["path"]) for add in commit.data_actions("add")]
    return RecordedFiles(tuple(changed), tuple(added))


def _are_within(commits: Sequence[Commit], before: TablePosition, after: TablePosition) -> bool:
    """Whether all batches of these commits of a log are above the position before, and not above the one after."""
    numbers = [None if each.receipt is None else each.receipt.seq for each in commits if each.data_actions("add")]
    return all(
        number is not None and before.seq is not None and after.seq is not None and before.seq < number <= after.seq
        for number in numbers
    )


def _is_committed_anew(path: Path, before: TablePosition, after: TablePosition) -> bool:
    """Whether the version that was read is not the one of that number any more: the log had lost its newest commits."""
    if before.version == after.version or (before.seq is not None and before.seq == after.seq):
        return before.is_other_writers(after)
    if before.epoch is None:
        return False
    receipt = receipt_at(path, before.version)
    return receipt is not None and before.is_other_writers(position_at(before.table_id, before.version, receipt))


def _columns(table: Description, *, log: bool, declared: frozenset[str] | None) -> dict[str, Any]:
    """The columns of a table as JSON; of a log without the one that it gains with a watermark, which changes no row."""
    fields: list[Any] = json.loads(table.schema.to_json())["fields"]
    for field in fields:
        # Each insert may move it.
        field["metadata"].pop("delta.identity.highWaterMark", None)
        _forget_own_name(field)
    return {
        field["name"]: field
        for field in fields
        if (not log or field["name"] != WATERMARK) and (declared is None or field["name"].lower() in declared)
    }


def _forget_own_name(field: Any) -> None:
    """Take away what a field gets when its table begins to map names, and that changes no row.

    A column that took the name of another one has another name in the files.
    """
    if not isinstance(field, dict):
        return
    if "metadata" in field:
        field["metadata"].pop("delta.columnMapping.id", None)
        if field["metadata"].get("delta.columnMapping.physicalName") == field["name"]:
            del field["metadata"]["delta.columnMapping.physicalName"]
    for part in (
        *field.get("fields", ()),
        *(field.get(key) for key in ("type", "elementType", "keyType", "valueType")),
    ):
        _forget_own_name(part)


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The differences between the columns of a table before and now, one by one."""
    yield from (f"column {name} is gone" for name in was if name not in now)
    yield from (f"new column {name}" for name in now if name not in was)
    both = [name for name in was if name in now]
    for name in both:
        kinds = [_kind_text(columns[name]["type"]) for columns in (was, now)]
        if kinds[0] != kinds[1]:
            yield f"column {name} was {kinds[0]}, is {kinds[1]}"
        elif was[name] != now[name]:
            yield f"column {name} is declared in another way"
    if both != [name for name in now if name in was]:
        yield "another order of columns"


def _kind_text(kind: Any) -> str:
    """A type of a Delta schema as a person reads it."""
    return kind.upper() if isinstance(kind, str) else str(kind["type"]).upper()


def _restored_seq(path: Path, commit: Commit) -> int:
    """The number of the batch that was the newest one of what a commit brought back; 0 where it was none."""
    receipt = commit.receipt
    if receipt is None:
        receipt = None if commit.restored_version is None else receipt_at(path, commit.restored_version)
        return 0 if receipt is None else receipt.seq
    return receipt.seq if receipt.restored is None else receipt.restored


def _kind_of(commit: Commit) -> ChangeKind:
    if not commit.changes_data:
        return ChangeKind.NOTHING
    if _is_overwrite(commit):
        return ChangeKind.REPLACE
    return ChangeKind.MUTATE if any(commit.data_actions("remove")) else ChangeKind.APPEND


def _order(kind: ChangeKind) -> int:
    return list(ChangeKind).index(kind)


def _is_overwrite(commit: Commit) -> bool:
    parameters = commit.info.get("operationParameters") or {}
    return str(parameters.get("mode")) == "Overwrite" and not parameters.get("predicate")


# By operation, the metrics that together count the rows that it changed, as Delta and as delta-rs call them; files have
# rows that were only copied.
_CHANGED_ROWS = {
    "MERGE": (
        ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
        ("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted"),
    ),
    "UPDATE": (("numUpdatedRows",), ("num_updated_rows",)),
    "DELETE": (("numDeletedRows",), ("num_deleted_rows",)),
}


def changed_rows(commit: Commit) -> int:
    """How many rows a commit added, altered or took away; of an overwrite, how many it wrote."""
    metrics = commit.metrics
    for names in _CHANGED_ROWS.get(commit.info.get("operation", ""), ()):
        if names[0] in metrics:
            return sum(metrics.get(name, 0) for name in names)
    return sum(_records(add) for add in commit.data_actions("add"))


def _records(add: dict[str, Any]) -> int:
    stats = add.get("stats")
    deleted = int((add.get("deletionVector") or {}).get("cardinality", 0))
    return max(0, int(json.loads(stats).get("numRecords", 0)) - deleted) if stats else 0

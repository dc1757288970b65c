"""Work on a Delta table between refreshes: files put together, and files and commits that nobody needs removed.

Each commit carries the newest receipt on, and is made against the very version that the receipt was read from: where
another commit came first, nothing is committed. Rows never change, and readers of changes see nothing of it. Files are
removed only where no version that is kept names them; stopped half way, the rest is removed next time.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from freshline.commit.delta_log import COMMIT_FILE, newest_version, open_table, read_commit, read_newest
from freshline.commit.small import FILE_SIZE, open_small, writing
from freshline.compute.literal import sql_literal
from freshline.errors import StorageError
from freshline.plan.maintenance import FULL_FILE_BYTES, FileSizes, RetainedPast
from freshline.values.names import quoted
from freshline.values.receipt import Receipt

LOG = logging.getLogger(__name__)

# Of one file, or with a name of its own (PROTOCOL.md, "V2 Checkpoints"); one of several has two numbers.
CHECKPOINT_FILE = re.compile(r"(\d{20})\.checkpoint(\.parquet|\.[0-9a-fA-F-]{36}\.(parquet|json))\Z")
LOG_FILE = re.compile(r"(\d{20})\.(json|crc|compacted\.json|checkpoint(\..+)?\.parquet|checkpoint\..+\.json)\Z")
RETENTION = "delta.deletedFileRetentionDuration"
# Delta removes old commits by itself at a checkpoint, whoever still needs them.
CLEANUP = "delta.enableExpiredLogCleanup"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# With more bytes to rewrite than this Spark does it.
MOST_REWRITTEN_BYTES = 512 << 20
# The codec that delta-rs uses for it by itself: files that are put together are read often, and written once.
_COMPACTED = ("ZSTD", 4)
_HOOKS = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


@dataclass(frozen=True)
class Removed:
    """The files with their bytes, and the commits, that were removed from a table."""

    files: int = 0
    size_bytes: int = 0
    commits: int = 0


def read_sizes(path: Path) -> FileSizes:
    """The files of the newest version."""
    actions = open_table(path).get_add_actions(flatten=True)
    sizes = [int(size) for size in actions["size_bytes"].to_pylist()]
    names = [str(name) for name in actions["path"].to_pylist()]
    small = [(name, size) for name, size in zip(names, sizes, strict=True) if size < FULL_FILE_BYTES]
    parts = {name.rpartition("/")[0] for name, _ in small}
    return FileSizes(len(sizes), len(small), sum(size for _, size in small), max(1, len(parts)))


def read_commits(path: Path) -> list[tuple[int, datetime]]:
    """The versions whose commits are in the log, oldest first, with the times at which they were written."""
    found = []
    for entry in (path / "_delta_log").iterdir():
        match = COMMIT_FILE.match(entry.name)
        if match:
            found.append((int(match[1]), datetime.fromtimestamp(entry.stat().st_mtime, UTC)))
    return sorted(found)


def compact_files(spark: Callable[[], SparkSession], path: Path, receipt: Receipt, at: int) -> bool:
    """Put small files together; whether anything was committed. `receipt` is that of version `at`, carried on."""
    before = newest_version(path)
    table = open_small(path)
    if before != at or (table is not None and table.version() != at):
        # Somebody committed since the receipt was read; it must not stand above theirs.
        return False
    if table is not None and read_sizes(path).small_bytes <= MOST_REWRITTEN_BYTES:
        try:
            table.optimize.compact(
                target_size=FULL_FILE_BYTES,
                writer_properties=writing(table, None, again=True, compression=_COMPACTED),
                commit_properties=_carrying(receipt),
                post_commithook_properties=_HOOKS,
            )
        except DeltaError as error:
            LOG.warning("%s: files are not put together: %s", receipt.table, error)
    else:
        session = spark()
        session.conf.set(USER_METADATA, receipt.to_json())
        try:
            session.sql(f"OPTIMIZE delta.{quoted(str(path))}")
        finally:
            session.conf.unset(USER_METADATA)
    return newest_version(path) != before


def keep_commits(spark: Callable[[], SparkSession], path: Path, receipt: Receipt, at: int, allowed: timedelta) -> bool:
    """Let Delta's readers go back so far, and its writers remove no commit; whether that had to be written.

    A table of before gets the size of its files with it.
    """
    configuration = open_table(path).metadata().configuration
    wanted = {RETENTION: f"interval {int(allowed.total_seconds())} seconds", CLEANUP: "false"}
    different = {key: value for key, value in wanted.items() if configuration.get(key) != value}
    is_sized = FILE_SIZE.items() <= configuration.items()
    if not different and is_sized:
        return False
    table = open_small(path)
    if newest_version(path) != at or (table is not None and table.version() != at):
        return False
    if table is not None:
        try:
            table.alter.set_table_properties(
                different | FILE_SIZE, commit_properties=_carrying(receipt), post_commithook_properties=_HOOKS
            )
        except DeltaError as error:
            LOG.warning("%s: its properties stay as they are: %s", receipt.table, error)
            return False
        return True
    if not different:
        # Delta's own writers know no such property.
        return False
    session = spark()
    pairs = ", ".join(f"{sql_literal(key)} = {sql_literal(value)}" for key, value in different.items())
    session.conf.set(USER_METADATA, receipt.to_json())
    try:
        session.sql(f"ALTER TABLE delta.{quoted(str(path))} SET TBLPROPERTIES ({pairs})")
    finally:
        session.conf.unset(USER_METADATA)
    return True


def _carrying(receipt: Receipt) -> CommitProperties:
    # No transaction: its number would not be above the stored one. No second try: the receipt is that of this version.
    return CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}, max_commit_retries=0)


def unneeded_files(path: Path, kept: RetainedPast) -> list[str]:
    """The files that no kept version names, as paths below the table. Only reads."""
    table = open_table(path)
    # delta-rs counts back from the machine's clock, in whole hours.
    age = datetime.now(UTC) - kept.removed_after
    hours = max(0, math.ceil(age / timedelta(hours=1)))
    found = table.vacuum(
        retention_hours=hours,
        enforce_retention_duration=False,
        dry_run=True,
        full=True,
        keep_versions=sorted({*kept.points, kept.floor}),
    )
    # A file's own name is unique: however its folder is written, one that is needed is not among them.
    needed = {Path(file).name for file in _needed_files(path, table, kept)}
    return sorted(file for file in set(found) if Path(file).name not in needed)


def _needed_files(path: Path, newest: DeltaTable, kept: RetainedPast) -> set[str]:
    """The files of every kept version, and the changes of those after the floor."""
    needed = _files(newest)
    for version in {*kept.points, kept.floor}:
        needed |= _files(open_table(path, version))
    for version in range(kept.floor + 1, newest.version() + 1):
        commit = read_commit(path, version)
        if commit is None:
            continue
        for action in commit.actions:
            for kind in ("add", "remove", "cdc"):
                if kind in action:
                    needed.add(unquote(str(action[kind]["path"])))
    return needed


def _files(table: DeltaTable) -> set[str]:
    return {unquote(file) for file in table.get_add_actions(flatten=True)["path"].to_pylist()}


def remove_files(path: Path, files: Iterable[str]) -> Removed:
    """Remove files of a table that nobody needs; one that is gone already counts for nothing."""
    count = size = 0
    for file in files:
        place = path / file
        try:
            length = place.stat().st_size
            place.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"a file cannot be removed: {error.strerror or error}.", where=str(place)) from error
        count, size = count + 1, size + length
    return Removed(count, size)


def list_checkpoints(path: Path) -> list[int]:
    """The versions that have a checkpoint whose file is written whole or not at all, and last."""
    names = (entry.name for entry in (path / "_delta_log").iterdir())
    return sorted({int(match[1]) for name in names if (match := CHECKPOINT_FILE.match(name))})


def write_checkpoint(path: Path) -> None:
    """Write a checkpoint of the newest version."""
    table = open_small(path)
    if table is not None:
        table.create_checkpoint()


def remove_commits(path: Path, versions: Iterable[int]) -> Removed:
    """Remove commits, with what else the log has of these versions, the oldest first: what is left has no gap."""
    gone = set(versions)
    found = []
    for entry in (path / "_delta_log").iterdir():
        match = LOG_FILE.match(entry.name)
        if match and int(match[1]) in gone:
            found.append((int(match[1]), entry))
    count = 0
    for _, entry in sorted(found):
        try:
            entry.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"a commit cannot be removed: {error.strerror or error}.", where=str(entry)) from error
        count += entry.suffix == ".json"
    return Removed(commits=count)


def newest_receipt(path: Path) -> tuple[int, Receipt] | None:
    """The newest version with the receipt that applies to it; None where it has none, or somebody else wrote."""
    newest = read_newest(path)
    if newest is None or newest.receipt is None or newest.foreign:
        return None
    return newest.version, newest.receipt

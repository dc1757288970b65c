"""Savepoints: the state of all tables kept under a name, and brought back.

To make one stops nobody. Tables are read before their inputs, so that nothing newer is in a table than in its inputs;
it is one file, which is there whole or not at all.

To bring one back, refreshes are let end and no other begins. The work is noted first; then each table is brought back
by one commit, inputs before their readers; then the note goes. Stopped in between, the next engine, refresh or query
finishes it before it does anything else. Nothing is removed: versions from before the restore are still there, and the
savepoint too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from pyspark.sql import SparkSession

from freshline.commit.data_files import read_column
from freshline.commit.delta_log import (
    count_rows,
    exists,
    last_seq,
    newest_version,
    open_table,
    position_of,
    read_newest,
    read_receipts,
    receipt_at,
    table_id,
)
from freshline.commit.savepoints import (
    begin_restoration,
    end_restoration,
    forget_savepoint,
    keep_savepoint,
    read_restoration,
    read_savepoint,
    read_savepoints,
)
from freshline.commit.write import carry_receipt, delete_rows, read_back, restore_version, set_null
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import SEQ
from freshline.errors import (
    FencedError,
    ForeignWriteError,
    FreshlineError,
    RestoreBusyError,
    SavepointError,
    SavepointGoneError,
    SourceError,
)
from freshline.plan.request import MANUAL
from freshline.plan.savepoint import Moved, Restoration, SavedTable, SavedVersion, Savepoint, require_name
from freshline.plan.savepoint import restored_receipt as told_again
from freshline.refresh.quarantine import has_retried
from freshline.refresh.runtime import Progress, Runtime
from freshline.run.order import refresh_order
from freshline.values.connector import RETRIED_IN
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State
from freshline.values.spec import SourceSpec, TableSpec

LOG = logging.getLogger(__name__)

# How long a restore waits for refreshes that run.
WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Restored:
    """The result of a restore.

    `tables` were brought back, to the version that the commit has now; `unchanged` had the same content already.
    `behind` read tables that were brought back and are not in the savepoint: their next refresh follows. `redeclared`
    have another declaration than then.
    """

    savepoint: Savepoint
    tables: dict[TableName, int] = field(default_factory=dict)
    unchanged: tuple[TableName, ...] = ()
    behind: tuple[TableName, ...] = ()
    redeclared: tuple[TableName, ...] = ()
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "savepoint": self.savepoint.name,
            "created_at": self.savepoint.created_at.isoformat(),
            "restored": {str(name): version for name, version in self.tables.items()},
            "unchanged": [str(name) for name in self.unchanged],
            "behind": [str(name) for name in self.behind],
            "redeclared": [str(name) for name in self.redeclared],
            "seconds": round(self.seconds, 3),
        }


def create_savepoint(runtime: Runtime, name: str, tables: Sequence[TableName] = ()) -> Savepoint:
    """Keep the state of all tables, or of these and of all that they depend on, under a name.

    Raises SavepointError where the name is in use, or no table has a version.
    """
    require_name(name)
    finish_restore(runtime)
    with runtime.whole:
        if read_savepoint(runtime.warehouse, name) is not None:
            raise _in_use(name)
        graph = runtime.graph
        order = refresh_order(graph, tables) if tables else graph.order
        found: list[SavedTable] = []
        sources: dict[TableName, TablePosition] = {}
        now = runtime.clock()
        # A table comes before its inputs: so a receipt never names a version that is newer than the saved one.
        for each in reversed(order):
            spec = graph.spec(each)
            if isinstance(spec, SourceSpec) and not spec.is_log:
                path = runtime.warehouse.location(spec)
                version = newest_version(path)
                if version is not None:
                    sources[spec.name] = position_of(path, version)
                continue
            if isinstance(spec, TableSpec) and spec.sink is not None:
                # Its rows are elsewhere: after a restore it follows its table as after any other change.
                continue
            saved = _look_at(runtime, spec.name, is_log=isinstance(spec, SourceSpec))
            if saved is not None:
                found.append(saved)
        if not found:
            raise SavepointError("no table has a version yet, so there is nothing to save. Refresh one first.")
        savepoint = Savepoint(name, now, tuple(reversed(found)), sources, named=bool(tables))
        runtime.failpoint("savepoint-read")
        if not keep_savepoint(runtime.warehouse, savepoint):
            raise _in_use(name)
        return savepoint


def list_savepoints(runtime: Runtime) -> list[Savepoint]:
    """All savepoints, the oldest first."""
    return read_savepoints(runtime.warehouse)


def drop_savepoint(runtime: Runtime, name: str) -> Savepoint:
    """Keep a savepoint no longer: its versions may be cleaned up. Raises SavepointError for one that is not there."""
    with runtime.whole:
        savepoint = _known(runtime, name)
        forget_savepoint(runtime.warehouse, name)
        return savepoint


def restore_savepoint(
    runtime: Runtime,
    name: str,
    *,
    cancellation: Cancellation | None = None,
    progress: Progress = lambda message: None,
    wait_seconds: float = WAIT_SECONDS,
) -> Restored:
    """Bring the tables of a savepoint back to what they were.

    Refreshes that run may end within `wait_seconds`; RestoreBusyError where they do not. Raises SavepointError for one
    that is not there and SavepointGoneError where a version of it is gone; then nothing was changed. Once tables are
    being brought back it cannot be cancelled.
    """
    started = time.monotonic()
    finish_restore(runtime)
    with runtime.whole:
        savepoint = _known(runtime, name)
        with _all_locked(runtime, savepoint, wait_seconds, cancellation, progress):
            _require_there(runtime, savepoint)
            restoration = Restoration(uuid4().hex, savepoint, runtime.clock())
            begin_restoration(runtime.warehouse, restoration)
            runtime.failpoint("restore-begun")
            restored = _bring_back(runtime, restoration, progress)
            end_restoration(runtime.warehouse)
    return replace(restored, seconds=time.monotonic() - started)


def finish_restore(runtime: Runtime) -> None:
    """Finish a restore that was stopped half way; most often there is none. Call it without the lock of any table."""
    if read_restoration(runtime.warehouse) is None:
        return
    with runtime.whole:
        restoration = read_restoration(runtime.warehouse)
        if restoration is None:
            return
        LOG.warning("the restore of savepoint %s was stopped half way; it is finished now", restoration.savepoint.name)
        with _all_locked(runtime, restoration.savepoint, WAIT_SECONDS, None, lambda message: None):
            _bring_back(runtime, restoration, lambda message: None)
            end_restoration(runtime.warehouse)


def is_restoring(runtime: Runtime) -> bool:
    """Whether a restore was begun and has not ended."""
    return read_restoration(runtime.warehouse) is not None


# -- reading


def _look_at(runtime: Runtime, name: TableName, *, is_log: bool) -> SavedTable | None:
    warehouse = runtime.warehouse
    path = warehouse.path(name)
    newest = read_newest(path)
    if newest is None or newest.receipt is None:
        return None
    if newest.foreign:
        raise ForeignWriteError(
            f"version {newest.version} was not written by freshline, so its receipt does not say what it holds. "
            f"Refresh it with `freshline refresh {name} --full` first.",
            where=str(name),
        )
    receipt = newest.receipt
    saved = SavedVersion(newest.table_id or table_id(path), newest.version, receipt)
    sides: dict[str, SavedVersion] = {}
    if is_log:
        # Read after the log: it has at least the records that the log's batches rejected.
        quarantine = read_newest(warehouse.quarantine(name))
        if quarantine is not None and quarantine.receipt is not None:
            sides["quarantine"] = SavedVersion(
                table_id(warehouse.quarantine(name)), quarantine.version, quarantine.receipt
            )
        # Names of files that later batches read must not be in it.
        for version, noted in read_receipts(warehouse.files(name)) if exists(warehouse.files(name)) else ():
            if noted.seq <= receipt.seq:
                sides["file"] = SavedVersion(table_id(warehouse.files(name)), version, noted)
                break
    elif receipt.pending_lookups is not None:
        sides["parked"] = SavedVersion(table_id(warehouse.pending_lookups(name)), receipt.pending_lookups, None)
    return SavedTable(name, saved, sides)


def _known(runtime: Runtime, name: str) -> Savepoint:
    savepoint = read_savepoint(runtime.warehouse, require_name(name))
    if savepoint is None:
        names = ", ".join(other.name for other in read_savepoints(runtime.warehouse)) or "none"
        raise SavepointError(f"there is no savepoint {name}. There are: {names}.")
    return savepoint


def _in_use(name: str) -> SavepointError:
    return SavepointError(f"there is a savepoint {name} already. Drop it first, or take another name.")


def _require_there(runtime: Runtime, savepoint: Savepoint) -> None:
    """Everything that a savepoint needs must be there before anything is changed."""
    for saved in savepoint.tables:
        _require_version(runtime.warehouse.path(saved.name), saved.name, saved.version)
        for side, version in saved.sides.items():
            _require_version(runtime.warehouse.side(saved.name, side), saved.name, version)


def _require_version(path: Path, name: TableName, saved: SavedVersion) -> None:
    def gone(why: str) -> SavepointGoneError:
        return SavepointGoneError(
            f"version {saved.version} of {path.name} cannot be brought back: {why}. Nothing was restored.",
            where=str(name),
        )

    if not exists(path):
        raise gone("the table is gone")
    try:
        identity, table = table_id(path), open_table(path, saved.version)
        files = table.get_add_actions(flatten=True)["path"].to_pylist()
    except SourceError as error:
        raise gone(f"its log does not have it any more ({error.message})") from error
    if identity != saved.table_id:
        raise gone("another table stands there now")
    if saved.is_another(receipt_at(path, saved.version)):
        raise gone("the log had lost this commit, and another one has its number now")
    missing = [file for file in files if not ((path / file).exists() or (path / unquote(file)).exists())]
    if missing:
        raise gone(f"{len(missing)} of its {len(files)} files are gone, for example {missing[0]}")


@contextmanager
def _all_locked(
    runtime: Runtime,
    savepoint: Savepoint,
    wait_seconds: float,
    cancellation: Cancellation | None,
    progress: Progress,
) -> Iterator[None]:
    """No table is being refreshed, and none will be before this ends."""
    deadline = time.monotonic() + wait_seconds
    names = dict.fromkeys([*runtime.graph.order, *(saved.name for saved in savepoint.tables)])
    with ExitStack() as held:
        for name in names:
            lock = runtime.lock(name)
            if not lock.acquire(blocking=False):
                progress(f"waiting for the refresh of {name} to end")
                while not lock.acquire(timeout=_LOOK_SECONDS):
                    if cancellation is not None:
                        cancellation.check()
                    if time.monotonic() >= deadline:
                        raise RestoreBusyError(
                            f"{name} was being refreshed for more than {wait_seconds:.0f} s. Nothing was restored: "
                            "cancel the refresh or backfill, or ask again when it has ended.",
                            where=str(name),
                        )
            held.callback(lock.release)
        yield


# -- bringing back


def _bring_back(runtime: Runtime, restoration: Restoration, progress: Progress) -> Restored:
    """Do the rest of a restore. A mark in the newest receipt says which tables are done."""
    savepoint = restoration.savepoint
    # Whoever writes on from before the restore comes too late.
    runtime.epoch = runtime.control.take_epoch(runtime.epoch + 1)
    moved: dict[TableName, Moved] = {}
    tables: dict[TableName, int] = {}
    with ExitStack() as stack:

        @cache
        def spark() -> SparkSession:
            return stack.enter_context(runtime.working(Cancellation(), pool=MANUAL, what=f"restore {savepoint.name}"))

        step = _Step(runtime, restoration, spark)
        for saved in savepoint.tables:
            progress(f"bringing {saved.name} back")
            pending_lookups = step.sides(saved)
            moved[saved.name] = step.table(saved, moved, pending_lookups)
            if moved[saved.name].version != saved.version.version:
                tables[saved.name] = moved[saved.name].version
            runtime.failpoint("restore-table")
    _forget(runtime, savepoint)
    runtime.failpoint("restore-done")
    _record(runtime, savepoint, tables)
    declared = {name: runtime.graph.spec(name) for name in runtime.graph.order}
    readers = {
        reader
        for name in tables
        if name in declared
        for reader in runtime.graph.downstream(name)
        if reader not in moved
    }
    return Restored(
        savepoint,
        tables,
        tuple(saved.name for saved in savepoint.tables if saved.name not in tables),
        tuple(name for name in runtime.graph.order if name in readers and exists(runtime.warehouse.path(name))),
        tuple(
            saved.name
            for saved in savepoint.tables
            if saved.name in declared
            and isinstance(declared[saved.name], TableSpec)
            and saved.version.receipt is not None
            and declared[saved.name].fingerprint != saved.version.receipt.fingerprint
        ),
    )


@dataclass(frozen=True)
class _Step:
    """Brings one table at a time back."""

    runtime: Runtime
    restoration: Restoration
    spark: Any

    def table(self, saved: SavedTable, moved: dict[TableName, Moved], pending_lookups: int | None) -> Moved:
        """Bring the table back, with a receipt that speaks of its inputs as they stand now."""
        path, base = self.runtime.warehouse.path(saved.name), saved.version.receipt
        assert base is not None
        newest = read_newest(path)
        attempt = self.restoration.attempt(str(saved.name))
        if newest is None:
            raise SavepointGoneError("the table is gone", where=str(saved.name))
        if newest.receipt is not None and newest.receipt.attempt == attempt:
            return Moved(saved.version, newest.version, newest.receipt.seq, newest.receipt.epoch)
        spec = self.runtime.graph.spec(saved.name) if saved.name in self.runtime.graph else None
        receipt = told_again(
            base,
            moved,
            savepoint=self.restoration.savepoint.name,
            epoch=self.runtime.epoch,
            seq=1 + max(base.seq, last_seq(path)),
            attempt=attempt,
            pending_lookups=pending_lookups,
            lookups=spec.lookups if isinstance(spec, TableSpec) else (),
        )
        if newest.version != saved.version.version:
            self._commit(path, newest.version, saved.version.version, receipt)
        elif (receipt.positions, receipt.cut, receipt.partitions, receipt.pending_lookups) == (
            base.positions,
            base.cut,
            base.partitions,
            base.pending_lookups,
        ):
            return Moved(saved.version, newest.version, base.seq, base.epoch)
        else:
            carry_receipt(self.spark, path, receipt)
            self._require_committed(path, receipt, newest.version)
        version = newest_version(path)
        assert version is not None
        return Moved(saved.version, version, receipt.seq, receipt.epoch)

    def sides(self, saved: SavedTable) -> int | None:
        """Bring back the tables beside a table; the version that has its parked rows again, where it has some."""
        warehouse, base = self.runtime.warehouse, saved.version.receipt
        assert base is not None
        pending_lookups = None
        for side in ("quarantine", "file"):
            path = warehouse.side(saved.name, side)
            if exists(path) and self._is_log(base, saved.name):
                self._side(saved, side, path, saved.sides.get(side), base)
        if "parked" in saved.sides:
            path = warehouse.side(saved.name, "parked")
            pending_lookups = self._side(saved, "parked", path, saved.sides["parked"], base)
        return pending_lookups

    def _is_log(self, receipt: Receipt, name: TableName) -> bool:
        # A log table's position is in itself: files that it read, or how far it read a topic.
        return name in receipt.positions

    def _side(self, saved: SavedTable, side: str, path: Path, version: SavedVersion | None, base: Receipt) -> int:
        attempt = self.restoration.attempt(f"{saved.name}__{side}")
        newest = read_newest(path)
        assert newest is not None
        done = newest.receipt is not None and newest.receipt.attempt.startswith(attempt)
        stored = None if version is None else version.receipt
        seq = 0 if newest.receipt is None else newest.receipt.seq
        receipt = replace(
            stored or base,
            epoch=self.runtime.epoch,
            # Parked rows count for themselves; of a log's, no number may be above the log's own.
            seq=seq + 1 if side == "parked" else min(base.seq, (stored or base).seq),
            strategy="restore",
            reason=f"restored with savepoint {self.restoration.savepoint.name}",
            positions={},
            rows_in=0,
            rows_out=None,
            attempt=attempt,
            pending_lookups=None,
            restored=None,
        )
        if not done and version is not None and newest.version != version.version:
            self._commit(path, newest.version, version.version, receipt)
        elif version is None and count_rows(path) != 0:
            # It was made after the savepoint.
            delete_rows(self.spark, path, None, receipt)
            self._require_committed(path, receipt, newest.version)
        if side == "quarantine" and version is not None and self._has_later(path, base.seq):
            # Rows of a batch that had not ended when the savepoint was made: its records are read again.
            again = replace(receipt, attempt=f"{attempt}/later", epoch=self._next_epoch())
            before = newest_version(path)
            delete_rows(self.spark, path, f"{SEQ} > {base.seq}", again)
            self._require_committed(path, again, -1 if before is None else before)
        if side == "quarantine" and version is not None and has_retried(path, base.seq):
            again = replace(receipt, attempt=f"{attempt}/retried", epoch=self._next_epoch())
            before = newest_version(path)
            set_null(self.spark(), path, RETRIED_IN, f"{RETRIED_IN} > {base.seq}", again)
            self._require_committed(path, again, -1 if before is None else before)
        found = newest_version(path)
        assert found is not None
        return found

    def _next_epoch(self) -> int:
        """An epoch above the one that the same number was written with a moment ago."""
        self.runtime.epoch = self.runtime.control.take_epoch(self.runtime.epoch + 1)
        return self.runtime.epoch

    def _has_later(self, path: Path, seq: int) -> bool:
        found = read_column(open_table(path), path, SEQ).to_pylist()
        return any(number is not None and number > seq for number in found)

    def _commit(self, path: Path, before: int, version: int, receipt: Receipt) -> None:
        restore_version(self.spark, path, version, receipt)
        self._require_committed(path, receipt, before)

    def _require_committed(self, path: Path, receipt: Receipt, before: int) -> None:
        self.runtime.require_warehouse()
        if read_back(path, receipt, since=before) is None:
            raise FencedError(
                f"another writer wrote to {path.name} while it was brought back. Ask again.", where=str(receipt.table)
            )


def _forget(runtime: Runtime, savepoint: Savepoint) -> None:
    """Forget the facts in memory and in the control store about the tables as they were."""
    names = [saved.name for saved in savepoint.tables]
    runtime.control.forget_checks(names)
    for name in names:
        runtime.forget_reader(name)


def _record(runtime: Runtime, savepoint: Savepoint, tables: dict[TableName, int]) -> None:
    now = runtime.clock()
    for name, version in tables.items():
        saved = savepoint.saved(name)
        assert saved is not None
        try:
            runtime.control.record_refresh(
                RefreshResult(
                    table=name,
                    at=now,
                    state=State.RESTORED,
                    strategy=None,
                    reason=f"brought back to savepoint {savepoint.name}: version {saved.version.version}",
                    seconds=0.0,
                    version=version,
                    fingerprint="" if saved.version.receipt is None else saved.version.receipt.fingerprint,
                    mode=str(runtime.graph.mode(name)) if name in runtime.graph else None,
                    cause=MANUAL,
                )
            )
        except FreshlineError as error:
            # The tables are what counts; a record that is missing must not make it seem undone.
            LOG.warning("the restore of %s is not recorded: %s", name, error)

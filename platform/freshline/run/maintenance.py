"""Keep a table quick to read and no larger than it must be, between two refreshes.

Under the lock of the table, by the same writer: small files are put together where reads gain more than it costs; then
files and commits go that neither the table's history needs, nor a savepoint, a consumer, or a table that has yet to
read them. Stopped at any point nothing is lost: what is not done is done next time.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from freshline.commit.consumers import read_consumers
from freshline.commit.delta_log import exists, read_newest, table_id
from freshline.commit.maintenance import (
    Removed,
    compact_files,
    keep_commits,
    list_checkpoints,
    newest_receipt,
    read_commits,
    read_sizes,
    remove_commits,
    remove_files,
    unneeded_files,
    write_checkpoint,
)
from freshline.commit.savepoints import read_savepoints
from freshline.compute.cancellation import Cancellation
from freshline.plan.disk import CONTINUOUS_HISTORY_SECONDS, HISTORY_SECONDS
from freshline.plan.maintenance import (
    LEAST_COMMITS,
    LEAST_REMOVED_BYTES,
    LEAST_REMOVED_FILES,
    Needs,
    commits_to_remove,
    is_worth_compacting,
    retention,
    what_to_keep,
)
from freshline.plan.request import LIVE
from freshline.plan.savepoint import SIDES
from freshline.refresh.answers import store_of
from freshline.refresh.runtime import Runtime
from freshline.run.savepoint import is_restoring
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State
from freshline.values.spec import Mode, SourceSpec, Spec

LOG = logging.getLogger(__name__)
MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class Maintained:
    """The work on one Delta table: how many files became how many, and what was removed."""

    place: str
    files_before: int
    files_after: int
    removed: Removed

    @property
    def sentence(self) -> str:
        parts = []
        if self.files_after != self.files_before:
            parts.append(f"{self.files_before} files became {self.files_after}")
        if self.removed.files:
            parts.append(f"{self.removed.files} files ({self.removed.size_bytes / 1e6:.1f} MB) that nobody needs went")
        if self.removed.commits:
            parts.append(f"{self.removed.commits} old commits went")
        return f"{self.place}: {', '.join(parts)}"


def history_of(runtime: Runtime, spec: Spec) -> timedelta:
    """How long versions and changes of a table are kept for whoever asks."""
    if spec.history_seconds is not None:
        return timedelta(seconds=spec.history_seconds)
    graph = runtime.graph
    # A freshness for the length of a sale must not cost the history of a week.
    declared = graph.freshness(spec.name) == graph.declared_freshness(spec.name)
    continuous = graph.mode(spec.name) is Mode.CONTINUOUS and declared
    return timedelta(seconds=CONTINUOUS_HISTORY_SECONDS if continuous else HISTORY_SECONDS)


def maintain_table(runtime: Runtime, name: TableName, *, eager: bool = False) -> list[Maintained]:
    """Do what pays for a table, or for answers, and what stands beside it; nothing, and no Spark, where nothing does.

    `eager` removes what nobody needs however little it is. Waits for a refresh of the table that runs.
    """
    spec = runtime.graph.spec(name)
    asked = isinstance(spec, SourceSpec) and spec.is_lookup
    if spec.is_read_in_place and not asked:
        return []
    started = time.monotonic()
    found = []
    with store_of(runtime, spec).alone() if isinstance(spec, SourceSpec) and asked else runtime.lock(name):
        if is_restoring(runtime):
            return []
        places: dict[str, Path] = {"": runtime.warehouse.location(spec)}
        places |= {side: runtime.warehouse.side(name, side) for side in SIDES}
        for side, path in places.items():
            if not exists(path):
                continue
            history = timedelta(seconds=HISTORY_SECONDS) if side else history_of(runtime, spec)
            done = _maintain(runtime, spec, side, path, history, eager)
            if done is not None:
                found.append(done)
    if found:
        _record(runtime, spec, found, time.monotonic() - started)
    return found


def needs_of(runtime: Runtime, name: TableName, side: str = "") -> Needs:
    """The versions of a table, or of a table beside it, that savepoints, consumers, and tables that read it, need."""
    points: set[int] = set()
    readers: set[int] = set()
    for savepoint in read_savepoints(runtime.warehouse):
        saved = savepoint.saved(name)
        if saved is not None:
            version = saved.sides.get(side) if side else saved.version
            points |= set() if version is None else {version.version}
    if side == "parked":
        newest = read_newest(runtime.warehouse.path(name))
        if newest is not None and newest.receipt is not None and newest.receipt.pending_lookups is not None:
            points.add(newest.receipt.pending_lookups)
    if not side:
        identity = table_id(runtime.warehouse.location(runtime.graph.spec(name)))
        readers |= {
            consumer.version
            for consumer in read_consumers(runtime.warehouse)
            if consumer.table_id == identity and not consumer.is_expired(runtime.clock())
        }
        for reader in runtime.graph.consumers(name):
            newest = read_newest(runtime.warehouse.path(reader))
            if newest is not None and newest.receipt is not None:
                readers |= _versions_read(newest.receipt, name)
    return Needs(frozenset(points), frozenset(readers))


def _versions_read(receipt: Receipt, name: TableName) -> set[int]:
    positions = [receipt.positions, *receipt.partitions.values()]
    found = (each.get(name) for each in positions)
    return {position.version for position in found if isinstance(position, TablePosition)}


def _maintain(
    runtime: Runtime, spec: Spec, side: str, path: Path, history: timedelta, eager: bool
) -> Maintained | None:
    newest = newest_receipt(path)
    if newest is None:
        # Its content is not known from its log: it is left as it is.
        return None
    now = runtime.clock()
    with ExitStack() as stack:

        @cache
        def spark() -> SparkSession:
            return stack.enter_context(runtime.working(Cancellation(), pool=MAINTENANCE, what=f"maintain {spec.name}"))

        needs = needs_of(runtime, spec.name, side)
        commits = read_commits(path)
        times = dict(commits)
        oldest = min((times[version] for version in needs.points | needs.readers if version in times), default=None)
        keep_commits(spark, path, newest[1].carried(uuid4().hex), newest[0], retention(history, oldest, now))
        before = read_sizes(path)
        after = before
        if is_worth_compacting(before):
            # Read again: the properties may have been a commit.
            carried = newest_receipt(path)
            if carried is not None and compact_files(spark, path, carried[1].carried(uuid4().hex), carried[0]):
                runtime.failpoint("maintenance-compacted")
                after = read_sizes(path)
        removed = _remove(runtime, path, needs, history, eager)
    if after.files == before.files and removed == Removed():
        return None
    place = path.name if side else str(spec.name)
    return Maintained(place, before.files, after.files, removed)


def _remove(runtime: Runtime, path: Path, needs: Needs, history: timedelta, eager: bool) -> Removed:
    newest = read_newest(path)
    assert newest is not None
    commits = read_commits(path)
    # The newest receipt must stay in the log, whatever else is old.
    receipt_at = newest.version if newest.receipt_version is None else newest.receipt_version
    kept = what_to_keep(commits, Needs(needs.points, needs.readers | {receipt_at}), history, runtime.clock())
    removed = Removed()
    cleaned = runtime.cleaned_up_to.get(path)
    # The search reads every commit that is kept: only where enough may have become unneeded since.
    if eager or cleaned is None or kept.floor - cleaned >= LEAST_REMOVED_FILES:
        files = unneeded_files(path, kept)
        size = sum((path / file).stat().st_size for file in files if (path / file).exists())
        if files and (eager or len(files) >= LEAST_REMOVED_FILES or size >= LEAST_REMOVED_BYTES):
            removed = remove_files(path, files)
            runtime.failpoint("maintenance-removed")
        runtime.cleaned_up_to[path] = kept.floor
    versions = [version for version, _ in commits]
    old = commits_to_remove(versions, list_checkpoints(path), kept.log_floor)
    if not old and sum(version < kept.log_floor for version in versions) >= 2 * LEAST_COMMITS:
        # There is none to begin from; the next time this one will do.
        write_checkpoint(path)
    return Removed(removed.files, removed.size_bytes, remove_commits(path, old).commits)


def _record(runtime: Runtime, spec: Spec, found: list[Maintained], seconds: float) -> None:
    for done in found:
        LOG.info("maintenance of %s, %.2f s", done.sentence, seconds)
    newest = read_newest(runtime.warehouse.location(spec))
    runtime.control.record_refresh(
        RefreshResult(
            table=spec.name,
            at=runtime.clock(),
            state=State.MAINTAINED,
            strategy=None,
            reason="; ".join(done.sentence for done in found),
            seconds=seconds,
            version=None if newest is None else newest.version,
            fingerprint=spec.fingerprint,
            mode=str(runtime.graph.mode(spec.name)),
            cause=LIVE,
        )
    )

"""Plays a case in a Lab, and judges it after every event.

The law: after all tables were refreshed, every table equals its query over the newest rows of its sources, computed
outside of freshline. In between, whatever happened so far:

- A table whose data timestamp is D has everything that its sources had before D: its rows are its query over states of
  its sources, one state of each, that are not older. So no table mixes two states of a source either.
- Data timestamps do not go back, but for a restore.
- After a tick no table is late, unless it or what drives it is suspended or fails.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import SparkSession

import freshline
from freshline.commit.delta_log import newest_version, read_receipts
from freshline.compute.cancellation import Cancellation
from freshline.errors import DefinitionChangedError, FreshnessError, RequestError, SavepointError
from freshline.plan.request import RefreshRequest
from freshline.report.status import TableStatus, read_status
from freshline.run import refresh_order, refresh_table
from freshline.testing import Crash as Crashed
from freshline.testing import Lab
from freshline.testing.models import linear_model
from freshline.values.names import TableName
from freshline.values.result import RefreshResult
from tests.scenarios.graphs.by_definition import Definitions, Rows
from tests.scenarios.graphs.case import (
    BEGINNING,
    EVERY,
    MODEL,
    Advance,
    Case,
    Change,
    Crash,
    Declare,
    Event,
    Override,
    Partition,
    Redeclare,
    Refresh,
    Restart,
    Restore,
    Resume,
    Save,
    Settle,
    Suspend,
    Table,
    Tick,
    of_event,
)

# The search for the states of a table's sources that give its rows takes at most so many combinations.
MOST_STATES = 64
VERIFIED = 0.02
_SOURCE = pa.schema([("id", pa.int32()), ("g", pa.string()), ("v", pa.int64())])


@dataclass(frozen=True)
class Failure:
    """The failure of a case: of which table, after which event (counted from 0), in which way (`kind`)."""

    table: str
    event: int
    kind: str
    detail: str


@dataclass
class Counts:
    """The judgements of a run, so that one that judges nothing is seen."""

    cases: int = 0
    tables: int = 0
    refreshes: int = 0
    strategies: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    laws: int = 0
    claims: int = 0
    unsearched: int = 0
    verified: int = 0
    crashes: int = 0
    mixed: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        parts = [f"{self.cases} graphs of {self.tables} tables, {self.refreshes} refreshes: {dict(self.strategies)}"]
        parts += [f"reasons {dict(self.reasons)}", f"{self.laws} tables equal at the end"]
        parts += [f"{self.claims} claims, {self.unsearched} not searched", f"{self.verified} verified"]
        return "; ".join([*parts, f"{self.crashes} crashes, {self.mixed} mixed cuts", f"errors {dict(self.errors)}"])


class Wrong(Exception):
    """The case has failed."""

    def __init__(self, table: str, kind: str, detail: str) -> None:
        super().__init__(f"{kind} of {table}: {detail}")
        self.table, self.kind, self.detail = table, kind, detail


# Makes a Lab whose clock begins at a time.
Labs = Callable[[datetime], AbstractContextManager[Lab]]
# Within it, rows of the tables of these names are computed.
Computing = Callable[[Mapping[str, Table]], AbstractContextManager[None]]


def by_spark(tables: Mapping[str, Table]) -> AbstractContextManager[None]:
    """Rows are computed as always."""
    return nullcontext()


def judge(case: Case, labs: Labs, counts: Counts, computing: Computing = by_spark) -> Failure | None:
    """The failure of a case, None where the law is true for it."""
    with labs(BEGINNING) as lab, ExitStack() as stack:
        play = Play(lab, case, counts)
        number = -1
        try:
            stack.enter_context(computing(play.tables))
            play.declare()
            for number, event in enumerate(case.events):  # noqa: B007 - the failure names it
                play.one(event)
        except Wrong as wrong:
            return Failure(wrong.table, number, wrong.kind, wrong.detail)
        finally:
            play.close()
    counts.cases += 1
    counts.tables += len(case.tables)
    return None


@dataclass
class Saved:
    """The facts known of the tables when a savepoint is made."""

    loose: set[str]
    redeclared: int


class Play:
    """One case under way."""

    def __init__(self, lab: Lab, case: Case, counts: Counts) -> None:
        self.lab = lab
        self.case = case
        self.counts = counts
        self.tables: dict[str, Table] = {table.name: table for table in case.tables}
        # The tables that are not declared yet.
        self.later = set(case.later)
        self.logs = frozenset(source.name for source in case.sources if source.log)
        # The states of each source, each with the time from when on it was there.
        self.states: dict[str, list[tuple[datetime, tuple[tuple[Any, ...], ...]]]] = {}
        self.definitions = Definitions(case.sources, case.tables)
        self.roots: dict[str, frozenset[str]] = {source.name: frozenset({source.name}) for source in case.sources}
        for table in case.tables:
            self.roots[table.name] = frozenset().union(*(self.roots[name] for name in table.reads))
        # Tables whose rows may be of several states of a source: what an input has that does not drive, or partitions
        # that somebody named; and tables of which rows of an older declaration may be there.
        self.always_loose = self._below({t.name for t in case.tables if t.non_driving or t.unjudged})
        self.loose: set[str] = set()
        self.stale: set[str] = set()
        self.redeclared: list[str] = []
        self.failed: set[str] = set()
        self.suspended: dict[str, datetime | None] = {}
        self.stamps: dict[str, datetime] = {}
        self.seen: dict[str, tuple[int, datetime]] = {}
        self.receipts: dict[str, tuple[int, datetime]] = {}
        self.saved: dict[str, Saved] = {}
        self.last: dict[str, RefreshResult] = {}
        # Comparing with what freshline says of itself is dear, and needs Spark.
        self.chance = Random(f"{case.seed} verified")
        self.verifies = isinstance(lab.runtime.spark, SparkSession)

    def close(self) -> None:
        """Let go of what is not the Lab's."""
        self.definitions.close()

    def _below(self, names: set[str]) -> set[str]:
        """These tables and all that read them, near or far."""
        found = set(names)
        for table in self.case.tables:
            if found.intersection(table.reads):
                found.add(table.name)
        return found

    # -- what happens

    def declare(self) -> None:
        """Make the sources and declare everything."""
        for source in self.case.sources:
            columns = "id INT, g STRING, v BIGINT"
            if source.log:
                columns += ", ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE"
                self.lab.files(source.name, columns, primary_key=["id"])
            else:
                path = self.lab.settings.root / "sources" / source.name
                # As lab.source does, in a hundredth of the time.
                configuration = {"delta.enableChangeDataFeed": "true"}
                deltalake.DeltaTable.create(str(path), schema=_SOURCE, configuration=configuration)
                self._write(
                    source.name,
                    f"CREATE SOURCE {source.name} ({columns}, PRIMARY KEY (id)) "
                    f"WITH ('connector' = 'delta', 'path' = '{path}')",
                )
            self.states[source.name] = [(BEGINNING, ())]
        if any(MODEL in table.query for table in self.case.tables):
            self.lab.model(MODEL, linear_model([2.0], 1.0, element="DOUBLE"))
        declared = [table for table in self.case.tables if table.name not in self.later]
        for table in declared:
            self._write(table.name, table.declaration)
        # The whole project is read for each declaration, so only the last one is made by the Lab.
        for table in declared[-1:]:
            self.lab.declare(table.declaration)

    def _write(self, name: str, declaration: str) -> None:
        (self.lab.settings.declarations / f"{name}.sql").write_text(declaration, encoding="utf-8")

    def one(self, event: Event) -> None:
        """Let one event happen, and check the tables. Raises Wrong."""
        if of_event(event) in self.later and not isinstance(event, Declare):
            return
        match event:
            case Change():
                self._change(event)
            case Advance(seconds=seconds):
                self.lab.clock.advance(seconds=seconds)
            case _:
                self._happen(event)
                self._look()

    def _happen(self, event: Event) -> None:
        """Let an event of tables happen."""
        match event:
            case Refresh(table=name, upstreams=upstreams, full=full):
                self._ask(name, upstreams=upstreams, full=full)
            case Partition(table=name, value=value):
                self._partition(name, value)
            case Crash(table=name, point=point, lose=lose):
                self._crash(name, point, lose)
            case Tick():
                self._tick()
            case Save(name=name):
                self._save(name)
            case Restore(name=name, point=point):
                self._restore(name, point)
            case Restart(lose=lose):
                self._restart(lose)
            case Declare(table=name):
                self.later.discard(name)
                self.lab.declare(self.tables[name].declaration)
            case Redeclare(table=table, full=full):
                self._redeclare(table, full)
            case Settle():
                self._settle()
            case Suspend() | Resume() | Override():
                self._decide(event)

    def _change(self, change: Change) -> None:
        name, states = change.source, self.states[change.source]
        if change.what == "land":
            self.lab.land(name, f"{change.landed}.json", change.records())
            times = [BEGINNING + (change.landed + place) * EVERY for place in range(len(change.rows))]
            came = ((*row, at.replace(tzinfo=None)) for row, at in zip(change.rows, times, strict=True))
            states.append((self.lab.clock(), (*states[-1][1], *came)))
            return
        path = str(self.lab.path(name))
        table, ids = deltalake.DeltaTable(path), ", ".join(map(str, change.ids))
        match change.what:
            case "insert":
                deltalake.write_deltalake(table, _source_rows(change.rows), mode="append")
            case "overwrite":
                deltalake.write_deltalake(table, _source_rows(change.rows), mode="overwrite")
            case "same":
                deltalake.write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")
            case "update":
                value = "NULL" if change.value is None else str(change.value)
                table.update(updates={"v": f"CAST({value} AS BIGINT)"}, predicate=f"id IN ({ids})")
            case "delete":
                table.delete(f"id IN ({ids})")
            case "optimize":
                table.optimize.compact()
        rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        states.append((self.lab.clock(), tuple((row["id"], row["g"], row["v"], None) for row in rows)))

    def _ask(self, name: str, *, upstreams: bool, full: bool) -> None:
        graph, table = self.lab.runtime.graph, TableName.parse(name)
        for each in refresh_order(graph, [table], upstreams=upstreams):
            result = self._refresh(str(each), full=full and each == table)
            if result.error is not None:
                # As `lab.refresh` does.
                return

    def _refresh(self, name: str, *, full: bool = False) -> RefreshResult:
        said: list[str] = []
        result = refresh_table(
            self.lab.runtime,
            TableName.parse(name),
            RefreshRequest(full=full),
            cancellation=Cancellation(),
            progress=said.append,
        )
        self._note(result, mixed=any("MIXED_CUT" in line for line in said))
        return result

    def _note(self, result: RefreshResult, *, mixed: bool = False) -> None:
        """Take up how a refresh ended. Raises Wrong for an error that nothing explains."""
        name = str(result.table)
        self.last[name] = result
        self.counts.refreshes += 1
        if result.error is not None:
            self._require_explained(name, result)
            self.failed.add(name)
            return
        self.failed.discard(name)
        self.counts.strategies[str(result.strategy)] += 1
        self.counts.reasons[str(result.reason).split(":")[0].split("(")[0]] += 1
        table = self.tables.get(name)
        if table is None:
            return
        self.counts.mixed += mixed
        shared = Counter(root for read in table.reads for root in self.roots[read]).most_common(1)[0][1] > 1
        if mixed or (self.loose.intersection(table.reads) and not shared):
            self.loose.add(name)
        else:
            self.loose.discard(name)

    def _require_explained(self, name: str, result: RefreshResult) -> None:
        """Raises Wrong for an error that has no cause in what happened."""
        assert result.error is not None
        code = result.error.code
        self.counts.errors[code] += 1
        table = self.tables.get(name)
        if isinstance(result.error, DefinitionChangedError) and name in self.redeclared:
            return
        if table is not None and table.violated == "FAIL" and code == "CONSTRAINT":
            return
        if code == "NO_VERSION" and table is not None and any(self._is_missing(read) for read in table.reads):
            return
        raise Wrong(name, "error", f"{code}: {result.error}")

    def _is_missing(self, name: str) -> bool:
        """Whether a table or log was never refreshed: it has no receipt."""
        path = self.lab.path(name)
        return newest_version(path) is None or (name in self.tables and next(read_receipts(path), None) is None)

    def _partition(self, name: str, value: str) -> None:
        if self._is_missing(name) or name in self.stale:
            return
        with suppress(RequestError):
            result = self.lab.refresh(name, partitions={"g": value}, upstreams=False)
            if result.error is None:
                self.counts.strategies["named"] += 1
                self.loose.add(name)
            elif not isinstance(result.error, DefinitionChangedError):
                self._require_explained(name, result)

    def _crash(self, name: str, point: str, lose: bool) -> None:
        with self.lab.crash_at(point):
            try:
                self._refresh(name)
            except Crashed:
                self.counts.crashes += 1
        self._restart(lose)

    def _restart(self, lose: bool) -> None:
        self.lab.restart(lose_control_store=lose)
        if lose:
            # The store has the decisions, and when tables were checked last.
            self.suspended.clear()
            self.stamps.clear()

    def _tick(self) -> None:
        for result in self.lab.tick():
            self._note(result)
        held = self._held()
        for status in self._statuses():
            name = str(status.table)
            if name in held or status.lag_seconds is None:
                continue
            if status.lag_seconds > status.freshness_seconds:
                raise Wrong(
                    name,
                    "late",
                    f"after a tick it lags by {status.lag_seconds:.0f} s, and {status.freshness_seconds} s is its "
                    f"freshness; {self._told(name)}",
                )

    def _held(self) -> set[str]:
        """The tables that a tick may leave late: suspended ones, those that fail, and what they drive."""
        now = self.lab.clock()
        held = {name for name, until in self.suspended.items() if until is None or until > now} | self.failed
        for table in self.case.tables:
            if held.intersection(self.tables[table.name].driving):
                held.add(table.name)
        return held

    def _decide(self, event: Suspend | Resume | Override) -> None:
        manage: dict[str, Any] = {"project": self.lab.settings, "clock": self.lab.clock}
        match event:
            case Suspend(table=name, minutes=minutes):
                freshline.suspend(name, for_=f"{minutes} minutes" if minutes else None, **manage)
                until = self.lab.clock() + timedelta(minutes=minutes) if minutes else None
                known = self.suspended.get(name, self.lab.clock())
                # A table that is suspended already stays as it is.
                if known is not None and known <= self.lab.clock():
                    self.suspended[name] = until
            case Resume(table=name):
                freshline.resume(name, **manage)
                self.suspended.pop(name, None)
            case Override(table=name, seconds=seconds, minutes=minutes):
                # A freshness that is tighter than that of a table which drives this one is refused.
                with suppress(FreshnessError):
                    freshline.set_freshness(name, f"{seconds} seconds", for_=f"{minutes} minutes", **manage)

    def _save(self, name: str) -> None:
        with suppress(SavepointError):
            self.lab.create_savepoint(name)
            self.saved[name] = Saved(set(self.loose), len(self.redeclared))

    def _restore(self, name: str, point: str) -> None:
        saved = self.saved.get(name)
        if saved is None:
            return
        if point:
            with self.lab.crash_at(point):
                try:
                    self.lab.restore_savepoint(name)
                except Crashed:
                    self.counts.crashes += 1
            self.lab.restart()
            # The next refresh finishes it before it does anything else.
            self._refresh(self.case.sources[0].name)
        else:
            self.lab.restore_savepoint(name)
        # Tables that are not in it stay, above others that went back.
        self.loose |= saved.loose | {each for each in self.tables if each not in self.stamps}
        self.stale |= self._below(set(self.redeclared[saved.redeclared :]))
        self.stamps.clear()
        self.seen.clear()
        self.receipts.clear()

    def _redeclare(self, table: Table, full: bool) -> None:
        self.lab.declare(table.declaration)
        self.tables[table.name] = table
        self.redeclared.append(table.name)
        self.definitions.define(table)
        if full:
            self.stale |= self._below({table.name})
            self._refresh(table.name, full=True)

    # -- what must be so

    def _settle(self) -> None:
        """Refresh everything once, or twice where something failed, and check the law."""
        for last in (False, True):
            failed = [name for name in map(str, self.lab.runtime.graph.order) if not self._settled(name)]
            if not failed:
                break
            if last:
                raise Wrong(failed[0], "error", f"it fails again: {self.last[failed[0]].error}")
        self.loose.clear()
        self.stale.clear()
        self._look()
        newest = {name: len(states) - 1 for name, states in self.states.items()}
        for table in self.tables.values():
            if not (table.unjudged or table.name in self.later):
                self._require(table.name, self._stored(table.name), self._defined(table.name, newest))
        self._require_no_lag()
        for table in self.tables.values() if self.verifies else ():
            if table.name in self.later:
                continue
            if table.unjudged or self.chance.random() < VERIFIED:
                found = self.lab.verify(table.name)
                self.counts.verified += 1
                if not found.equal:
                    raise Wrong(table.name, "verify", f"{found.error or found.detail or found.differences}")

    def _settled(self, name: str) -> bool:
        result = self._refresh(name)
        if isinstance(result.error, DefinitionChangedError):
            result = self._refresh(name, full=True)
        return result.error is None

    def _require(self, name: str, stored: Rows, defined: Rows) -> None:
        self.counts.laws += 1
        if stored != defined:
            detail = f"after all were refreshed it has {dict(stored - defined)} too much and lacks "
            raise Wrong(name, "law", f"{detail}{dict(defined - stored)}; {self._told(name)}")

    def _require_no_lag(self) -> None:
        for status in self._statuses():
            if status.lag_seconds is None or status.lag_seconds > 0:
                name = str(status.table)
                raise Wrong(
                    name, "lag", f"after all were refreshed it lags by {status.lag_seconds}; {self._told(name)}"
                )

    def _told(self, name: str) -> str:
        last = self.last.get(name)
        return "it was not refreshed" if last is None else f"its refresh said {last.strategy} {last.reason}"

    def _look(self) -> None:
        """Check the data timestamps, and whether each table has the rows that its own promises."""
        for name in self.tables.keys() - self.later:
            self._look_at_receipts(name)
        for status in self._statuses():
            name, stamp = str(status.table), status.data_timestamp
            if stamp is None:
                continue
            before = self.stamps.get(name, stamp)
            if stamp < before:
                gone = (before - stamp).total_seconds()
                raise Wrong(name, "back", f"its data timestamp goes back by {gone:.0f} s; {self._told(name)}")
            self.stamps[name] = stamp
            if name in self.tables and status.version is not None:
                self._look_at(name, status.version, stamp)

    def _look_at_receipts(self, name: str) -> None:
        path = self.lab.path(name)
        newest = newest_version(path)
        version, stamp = self.receipts.get(name, (-1, BEGINNING))
        if newest is None or newest <= version:
            return
        found = [(at, receipt) for at, receipt in read_receipts(path, since=version + 1) if at > version]
        for _, receipt in reversed(found):
            if receipt.restored is not None:
                stamp = BEGINNING
            if receipt.data_timestamp is not None and receipt.data_timestamp < stamp:
                gone = (stamp - receipt.data_timestamp).total_seconds()
                raise Wrong(name, "receipt", f"the time of its receipt goes back by {gone:.0f} s; {self._told(name)}")
            stamp = receipt.data_timestamp or stamp
        self.receipts[name] = (newest, stamp)

    def _look_at(self, name: str, version: int, stamp: datetime) -> None:
        if self.seen.get(name) == (version, stamp) or name in self.loose | self.stale | self.always_loose:
            return
        self.seen[name] = (version, stamp)
        choices = list(self._choices(name, stamp))
        self.counts.claims += 1
        stored = self._stored(name)
        if math.prod(len(states) for _, states in choices) > MOST_STATES:
            self.counts.unsearched += 1
            return
        names = [source for source, _ in choices]
        for states in product(*(states for _, states in choices)):
            if self._defined(name, dict(zip(names, states, strict=True))) == stored:
                return
        oldest = self._defined(name, {source: states[-1] for source, states in choices})
        raise Wrong(
            name,
            "claim",
            f"it says to have everything up to {stamp:%d %T}, and has of no state since then its rows, not of the "
            f"oldest one: {dict(stored - oldest)} too much, {dict(oldest - stored)} missing; {self._told(name)}",
        )

    def _choices(self, name: str, stamp: datetime) -> Iterator[tuple[str, Sequence[int]]]:
        """For each source of a table the numbers of the states that it may be of, the newest first."""
        for source in sorted(self.roots[name]):
            states = self.states[source]
            # A state of that very moment may have come after the check.
            oldest = max((number for number, (at, _) in enumerate(states) if at < stamp), default=0)
            yield source, range(len(states) - 1, oldest - 1, -1)

    def _defined(self, name: str, states: dict[str, int]) -> Rows:
        mine = {source: number for source, number in states.items() if source in self.roots[name]}
        return self.definitions.rows(
            name, {source: (number, self.states[source][number][1]) for source, number in mine.items()}
        )

    def _stored(self, name: str) -> Rows:
        rows = deltalake.DeltaTable(str(self.lab.path(name))).to_pyarrow_table(columns=["id", "g", "v"])
        return Counter(tuple(row.values()) for row in rows.to_pylist())

    def _statuses(self) -> list[TableStatus]:
        runtime = self.lab.runtime
        found = read_status(runtime.graph, runtime.control, runtime.warehouse, self.lab.clock(), counted=False)
        broken = next((status for status in found if status.unreadable), None)
        if broken is not None:
            raise Wrong(str(broken.table), "error", f"its status cannot be read: {broken.error}")
        return found


def _source_rows(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_SOURCE.names, row, strict=True)) for row in rows], schema=_SOURCE)

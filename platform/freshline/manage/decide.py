"""Decide on the intentions as they are now, and write the decision down with its record, or decide again.

Two that decide at once both see the same generation; one writes, and the other, whose decision was made on what is no
longer so, decides again. Stopped at any point, either the change with its record is there or nothing is.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from freshline.commit.control_store import ControlStore
from freshline.declare.graph import Graph
from freshline.declare.project_settings import find_project, read_settings
from freshline.errors import RequestError, StorageError
from freshline.freshness.alter import FreshnessDecision, SuspensionDecision, describe_ends, with_warnings
from freshline.freshness.intentions import Intentions, apply_overrides
from freshline.plan.request import LIVE, MANUAL
from freshline.plan.valid_project import open_graph
from freshline.values.freshness import Freshness, parse_seconds
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from freshline.values.settings import Settings

Clock = Callable[[], datetime]
Project = Settings | Path | str | None
Duration = str | timedelta

# Each try is a read and a write of milliseconds; who loses this often waits for something else than a neighbour.
_TRIES = 50


@dataclass(frozen=True)
class IntentionWriter:
    """Records decisions, with the declared graph, the control store and a clock."""

    graph: Graph
    control: ControlStore
    clock: Clock

    def freshness(self, decide: Callable[[Intentions, datetime], FreshnessDecision]) -> FreshnessDecision:
        """Write down what `decide` says of the intentions as they are now."""
        for _ in range(_TRIES):
            now, intentions = self.clock(), self.control.intentions.read()
            decision = decide(intentions, now)
            if not decision.overrides and not decision.removed:
                return decision
            if self.control.decide(
                self._altered(decision, intentions, now),
                expected=intentions.generation,
                set_overrides=decision.overrides,
                remove_overrides=decision.removed,
            ):
                graph = apply_overrides(self.graph, self.control.intentions.read().at(now))
                return with_warnings(decision, graph, self.control.seconds())
        raise self._overtaken()

    def suspension(
        self, decide: Callable[[Intentions, datetime], SuspensionDecision], *, cause: str = MANUAL
    ) -> SuspensionDecision:
        """As `freshness`, for a suspension or its end."""
        for _ in range(_TRIES):
            now, intentions = self.clock(), self.control.intentions.read()
            decision = decide(intentions, now)
            if decision.suspension is None and not decision.resume:
                return decision
            state = State.RESUMED if decision.resume else State.SUSPENDED
            if self.control.decide(
                [self.record(decision.table, state, decision.sentence, intentions, now, cause)],
                expected=intentions.generation,
                set_suspensions=[] if decision.suspension is None else [decision.suspension],
                remove_suspensions=[decision.table] if decision.resume else [],
            ):
                if decision.resume:
                    # Whoever resumes it begins the count of failures anew.
                    self.control.intentions.forget_failures(decision.table)
                return decision
        raise self._overtaken()

    def end_what_is_over(self) -> Sequence[str]:
        """Remove the overrides and suspensions that have ended by themselves; a sentence of each that was removed."""
        for _ in range(_TRIES):
            now, intentions = self.clock(), self.control.intentions.read()
            ended = intentions.ended(now)
            if not ended.overrides and not ended.suspensions:
                return ()
            records = [
                self.record(name, state, sentence, intentions, now, LIVE)
                for name, state, sentence in describe_ends(self.graph, ended)
            ]
            if self.control.decide(
                records,
                expected=intentions.generation,
                remove_overrides=list(ended.overrides),
                remove_suspensions=list(ended.suspensions),
            ):
                return [f"{record.table}: {record.reason}" for record in records]
        raise self._overtaken()

    def record(
        self, table: TableName, state: State, reason: str, intentions: Intentions, now: datetime, cause: str = MANUAL
    ) -> RefreshResult:
        """The record of a decision, which `freshline refreshes` shows."""
        graph = apply_overrides(self.graph, intentions.at(now))
        declared = table in graph
        return RefreshResult(
            table=table,
            at=now,
            state=state,
            strategy=None,
            reason=reason,
            seconds=0.0,
            version=None,
            fingerprint=graph.spec(table).fingerprint if declared else "",
            mode=str(graph.mode(table)) if declared else None,
            cause=cause,
        )

    def _altered(self, decision: FreshnessDecision, intentions: Intentions, now: datetime) -> Sequence[RefreshResult]:
        if not decision.changes:
            return [self.record(decision.table, State.ALTERED, decision.sentence, intentions, now)]
        return [
            replace(self.record(change.table, State.ALTERED, str(change), intentions, now), mode=str(change.mode_after))
            for change in decision.changes
        ]

    def _overtaken(self) -> StorageError:
        return StorageError("others change the intentions all the time. Try again.")


@contextmanager
def open_intention_writer(project: Project, clock: Clock, table: str) -> Iterator[IntentionWriter]:
    """The desk of a project: settings, a folder in it, or None for the current folder.

    Mistakes in other declarations than that of the `table` are logged. Raises SettingsError, DeclarationErrors, and
    what opening the control store raises.
    """
    settings = project if isinstance(project, Settings) else None
    if settings is None:
        folder = None if project is None else Path(str(project))
        settings = read_settings(find_project(folder), os.environ)
    graph = open_graph(settings, [table])
    with closing(ControlStore.open(settings.control_store, settings.umask)) as control:
        yield IntentionWriter(graph, control, clock)


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


def read_freshness(value: object) -> Freshness:
    """A freshness as a person or a program states it. Raises RequestError."""
    try:
        return Freshness.parse(value)
    except ValueError as error:
        raise RequestError(str(error)) from error


def read_end(duration: Duration | None, now: datetime) -> datetime | None:
    """When something that begins now and lasts so long ends; None for no end. Raises RequestError."""
    if duration is None:
        return None
    try:
        return now + timedelta(seconds=parse_seconds(duration, "duration"))
    except ValueError as error:
        raise RequestError(str(error)) from error
    except OverflowError as error:
        raise RequestError(f"{duration} is too long") from error


def who(by: str | None) -> str:
    """Who decides: as stated, or the user of this process."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process in a container may have no name
        return "unknown"

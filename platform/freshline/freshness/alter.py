"""Decide a change of a table's promise, or the reason against it (rules 4, 11 and 13 of docs/rules.md).

Everything here comes from the arguments and is returned as a value: who writes it down does so only if the intentions
are still those that it was decided on, and decides again otherwise.

A freshness can be promised when everything that drives the table delivers it, at every moment until the override
ends: other overrides may end before it does. Consumers must not be left with a promise that breaks by it either.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from freshline.declare.graph import Graph, is_brought_in
from freshline.errors import FreshnessError, RequestError
from freshline.freshness.feasible import judge_promises
from freshline.freshness.intentions import FreshnessOverride, Intentions, Suspension, apply_overrides, blocked_tables
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import State
from freshline.values.rules import nearest
from freshline.values.spec import Mode, SourceSpec


@dataclass(frozen=True)
class FreshnessChange:
    """One table's freshness and mode before and after; `until` is when an override ends by itself."""

    table: TableName
    before: Freshness
    after: Freshness
    mode_before: Mode
    mode_after: Mode
    by: str
    until: datetime | None
    reset: bool = False

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {time_text(self.until)}"
        until = " (as declared)" if self.reset else until
        was = "" if self.before == self.after else f", was {self.before}"
        mode = (
            f"stays {self.mode_after}"
            if self.mode_before is self.mode_after
            else f"{self.mode_after}, was {self.mode_before}"
        )
        return f"freshness {self.after}{until}{was}; {mode}; by {self.by}"

    def as_json(self) -> dict[str, object]:
        """The object that the commands print of each table whose freshness was changed."""
        return {
            "table": str(self.table),
            "freshness_seconds": self.after.seconds,
            "freshness_seconds_before": self.before.seconds,
            "mode": str(self.mode_after),
            "mode_before": str(self.mode_before),
            "by": self.by,
            "until": None if self.until is None else self.until.isoformat(),
        }


@dataclass(frozen=True)
class FreshnessDecision:
    """The overrides to write and to remove, and the sentence for whoever asked; none of both means: leave it.

    `warnings` are sentences about what was promised and cannot be kept by what refreshes were measured to take.
    """

    table: TableName
    overrides: tuple[FreshnessOverride, ...]
    removed: tuple[TableName, ...]
    changes: tuple[FreshnessChange, ...]
    sentence: str
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The object that `freshline alter --json` prints."""
        return {
            "table": str(self.table),
            "changed": bool(self.overrides or self.removed),
            "changes": [change.as_json() for change in self.changes],
            "sentence": self.sentence,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class SuspensionDecision:
    """The suspension to write or to remove (`resume`), and the sentence for whoever asked.

    Where neither is there the table is left as it is; `known` is the suspension that it has already. `freed` are the
    tables below that are refreshed again.
    """

    table: TableName
    suspension: Suspension | None
    resume: bool
    sentence: str
    freed: tuple[TableName, ...] = ()
    known: Suspension | None = None

    def as_json(self) -> dict[str, object]:
        """The object that `freshline suspend --json` and `freshline resume --json` print."""
        suspension = self.suspension or self.known
        return {
            "table": str(self.table),
            "changed": self.suspension is not None or self.resume,
            "suspended": None if suspension is None else suspension.as_json(),
            "freed": [str(name) for name in self.freed],
            "sentence": self.sentence,
        }


def decide_freshness(
    graph: Graph,
    intentions: Intentions,
    table: str,
    freshness: Freshness,
    *,
    until: datetime | None,
    cascade: bool,
    by: str,
    now: datetime,
) -> FreshnessDecision:
    """The overrides that give the table this freshness from now on, with `cascade` those of what drives it too.

    `graph` is the declared one. Raises RequestError for a table that is not there or is a source, and for an end that
    has passed; FreshnessError where the freshness cannot be promised.
    """
    name = find_table(graph, table)
    _require_to_come(until, now, name)
    effective = intentions.at(now)
    before = effective.overrides.get(name)
    moments = _moments(intentions, until, now)
    chosen: dict[TableName, Freshness | None] = {name: freshness}
    slower = _slower(graph, intentions, name, chosen, moments)
    if before is not None and (before.freshness, before.until) == (freshness, until) and not (slower and cascade):
        return _left(name, f"the freshness of {name} is {freshness} already, by {before.by}")
    if slower and cascade:
        sources = {read: slower[read] for read in slower if isinstance(graph.spec(read), SourceSpec)}
        if sources:
            raise _too_tight(graph, name, freshness, sources, cascade)
        chosen |= dict.fromkeys(slower, freshness)
        slower = _slower(graph, intentions, name, chosen, moments)
    if slower:
        raise _too_tight(graph, name, freshness, slower, cascade)
    _require_consumers_kept(graph, intentions, chosen, moments, name)
    if until is not None:
        # When it ends what it replaces does not come back: the declared freshness does.
        after = [end for end in _moments(intentions, None, now) if end > until]
        for other in chosen:
            _require_consumers_kept(graph, intentions, dict.fromkeys(chosen), [until, *after], other, ended=True)
    overrides = tuple(
        FreshnessOverride(graph.spec(other).name, freshness, by, now, until) for other in graph.order if other in chosen
    )
    changes = _changes(graph, effective, chosen, by, until)
    return FreshnessDecision(name, overrides, (), changes, "\n".join(f"{c.table}: {c}" for c in changes))


def decide_reset(
    graph: Graph, intentions: Intentions, table: str, *, cascade: bool, by: str, now: datetime
) -> FreshnessDecision:
    """Back to the declared freshness, with `cascade` also of what drives the table and nobody else needs so fresh.

    A table that is not declared any more has its override removed all the same. Raises as `decide_freshness`.
    """
    name = _find_noted(graph, intentions.overrides, table)
    effective = intentions.at(now)
    if not _is_table(graph, name):
        what = "is a source" if name in graph else "is not declared"
        return FreshnessDecision(name, (), (name,), (), f"the override of {name}, which {what}, is removed")
    above = [other for other in graph.driving_upstream(name) if other in effective.overrides] if cascade else []
    chosen: dict[TableName, Freshness | None] = dict.fromkeys(
        [other for other in (name, *above) if other in effective.overrides]
    )
    if not chosen:
        return _left(name, f"the freshness of {name} is the declared one, {graph.freshness(name)}, already")
    moments = _moments(intentions, None, now)
    # An override that another consumer needs stays, and so does one that this override needs, from consumers upwards.
    for other in reversed(above):
        if _losers(graph, intentions, chosen, moments, other):
            del chosen[other]
    if not chosen:
        return _left(name, f"other tables need what drives {name} as fresh as it is; nothing is changed")
    slower = _slower(graph, intentions, name, chosen, moments)
    if slower:
        raise _too_tight(graph, name, graph.freshness(name), slower, cascade)
    _require_consumers_kept(graph, intentions, chosen, moments, name)
    changes = _changes(graph, effective, chosen, by, None)
    return FreshnessDecision(
        name,
        (),
        tuple(graph.spec(other).name for other in chosen),
        changes,
        "\n".join(f"{c.table}: {c}" for c in changes),
    )


def decide_suspension(
    graph: Graph,
    intentions: Intentions,
    table: str,
    *,
    until: datetime | None,
    reason: str | None,
    by: str,
    now: datetime,
    automatic: bool = False,
) -> SuspensionDecision:
    """Leave the table as it is from its next refresh on. One that is suspended already stays so, as it is.

    Raises RequestError for a table that is not there or is a source, and for an end that has passed.
    """
    name = find_table(graph, table)
    _require_to_come(until, now, name)
    before = intentions.at(now).suspensions.get(name)
    if before is not None:
        return SuspensionDecision(
            name,
            None,
            False,
            f"already suspended: {name}, {suspension_text(before)}. To state another end or reason, resume it first.",
            known=before,
        )
    _require_text(reason, name)
    suspension = Suspension(name, by, now, until, reason, automatic)
    below = [str(other) for other, cause in blocked_tables(graph, {name}).items() if cause == name]
    blocked = f" Blocked by it: {', '.join(below)}." if below else ""
    return SuspensionDecision(name, suspension, False, f"suspended: {name}, {suspension_text(suspension)}.{blocked}")


def decide_resume(graph: Graph, intentions: Intentions, table: str, *, by: str, now: datetime) -> SuspensionDecision:
    """Refresh the table again; one that is not suspended stays so. Raises RequestError for a table that is not there.

    A table that is not declared any more has its suspension removed all the same.
    """
    name = _find_noted(graph, intentions.suspensions, table)
    suspended = intentions.at(now).suspensions
    if name not in suspended:
        cause = blocked_tables(graph, suspended).get(name)
        why = "" if cause is None else f" It waits for {cause}, which is: resume that one."
        return SuspensionDecision(name, None, False, f"not suspended: {name}.{why}")
    left = [other for other in suspended if other != name]
    still = blocked_tables(graph, left)
    freed = tuple(other for other in blocked_tables(graph, suspended) if other not in still)
    below = f" Refreshed again below it: {', '.join(str(other) for other in freed)}." if freed else ""
    waits = f" It stays blocked by {still[name]}, which is suspended too." if name in still else ""
    return SuspensionDecision(name, None, True, f"resumed: {name}, by {by}.{below}{waits}", freed)


def describe_ends(graph: Graph, ended: Intentions) -> list[tuple[TableName, State, str]]:
    """Table, state and sentence of the record of each override and suspension that has ended by itself."""
    told = []
    for name, override in ended.overrides.items():
        back = f"; the declared {graph.declared_freshness(name)} is in force again" if name in graph else ""
        ended_at = "" if override.until is None else f" at {time_text(override.until)}"
        told.append(
            (
                name,
                State.ALTERED,
                f"freshness {override.freshness}, set by {override.by}, ended by itself{ended_at}{back}",
            )
        )
    for name, suspension in ended.suspensions.items():
        told.append((name, State.RESUMED, f"the suspension {suspension_text(suspension)} ended by itself"))
    return told


def with_warnings(decision: FreshnessDecision, graph: Graph, seconds: Mapping[TableName, float]) -> FreshnessDecision:
    """The decision with what it promises and cannot be kept; `graph` is as it is after it."""
    promises = judge_promises(graph, seconds)
    told = tuple(
        f"{change.table}: freshness {change.after} cannot be kept: {promises[change.table].reason}"
        for change in decision.changes
        if promises[change.table].feasible is False
    )
    return replace(decision, warnings=told)


def find_table(graph: Graph, text: str) -> TableName:
    """The declared table of a name, as its declaration spells it. Raises RequestError, with the nearest name."""
    name = _parse(text)
    if name not in graph:
        tables = [str(spec.name) for spec in graph.tables]
        raise RequestError(f"there is no table {name}.{nearest(str(name), tables)}")
    spec = graph.spec(name)
    if isinstance(spec, SourceSpec):
        raise RequestError(
            f"{spec.name} is a source: it is as fresh as its consumers need, or as its declaration says "
            f"({spec.written_at}). Alter or suspend the tables that read it. {spec.connection.left_behind}".rstrip()
        )
    return spec.name


def suspension_text(suspension: Suspension) -> str:
    """Who suspended a table, since when, until when and why, as a part of a sentence."""
    until = "" if suspension.until is None else f" until {time_text(suspension.until)}"
    reason = "" if suspension.reason is None else f": {suspension.reason}"
    return f"by {suspension.by} since {time_text(suspension.at)}{until}{reason}".rstrip(".")


def override_text(override: FreshnessOverride, declared: Freshness) -> str:
    """The freshness in force beside the declared one, as a part of a sentence."""
    until = "" if override.until is None else f" until {time_text(override.until)}"
    return f"freshness {override.freshness} in place of the declared {declared}, by {override.by}{until}"


def time_text(time: datetime) -> str:
    """A time as it stands in sentences, to the second, with its offset."""
    return time.isoformat(sep=" ", timespec="seconds")


# -- parts of a decision


def _parse(text: str) -> TableName:
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise RequestError(str(error)) from error


def _find_noted(graph: Graph, noted: Collection[TableName], text: str) -> TableName:
    name = _parse(text)
    # Also of what is a source by now: a decision about it can be taken back.
    return name if name in noted and not _is_table(graph, name) else find_table(graph, text)


def _is_table(graph: Graph, name: TableName) -> bool:
    return name in graph and not isinstance(graph.spec(name), SourceSpec)


def _require_to_come(until: datetime | None, now: datetime, name: TableName) -> None:
    if until is not None and until <= now:
        raise RequestError(
            f"{time_text(until)} has passed: it is {time_text(now)}. State an end that is to come, or none.",
            where=str(name),
        )


def _require_text(text: str | None, name: TableName) -> None:
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise RequestError("the reason has bytes that are no UTF-8. Write it anew.", where=str(name)) from error


def _left(name: TableName, sentence: str) -> FreshnessDecision:
    return FreshnessDecision(name, (), (), (), f"{sentence}. Nothing is changed.")


def _moments(intentions: Intentions, until: datetime | None, now: datetime) -> list[datetime]:
    """Now, and whenever an override ends before `until`."""
    ends = {one.until for one in intentions.at(now).overrides.values() if one.until is not None}
    return [now, *sorted(end for end in ends if until is None or end < until)]


def _graph_at(
    graph: Graph, intentions: Intentions, chosen: Mapping[TableName, Freshness | None], moment: datetime
) -> Graph:
    """The graph in force at a moment with what was chosen; None is the declared freshness."""
    overrides = {name: one.freshness for name, one in intentions.at(moment).overrides.items() if name not in chosen}
    return graph.with_freshness(overrides | {name: one for name, one in chosen.items() if one is not None})


def _slower(
    graph: Graph,
    intentions: Intentions,
    name: TableName,
    chosen: Mapping[TableName, Freshness | None],
    moments: Sequence[datetime],
) -> dict[TableName, Freshness]:
    """The tables that drive the table and deliver later than it is to promise, with the latest that each delivers."""
    found: dict[TableName, Freshness] = {}
    for moment in moments:
        then = _graph_at(graph, intentions, chosen, moment)
        for other in graph.driving_upstream(name):
            delivered = then.freshness(other)
            spec = graph.specs[other]
            # A table that inherits is as fresh as the one that it inherits from, which is checked by itself.
            stated = other in then.overrides or isinstance(spec.freshness, Freshness)
            if stated and is_brought_in(spec) and delivered > then.freshness(name):
                found[other] = max(delivered, found.get(other, delivered))
    return found


def _losers(
    graph: Graph,
    intentions: Intentions,
    chosen: Mapping[TableName, Freshness | None],
    moments: Sequence[datetime],
    name: TableName,
) -> dict[TableName, Freshness]:
    """The tables below whose promise the table keeps now and would not with what was chosen."""
    found: dict[TableName, Freshness] = {}
    for moment in moments:
        then, now = _graph_at(graph, intentions, chosen, moment), _graph_at(graph, intentions, {}, moment)
        for other in graph.driven(name):
            if then.freshness(other) < then.freshness(name) and now.freshness(other) >= now.freshness(name):
                found[other] = then.freshness(other)
    return found


def _require_consumers_kept(
    graph: Graph,
    intentions: Intentions,
    chosen: Mapping[TableName, Freshness | None],
    moments: Sequence[datetime],
    name: TableName,
    *,
    ended: bool = False,
) -> None:
    losers = _losers(graph, intentions, chosen, moments, name)
    if losers:
        shown = ", ".join(f"{other} promises {freshness}" for other, freshness in losers.items())
        after = _graph_at(graph, intentions, chosen, moments[0]).freshness(name)
        when = f", in force again from {time_text(moments[0])} on," if ended else ""
        way = "leave the end away" if ended else f"{name} a shorter one"
        raise FreshnessError(
            f"freshness {after}{when} is too long for what it drives: {shown}. Give these a longer one first, "
            f"or {way}.",
            table=str(name),
            inputs={str(other): freshness.seconds for other, freshness in losers.items()},
        )


def _too_tight(
    graph: Graph, name: TableName, freshness: Freshness, slower: Mapping[TableName, Freshness], cascade: bool
) -> FreshnessError:
    shown = []
    sources = []
    for other, delivered in slower.items():
        spec = graph.spec(other)
        if isinstance(spec, SourceSpec):
            sources.append(spec)
            shown.append(f"the source {other} delivers {delivered}")
        else:
            shown.append(f"{other} delivers {delivered}")
    ways = []
    if sources:
        files = " and ".join(f"{spec.name} in {spec.written_at}" for spec in sources)
        ways.append(f"remove FRESHNESS from the declaration of {files}: it is as fresh as its consumers then")
    if len(sources) < len(slower) and not cascade:
        ways.append("take the tables along with CASCADE")
    ways.append("choose a longer freshness")
    return FreshnessError(
        f"freshness {freshness} is tighter than what drives it delivers: {', '.join(shown)}. "
        f"{_sentence_case('; or '.join(ways))}.",
        table=str(name),
        inputs={str(other): delivered.seconds for other, delivered in slower.items()},
    )


def _sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def _changes(
    graph: Graph,
    effective: Intentions,
    chosen: Mapping[TableName, Freshness | None],
    by: str,
    until: datetime | None,
) -> tuple[FreshnessChange, ...]:
    """The changes of the tables whose override is written or removed, and of those that inherit from them."""
    before = apply_overrides(graph, effective)
    overrides = {name: one.freshness for name, one in effective.overrides.items() if name not in chosen}
    after = graph.with_freshness(overrides | {name: one for name, one in chosen.items() if one is not None})
    return tuple(
        FreshnessChange(
            name,
            before.freshness(name),
            after.freshness(name),
            before.mode(name),
            after.mode(name),
            by,
            until,
            reset=chosen.get(name, True) is None,
        )
        for name in graph.order
        if name in chosen
        or (not isinstance(graph.spec(name), SourceSpec) and before.freshness(name) != after.freshness(name))
    )

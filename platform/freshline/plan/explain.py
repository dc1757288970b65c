"""The steps that a refresh of a table would take, before anything has changed.

The same choice that a refresh makes is asked for changes that were made up: rows added to one input, any change of one
input, any change of all. Nothing is read but the declaration and the columns of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from freshline.declare.graph import Graph
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.choose import Candidates, find_candidates
from freshline.plan.event_time import EventTimeFacts, event_time_facts, is_over_event_time
from freshline.plan.models import model_key, models_text
from freshline.plan.read_interval import ReadInterval, read_intervals
from freshline.plan.request import RefreshRequest
from freshline.plan.step import Situation
from freshline.query.clock import ClockSpan
from freshline.query.query import read_query
from freshline.query.rules.crossing import find_crossings
from freshline.values.closing import Closing
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.query import PythonQuery, SqlQuery
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec, TableSpec
from freshline.values.watermark import TableWatermark

SOME_TIME = ClockSpan(datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, 0, 1, tzinfo=UTC))
BEFORE, AFTER = TablePosition("made up", 1, 1), TablePosition("made up", 2, 2)

# The types of the columns of inputs, in lower case, as Spark SQL spells them.
InputTypes = Mapping[TableName, Mapping[str, str]]
NO_TYPES: InputTypes = MappingProxyType({})


def declared_types(spec: TableSpec, graph: Graph) -> dict[TableName, dict[str, str]]:
    """The types of the columns of those inputs that are declared with them, the columns in lower case."""
    sources = [known for name in spec.reads if isinstance(known := graph.spec(name), SourceSpec)]
    return {source.name: {column.name.lower(): column.type for column in source.columns} for source in sources}


@dataclass(frozen=True)
class Case:
    """The step of a refresh after one kind of change.

    `strategy` is the preferred one, with its `reason`; `others` are right too. `refused` says why the rest is not.
    `keys` are the columns by which affected rows are found, empty where the strategy keys is not right. `reads` are the
    inputs of which only a span of time around these keys is read.
    `uses_stored_values` says that stored aggregates and the changed rows may be enough (ALGEBRAIC).
    """

    change: str
    strategy: str
    reason: Reason
    others: tuple[str, ...]
    refused: Mapping[str, Reason]
    keys: tuple[str, ...]
    reads: tuple[ReadInterval, ...] = ()
    uses_stored_values: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "change": self.change,
            "strategy": self.strategy,
            "reason": str(self.reason),
            "others": list(self.others),
            "refused": {strategy: str(reason) for strategy, reason in self.refused.items()},
            "keys": list(self.keys),
            "reads": [read.as_json() for read in self.reads],
            "uses_stored_values": self.uses_stored_values,
        }


@dataclass(frozen=True)
class Explanation:
    """The ways in which a table is kept up, case by case.

    `event_time` is None where nothing follows from times of events. `models` are those that its query asks, with their
    versions. `clock` is the time for which its rows passed the temporal filters of its query, None where there is none
    yet, and `crossings` say where rows enter or leave as it moves.
    """

    table: TableName
    cases: tuple[Case, ...]
    event_time: EventTimeFacts | None = None
    models: str = ""
    clock: datetime | None = None
    crossings: tuple[str, ...] = ()

    @property
    def strategies(self) -> frozenset[str]:
        """The strategies that are preferred in some case."""
        return frozenset(case.strategy for case in self.cases)

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline explain --json` prints."""
        facts: dict[str, Any] = {} if self.event_time is None else {"event_time": self.event_time.as_json()}
        if self.models:
            facts["models"] = self.models
        if self.clock is not None:
            facts["clock"] = self.clock.isoformat()
        if self.crossings:
            facts["crossings"] = list(self.crossings)
        return {"table": str(self.table), "cases": [case.as_json() for case in self.cases], **facts}

    def __str__(self) -> str:
        lines = [str(self.table), *([f"  models: {self.models}"] if self.models else [])]
        for case in self.cases:
            others = f" (or {', '.join(case.others)})" if case.others else ""
            lines.append(f"  {case.change}: {case.strategy}{others}")
            lines.append(f"    {case.reason}")
            lines += [f"    reads: {read} of affected keys" for read in case.reads]
            lines += [f"    not {strategy}: {reason}" for strategy, reason in case.refused.items()]
        lines += [] if self.event_time is None else [str(self.event_time)]
        lines += [f"  a row enters or leaves when {crossing}" for crossing in self.crossings]
        if self.clock is not None:
            lines.append(f"  the clock of its rows: {self.clock:%Y-%m-%d %H:%M:%S} UTC")
        return "\n".join(lines)


def explain_table(
    spec: TableSpec,
    columns: Mapping[TableName, tuple[str, ...]],
    logs: frozenset[TableName],
    types: InputTypes = NO_TYPES,
    *,
    clock: datetime | None = None,
) -> Explanation:
    """Every kind of change that the table may see, with the step that a refresh would take.

    `columns` are those of every input, `types` their types where they are known; `logs` are the inputs that are log
    tables, which only ever gain rows. `clock` is that of the newest receipt.
    """
    cases = []
    for name in spec.driving:
        cases.append(_case(spec, columns, f"rows added to {name}", {name: ChangeKind.APPEND}, types))
        if name not in logs:
            cases.append(_case(spec, columns, f"any change of {name}", {name: ChangeKind.MUTATE}, types))
    if spec.has_timers:
        cases.append(
            _case(spec, columns, f"the watermark of {' and '.join(map(str, spec.driving))} passes timers", {}, types)
        )
    if len(spec.driving) > 1:
        every = {name: ChangeKind.APPEND if name in logs else ChangeKind.MUTATE for name in spec.driving}
        cases.append(_case(spec, columns, "any change of all inputs", every, types))
    if spec.lookups:
        lookups = dict.fromkeys(sorted(spec.lookups, key=str), ChangeKind.MUTATE)
        cases.append(_case(spec, columns, f"any change of {' and '.join(map(str, lookups))}", lookups, types))
    if spec.is_temporal:
        cases.append(_case(spec, columns, "time passes", {}, types))
    crossings = find_crossings(read_query(spec.query)) if spec.is_temporal and isinstance(spec.query, SqlQuery) else ()
    shown = tuple(dict.fromkeys(map(str, crossings or ())))
    return Explanation(spec.name, tuple(cases), models=models_text(spec), clock=clock, crossings=shown)


def with_event_time(
    explanation: Explanation, graph: Graph, watermark_of: Callable[[TableName], TableWatermark | None]
) -> Explanation:
    """The same with the facts of a table over event time; `watermark_of` reads where the watermark of one stands."""
    spec = graph.table(explanation.table)
    if not explanation.cases or not is_over_event_time(spec, graph):
        return explanation
    added = explanation.cases[0]
    facts = event_time_facts(
        spec, graph, watermark_of(spec.name), added.strategy, uses_stored_values=added.uses_stored_values
    )
    return replace(explanation, event_time=facts)


def find_case(
    spec: TableSpec,
    columns: Mapping[TableName, tuple[str, ...]],
    kinds: Mapping[TableName, ChangeKind],
    types: InputTypes = NO_TYPES,
) -> Candidates:
    """The steps that are right after these changes; the other inputs stand still."""
    promise = spec.query.promise if isinstance(spec.query, PythonQuery) else ""
    models = {model_key(model): (model.sha256,) for model in spec.query.models}
    receipt = Receipt(spec.name, spec.fingerprint, 1, 1, "", "", "", None, {}, 0, 0, "", promise=promise, models=models)
    changes = {
        name: Changes(name, BEFORE, AFTER, kinds.get(name, ChangeKind.NOTHING), change_feed=True) for name in spec.reads
    }
    # Of FINAL windows the watermark decides, and in the end it passes them.
    closing = Closing(None, 0) if spec.follows_watermark else None
    clock = SOME_TIME if spec.is_temporal else None
    situation = Situation(
        spec, receipt, False, changes, RefreshRequest(), columns, types=types, closing=closing, clock=clock
    )
    return find_candidates(situation)


def _case(
    spec: TableSpec,
    columns: Mapping[TableName, tuple[str, ...]],
    change: str,
    kinds: Mapping[TableName, ChangeKind],
    types: InputTypes,
) -> Case:
    found = find_case(spec, columns, kinds, types)
    first, *rest = found.steps
    keys = next((step.keys for step in found.steps if step.keys), ())
    inputs = {name.view.lower(): name for name in spec.reads}
    reads = next((read_intervals(step.reaches, inputs) for step in found.steps if step.reaches), ())
    others = tuple(step.strategy for step in rest)
    return Case(change, first.strategy, first.reason, others, found.refused, keys, reads, first.uses_stored_values)

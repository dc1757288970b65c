"""The checks on the node of a table in Dagster, beside `freshness`.

| check | of | says |
|---|---|---|
| `constraint_<name>` | each constraint | whether rows of the last hour, or of the newest refresh, violate it |
| `unique_key` | tables with a PRIMARY KEY | whether a key occurs once |
| `quarantine_rate` | what may have a quarantine table | whether too much of what arrives is rejected |
| `alive` | what the engine keeps by itself | whether the engine runs and keeps it |
| `verify` | tables | whether a recompute equals what is stored |

All but `verify` are judged from logs and the control store, without an engine. A person who runs `unique_key` or
`verify` asks the engine to read the rows themselves; a run that materializes the table does not, for it would compute
everything twice. None blocks: the readers of a table are refreshed all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    MetadataValue,
)

from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import read_receipts
from freshline.commit.warehouse import Warehouse
from freshline.dagster.freshness import CHECK, DESCRIPTION, Verdict, verdict
from freshline.dagster.inspection import ProjectInspection, inspect, opened
from freshline.dagster.keys import AssetKeys
from freshline.dagster.markdown import code_list
from freshline.dagster.materialize import PROCESS, Connect, closable, failure, process_tag
from freshline.dagster.scheduler import ENGINE, sensor_states
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError, SourceError
from freshline.freshness.record import Heartbeat
from freshline.report.alerts.history import WINDOW, Arrivals, RecordHistory, add_records
from freshline.report.status import TableStatus, is_quarantining
from freshline.values.names import TableName, quoted
from freshline.values.receipt import Violation, added_up
from freshline.values.settings import Settings
from freshline.values.spec import Constraint, Mode, OnViolation, SourceSpec, Spec, TableSpec

UNIQUE_KEY = "unique_key"
QUARANTINE_RATE = "quarantine_rate"
ALIVE = "alive"
VERIFY = "verify"
# The tag of a run that verifies some partitions only: a list of them, each of pairs of column and value.
VERIFIED_PARTITIONS = "freshline/verify-partitions"
CONSTRAINT = "constraint_"
# Receipts of a fast table are many; so many of the newest are read.
MOST_RECEIPTS = 200
MOST_RECORDS = 500
SILENT_AFTER = timedelta(seconds=30)
SAMPLE_KEYS = 5


@dataclass(frozen=True)
class Facts:
    """The facts from which the checks of one table are judged."""

    spec: Spec
    status: TableStatus
    violations: Mapping[str, Violation]
    arrivals: Arrivals
    engine: Heartbeat | None
    left_alone: str | None
    now: datetime


def check_names(graph: Graph, spec: Spec) -> dict[str, str]:
    """The checks of a table or log table with what they say."""
    found = {CHECK: DESCRIPTION}
    for constraint in spec.constraints:
        found[CONSTRAINT + constraint.name] = constraint.clause
    if isinstance(spec, TableSpec) and spec.primary_key and spec.sink is None:
        found[UNIQUE_KEY] = f"No two rows have the same {', '.join(spec.primary_key)}"
    if is_quarantining(spec):
        found[QUARANTINE_RATE] = "No more of what arrives is rejected than the setting quarantine-share allows"
    if graph.mode(spec.name) is not Mode.BATCH:
        found[ALIVE] = "The engine runs and keeps it"
    if isinstance(spec, TableSpec) and (spec.sink is None or spec.sink.can_be_read):
        found[VERIFY] = (
            "A recompute of the query equals what is stored"
            if spec.sink is None
            else "The rows of the sink equal those of its table"
        )
    return found


def check_specs(graph: Graph, keys: AssetKeys) -> list[AssetCheckSpec]:
    """All checks of the tables and log tables that are assets."""
    return [
        AssetCheckSpec(check, asset=keys[name], description=description, blocking=False)
        for name in keys.only(graph.kept)
        for check, description in check_names(graph, graph.spec(name)).items()
    ]


# -- from what is known


def read_facts(
    settings: Settings, control: ControlStore, inspection: ProjectInspection, name: TableName, engine: Heartbeat | None
) -> Facts:
    """Read what the checks of one table need. Reads its log where it has constraints, and its newest records."""
    spec, status = inspection.graph.spec(name), inspection.statuses[name]
    path = Warehouse(settings.warehouse).path(name)
    violations = recent_violations(path, inspection.now) if spec.constraints else {}
    arrivals = Arrivals()
    if is_quarantining(spec):
        records = control.refreshes(name, MOST_RECORDS, checks=False)
        arrivals = add_records({}, reversed(records)).get(name, RecordHistory()).arrivals(inspection.now)
    return Facts(spec, status, violations, arrivals, engine, inspection.reasons.get(name), inspection.now)


def recent_violations(path: Any, now: datetime) -> dict[str, Violation]:
    """The violations of the newest refresh and of all within the last hour."""
    found: dict[str, Violation] = {}
    try:
        for number, (_, receipt) in enumerate(read_receipts(path)):
            stamp = receipt.data_timestamp
            if number and (number >= MOST_RECEIPTS or stamp is None or stamp < now - WINDOW):
                break
            found = added_up(found, receipt.violations)
    except SourceError:
        # A log that cannot be read is reported by the table's status.
        return found
    return found


def quick_verdicts(facts: Facts, settings: Settings) -> Iterator[Verdict]:
    """The verdicts that need no engine, but for freshness."""
    spec, status = facts.spec, facts.status
    for constraint in spec.constraints:
        yield constraint_verdict(spec.name, constraint, facts.violations.get(constraint.name, Violation(0)))
    if isinstance(spec, TableSpec) and spec.primary_key and status.version is not None:
        yield unique_key_verdict(spec, status)
    if is_quarantining(spec):
        yield quarantine_verdict(spec.name, facts.arrivals, settings)
    if not _is_batch(status):
        yield alive_verdict(facts)


def constraint_verdict(table: TableName, constraint: Constraint, violation: Violation) -> Verdict:
    """WARN and what is left out are warnings; FAIL, whose refresh did not commit, shows in the table's state."""
    metadata: dict[str, Any] = {"violations": violation.rows, "on_violation": str(constraint.on_violation)}
    if violation.samples:
        metadata["samples"] = MetadataValue.md(code_list(violation.samples))
    became = {
        OnViolation.WARN: "written",
        OnViolation.DROP_ROW: "left out",
        OnViolation.QUARANTINE: f"kept in {table}__quarantine",
        OnViolation.FAIL: "refused",
    }[constraint.on_violation]
    said = f"{violation.rows} rows violate it and are {became}" if violation.rows else "no row violates it"
    return Verdict(
        table,
        not violation.rows,
        AssetCheckSeverity.WARN,
        f"EXPECT ({constraint.condition}): {said}",
        metadata,
        CONSTRAINT + constraint.name,
    )


def unique_key_verdict(spec: TableSpec, status: TableStatus) -> Verdict:
    """The verdict of the newest refresh: each judges the rows that it computes."""
    code = (status.error or {}).get("code")
    said = f"PRIMARY KEY ({', '.join(spec.primary_key)})"
    if code == "DUPLICATE_KEY":
        text = str((status.error or {}).get("message"))
        # The refresh ended at the first one: nobody has counted them.
        return Verdict(spec.name, False, AssetCheckSeverity.ERROR, text, {}, UNIQUE_KEY)
    return Verdict(spec.name, True, AssetCheckSeverity.ERROR, f"{said} is unique", {"duplicates": 0}, UNIQUE_KEY)


def quarantine_verdict(table: TableName, arrivals: Arrivals, settings: Settings) -> Verdict:
    """By the settings that alerts go by."""
    share = arrivals.rejected / arrivals.rows if arrivals.rows else 0.0
    allowed = settings.alerts.quarantine_share
    passed = arrivals.rows < settings.alerts.quarantine_rows or share <= allowed
    return Verdict(
        table,
        passed,
        AssetCheckSeverity.WARN,
        f"{arrivals.rejected} of {arrivals.rows} rows were rejected within an hour; {allowed:.3g} of them is allowed",
        {"rejected": arrivals.rejected, "rows_in": arrivals.rows, "rejected_share": round(share, 6)},
        QUARANTINE_RATE,
    )


def alive_verdict(facts: Facts) -> Verdict:
    """Whether the engine was heard of, and the table's own refreshes go on."""
    status = facts.status
    # A heartbeat may come between the moment of the check and the reading of it.
    silent = None if facts.engine is None else max(0.0, (facts.now - facts.engine.at).total_seconds())
    metadata: dict[str, Any] = {"mode": status.mode}
    if silent is not None:
        metadata["engine_silent_seconds"] = round(silent, 3)
    cause = None
    if facts.left_alone is not None:
        cause = facts.left_alone
    elif silent is None:
        cause = "no engine keeps the tables"
    elif silent > SILENT_AFTER.total_seconds():
        cause = f"the engine was not heard of for {silent:.0f} s"
    elif status.error is not None:
        cause = f"{status.error.get('code', 'FAILED')}: {status.error.get('message', 'its refresh failed')}"
    return Verdict(
        status.table,
        cause is None,
        AssetCheckSeverity.ERROR,
        cause or f"the engine keeps it ({status.mode})",
        metadata,
        ALIVE,
    )


def _is_batch(status: TableStatus) -> bool:
    return status.mode == "batch"


# -- by a run


def evaluate_checks(
    settings: Settings,
    graph: Graph,
    keys: AssetKeys,
    connect: Connect,
    context: AssetCheckExecutionContext,
    now: datetime,
) -> Iterator[AssetCheckResult]:
    """The checks that a run asks for, those without an engine first. Raises Failure where the engine has no answer."""
    context.instance.add_run_tags(context.run.run_id, {PROCESS: process_tag(context.run.run_id)})
    asked: dict[TableName, set[str]] = {}
    for key in context.selected_asset_check_keys:
        name = keys.name_of(key.asset_key)
        assert name is not None, "only checks of these tables can be selected"
        asked.setdefault(name, set()).add(key.name)
    with opened(settings) as control:
        inspection = inspect(settings, graph, keys, control, sensor_states(context.instance), now)
        engine = control.heartbeats.read().get(ENGINE)
        for name, checks in asked.items():
            for each in _known(settings, control, inspection, name, engine):
                if each.check in checks and _is_judged(each.check, context, keys.check(name, each.check), engine):
                    yield each.result(keys[name])
    for name, checks in asked.items():
        spec = graph.spec(name)
        assert isinstance(spec, (TableSpec, SourceSpec))
        for check, look_at_rows in ((UNIQUE_KEY, find_duplicates), (VERIFY, verify)):
            if check in checks and isinstance(spec, TableSpec) and _is_asked(context, keys.check(name, check)):
                try:
                    yield look_at_rows(spec, connect, context).result(keys[name])
                except FreshlineError as error:
                    raise failure(error.as_json()) from error


def _known(
    settings: Settings, control: ControlStore, inspection: ProjectInspection, name: TableName, engine: Heartbeat | None
) -> Iterator[Verdict]:
    yield verdict(inspection.statuses[name], inspection.statuses, inspection.graph.driving(name), inspection.reasons)
    yield from quick_verdicts(read_facts(settings, control, inspection, name, engine), settings)


def _is_judged(check: str, context: AssetCheckExecutionContext, key: AssetCheckKey, engine: Heartbeat | None) -> bool:
    """Whether a run judges the check from the known facts of the table.

    The engine searches for keys where a person asks. An engine that nobody started keeps no table, which is no fault of
    a run that refreshes it: only a person who asks gets that answer.
    """
    if check == UNIQUE_KEY:
        return not _is_asked(context, key)
    return check != ALIVE or engine is not None or _is_asked(context, key)


def _is_asked(context: AssetCheckExecutionContext, key: AssetCheckKey) -> bool:
    """Whether somebody asked for just this check, rather than for a run of the table and all that goes with it."""
    run = context.run
    chosen = run.asset_check_selection is not None and key in run.asset_check_selection
    return chosen and key.asset_key not in (run.asset_selection or ())


def find_duplicates(spec: TableSpec, connect: Connect, context: AssetCheckExecutionContext) -> Verdict:
    """Find keys that occur twice in the newest version, with samples."""
    keys = ", ".join(map(quoted, spec.primary_key))
    statement = f"SELECT {keys}, count(*) AS rows FROM {spec.name} GROUP BY {keys} HAVING count(*) > 1"
    event = _answer(connect, context, "rows", "sql", statement=statement, limit=SAMPLE_KEYS)
    rows: Sequence[Any] = event["rows"]
    metadata: dict[str, Any] = {"duplicates": len(rows)}
    if rows:
        metadata["samples"] = MetadataValue.md(code_list(map(str, rows)))
    said = (
        f"{len(rows)}{' or more' if event['truncated'] else ''} keys occur twice" if rows else "every key occurs once"
    )
    return Verdict(spec.name, not rows, AssetCheckSeverity.ERROR, said, metadata, UNIQUE_KEY)


def verify(spec: TableSpec, connect: Connect, context: AssetCheckExecutionContext) -> Verdict:
    """Compute the table, or the partitions that the run names, again and compare; what cannot be is a warning."""
    partitions = json.loads(context.run.tags.get(VERIFIED_PARTITIONS, "[]"))
    answer = _answer(connect, context, "verification", "verify", tables=[str(spec.name)], partitions=partitions)
    found = answer["verification"]
    metadata: dict[str, Any] = {key: found[key] for key in ("missing", "extra", "unverified", "seconds")}
    if found["partitions"]:
        metadata["partitions"] = ", ".join(found["partitions"])
    if found["version"] is not None:
        metadata["version"] = found["version"]
    if found["samples"]:
        metadata["samples"] = MetadataValue.md(code_list(found["samples"]))
    if found["error"]:
        return Verdict(spec.name, False, AssetCheckSeverity.ERROR, str(found["error"]), metadata, VERIFY)
    differs = found["missing"] or found["extra"]
    return Verdict(
        spec.name,
        bool(found["equal"]),
        AssetCheckSeverity.ERROR if differs else AssetCheckSeverity.WARN,
        verified_sentence(found),
        metadata,
        VERIFY,
    )


def verified_sentence(found: Mapping[str, Any]) -> str:
    """A verification as one sentence; `found` is the JSON of the engine's answer.

    >>> verified_sentence({"equal": True, "partitions": []})
    'the table equals a recompute of its query'
    >>> verified_sentence({"equal": True, "partitions": ["d=2026-01-01", "d=2026-01-02"]})
    '2 partitions equal a recompute of the query'
    """
    count = len(found["partitions"])
    if found["equal"]:
        if not count:
            return "the table equals a recompute of its query"
        return f"{count} partition{' equals' if count == 1 else 's equal'} a recompute of the query"
    said = (
        f"beside a recompute of the query {found['missing']} rows are missing, {found['extra']} are too many, and "
        f"{found['unverified']} could not be verified"
    )
    return f"{said}: {found['detail']}" if found["detail"] else said


def _answer(
    connect: Connect, context: AssetCheckExecutionContext, wanted: str, kind: str, **arguments: Any
) -> Mapping[str, Any]:
    """The event of a request that has the answer. Raises Failure where there is none."""
    answer: Mapping[str, Any] | None = None
    done: Mapping[str, Any] = {}
    # Closed here and not by the garbage collector: an interruption must cancel the request before the step ends.
    with closing(closable(connect(context.log.info).run(kind, **arguments))) as events:
        for event in events:
            if event["type"] == "progress":
                context.log.info(str(event["message"]))
            elif event["type"] == wanted:
                answer = event
            elif event["type"] == "done":
                done = event
    if answer is None:
        raise failure(done.get("error") or {"code": "ENGINE", "message": "the engine ended the request unanswered"})
    return answer

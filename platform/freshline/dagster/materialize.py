"""Materialize: ask the engine for one refresh, and report its outcome to Dagster.

The run reads and writes no table itself. It asks the engine, copies its progress into the run's log and waits: a
run that is killed leaves no writer behind, and a run that is cancelled takes its request back. There are no retries
here: the engine knows which failures another try can help, and Dagster's retries would swallow a cancellation.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DataVersion,
    Failure,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableColumnLineage,
    TableRecord,
    TableSchema,
)

from freshline.commit import delta_log
from freshline.commit.event_time import open_windows, watermark_of
from freshline.commit.warehouse import Warehouse
from freshline.dagster.asset import step_name
from freshline.dagster.columns import column_schema
from freshline.dagster.data_versions import InputVersion, input_tags, read_events
from freshline.dagster.markdown import plain_list
from freshline.dagster.partitions import (
    BACKFILL_RUN,
    AskedPartitions,
    asked_partitions,
    backfill_of,
    newest_event,
    partition_event,
    unknown,
    unreported,
    values_of,
)
from freshline.engine.client import run_resumed
from freshline.engine.process import ProcessId
from freshline.errors import EngineError, FreshlineError
from freshline.freshness.history import cut_text
from freshline.freshness.lag import lag_seconds
from freshline.plan.models import versions_text
from freshline.plan.request import BACKFILL, LIVE, MANUAL
from freshline.report.samples import Mask, read_sample
from freshline.report.table_text import printable
from freshline.values.names import TableName
from freshline.values.result import Strategy, TableKind, kind_of
from freshline.values.spec import Mode, Spec, TableSpec

_STEP_EVENTS = (
    DagsterEventType.STEP_START,
    DagsterEventType.STEP_SUCCESS,
    DagsterEventType.STEP_FAILURE,
    DagsterEventType.STEP_SKIPPED,
)
_STEP_SECONDS = 0.5
SECONDS = re.compile(r" \(\d+ s\)\Z")
# The tag of a run that a sensor requested: its refreshes count as scheduled ones.
SCHEDULED = "freshline/scheduled"
# The tag that names the process of a run, so that one which was killed is found out.
PROCESS = "freshline/process"


class EngineRequests(Protocol):
    """The needed part of an engine's client: the events of one request.

    Closing the iterator early cancels the request.
    """

    def run(self, kind: str, **arguments: Any) -> Iterator[dict[str, Any]]: ...


Connect = Callable[[Callable[[str], None]], EngineRequests]

MOST_SAMPLE_TEXT = 80


@dataclass(frozen=True)
class Materialization:
    """The table or log table that Materialize on one asset asks for, where it lies, and where its columns come from.

    `behind` are partitioned tables that a partitioned one reads, with their keys. Dagster cannot map partitions in a
    run without any, so they are no inputs of the step: without partitions the engine is asked for them first, with
    partitions the step waits for theirs. `place` is the table's in the order of the graph, `specs` are the graph's
    declarations, by which its watermark is found. `sample_rows` of its rows are shown, without the columns of `mask`.
    `descriptions` are those of its columns, by their names in lower case. `inputs` are all that it reads, as Dagster
    has them, and `partitioned` says whether Dagster has partitions of it.
    """

    spec: Spec
    key: AssetKey
    warehouse: Warehouse
    lineage: TableColumnLineage | None = None
    behind: Mapping[TableName, AssetKey] = field(default_factory=dict)
    place: int = 0
    specs: Mapping[TableName, Spec] = field(default_factory=dict)
    sample_rows: int = 0
    mask: Mask = field(default_factory=Mask)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[InputVersion, ...] = ()
    partitioned: bool = False

    @property
    def name(self) -> TableName:
        return self.spec.name


def materialize(asked: Materialization, connect: Connect, context: AssetExecutionContext) -> MaterializeResult[Any]:
    """Refresh one table and describe the result.

    Progress goes to the log of the run. Raises Failure, with the engine's sentence, unless the refresh succeeded;
    an interruption passes through after the request was cancelled.
    """
    wanted = asked_partitions(context, asked.spec)
    if wanted is not None:
        return materialize_partitions(asked, connect, context, wanted)
    outcome: Mapping[str, Any] | None = None
    done: Mapping[str, Any] = {}
    in_time = isinstance(asked.spec, TableSpec) and asked.spec.time_partitions is not None
    seen = newest_event(context.instance, asked.key) if in_time else 0
    try:
        context.instance.add_run_tags(context.run.run_id, {PROCESS: process_tag(context.run.run_id)})
        cause = LIVE if SCHEDULED in context.run.tags else MANUAL
        # For this table alone, because Dagster has a step of its own for each selected upstream and orders them.
        tables = [str(name) for name in (*asked.behind, asked.name)]
        progress = _each_step_once(context.log.info)
        # A refresh that the end of an engine took away is asked for again: if it was committed, nothing is new.
        request = run_resumed(connect, "refresh", progress, tables=tables, upstreams=False, cause=cause)
        # Closed here and not by the garbage collector: an interruption must cancel the request before the step ends.
        with closing(closable(request)) as events:
            for event in events:
                match event["type"]:
                    case "progress":
                        context.log.info(_sentence({"where": event.get("table"), "message": event["message"]}))
                    case "outcome":
                        if event["outcome"]["table"] == str(asked.name):
                            outcome = event["outcome"]
                    case "done":
                        done = event
                    case other:
                        raise EngineError(f"the engine sent an event of type {other!r}, which is not known here")
    except FreshlineError as error:
        # The sentence says all: a stack trace of the client below it would hide it.
        raise failure(error.as_json()) from None

    if outcome is None:
        raise failure(done.get("error") or {"code": "ENGINE", "message": _unanswered(asked.name, done.get("state"))})
    if outcome["state"] != "SUCCEEDED":
        raise failure(outcome.get("error") or {"code": outcome["state"], "message": _summary(outcome)}, outcome)
    context.log.info(_summary(outcome))
    for problem in outcome.get("problems", ()):
        context.log.warning(_sentence(problem))
    newly = unreported(context.instance, asked.key, outcome.get("partitions", ()), seen)
    for key in newly or unknown(context.instance, asked.key, values_of(asked.spec)):
        # The partitions that the engine brought in by itself; the sensor reports more at its next ticks.
        context.log_event(partition_event(asked.key, key, {}, outcome["version"]))
    return result(asked, outcome, datetime.now(UTC), used_inputs(asked, context.instance, outcome))


def materialize_partitions(
    asked: Materialization, connect: Connect, context: AssetExecutionContext, wanted: AskedPartitions
) -> MaterializeResult[Any]:
    """Replace the partitions that a run asks for, each in a commit of its own, and report each when it is done.

    Raises Failure with the first reason when one or more of them failed, after the others were done.
    """
    wait_for_steps(tuple(asked.behind), context)
    backfill, resume = backfill_of(context.run, context.instance)
    outcomes: list[Mapping[str, Any]] = []
    ended: Mapping[str, Any] = {"failed": [], "left": []}
    done: Mapping[str, Any] = {}
    arguments = {
        "tables": [str(asked.name)],
        **wanted.arguments,
        # Dagster selects: also what is done may be wanted again.
        "again": True,
        "id": backfill,
        "resume": resume,
        "cause": MANUAL if wanted.single else BACKFILL,
    }
    try:
        context.instance.add_run_tags(
            context.run.run_id, {PROCESS: process_tag(context.run.run_id), BACKFILL_RUN: backfill}
        )
        progress = _each_step_once(context.log.info)
        request = run_resumed(connect, "backfill", progress, **arguments)
        with closing(closable(request)) as events:
            for event in events:
                match event["type"]:
                    case "progress":
                        context.log.info(_sentence({"where": event.get("table"), "message": event["message"]}))
                    case "plan":
                        _report_plan(context, event["chunks"])
                    case "outcome":
                        outcomes.append(event["outcome"])
                        _report_partition(asked, context, event["outcome"], single=wanted.single)
                    case "backfill":
                        ended = event
                    case "done":
                        done = event
                    case other:
                        raise EngineError(f"the engine sent an event of type {other!r}, which is not known here")
    except FreshlineError as error:
        # The sentence says all: a stack trace of the client below it would hide it.
        raise failure(error.as_json()) from None
    if ended["failed"]:
        shown = ", ".join(str(each["partition"]) for each in ended["failed"])
        first_error = ended["failed"][0]["error"]
        message = f"{len(ended['failed'])} partitions failed ({shown}). The first: {first_error['message']}"
        raise failure({**first_error, "message": message})
    if done.get("state") != "SUCCEEDED":
        raise failure(done.get("error") or {"code": "ENGINE", "message": _unanswered(asked.name, done.get("state"))})
    return result(asked, _summed(asked, outcomes), datetime.now(UTC))


def wait_for_steps(names: Sequence[TableName], context: AssetExecutionContext) -> None:
    """Wait until the steps of these tables, as far as they are in this run, have ended. Raises Failure if one failed.

    They begin before this one (`dagster/priority`), so one after the other they have ended by now, and beside each
    other none is kept waiting by this one.
    """
    planned = context.run.step_keys_to_execute
    steps = {step_name(name): name for name in names}
    chosen = set(planned) if planned is not None else {node.name for node in context.job_def.nodes}
    left = steps.keys() & chosen
    told = False
    begun: set[str] = set()
    failed: set[str] = set()
    while left:
        records = context.instance.get_records_for_run(context.run.run_id, of_type=set(_STEP_EVENTS)).records
        for record in records:
            event = record.event_log_entry.dagster_event
            step = None if event is None else event.step_key
            if event is None or step is None:
                continue
            if event.event_type is DagsterEventType.STEP_START:
                begun.add(step)
            elif event.event_type is DagsterEventType.STEP_SUCCESS:
                left.discard(step)
            else:
                failed.add(step)
        # Of a step whose inputs failed Dagster reports nothing: it never begins.
        hopeless = sorted(step for step in left if step in failed or (failed and step not in begun))
        if hopeless:
            above = steps[hopeless[0]]
            raise Failure(f"{above}, which it reads, was not done. The steps of this run that failed tell why.")
        if left:
            if not told:
                context.log.info(f"waiting for {', '.join(str(steps[step]) for step in sorted(left))}")
            told = True
            time.sleep(_STEP_SECONDS)


def _report_plan(context: AssetExecutionContext, chunks: Sequence[Mapping[str, Any]]) -> None:
    skipped = [str(chunk["partition"]) for chunk in chunks if chunk["action"] == "skip"]
    context.log.info(f"{len(chunks) - len(skipped)} partitions are replaced")
    if skipped:
        context.log.info(f"{len(skipped)} stay, an earlier run of this backfill has committed them")


def _report_partition(
    asked: Materialization, context: AssetExecutionContext, outcome: Mapping[str, Any], *, single: bool
) -> None:
    """Dagster hears of a partition now, so that the bar is true whatever becomes of the run."""
    context.log.info(_summary(outcome))
    if outcome["state"] != "SUCCEEDED":
        return
    if outcome.get("partition") is None:
        # The first refresh of a table with declared values brings in all of them, those that nobody asked for too.
        for key in unknown(context.instance, asked.key, values_of(asked.spec)):
            context.log_event(partition_event(asked.key, key, {}, outcome["version"]))
        return
    metadata = {**outcome_metadata(outcome, datetime.now(UTC)), "dagster/partition_row_count": outcome["rows_out"]}
    if not single:
        event = partition_event(asked.key, outcome["partition"], metadata, outcome["version"])
        context.log_event(event)
    context.add_asset_metadata({"dagster/partition_row_count": outcome["rows_out"]}, partition_key=outcome["partition"])


def _summed(asked: Materialization, outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One outcome of a run: the sum of its partitions."""
    path = asked.warehouse.location(asked.spec)
    if not outcomes:
        return {
            "version": delta_log.newest_version(path),
            "reason": "every partition is done",
            "strategy": Strategy.NOOP.value,
        }
    last = outcomes[-1]
    return {
        **{key: last.get(key) for key in ("version", "mode", "strategy", "reason")},
        "rows_in": sum(outcome["rows_in"] for outcome in outcomes),
        "rows_out": sum(outcome["rows_out"] for outcome in outcomes),
        "rejected": sum(outcome["rejected"] for outcome in outcomes),
        "seconds": sum(outcome["seconds"] for outcome in outcomes),
        "refreshes": len(outcomes),
    }


def own_process() -> str:
    """This process as `host pid start-time`."""
    process = ProcessId.own()
    return f"{platform.node()} {process.pid} {process.started}"


def process_tag(run_id: str) -> str:
    """This process, as the one of a run."""
    return f"{own_process()} {run_id}"


def process_of(run: DagsterRun) -> str | None:
    """The process that a run has named as its own; None before it has.

    A run that is executed again begins with the tags of the one before, the process of that one among them.
    """
    tag = run.tags.get(PROCESS)
    return tag if tag is not None and tag.endswith(f" {run.run_id}") else None


def process_ended(tag: str) -> bool:
    """Whether the process that a tag names has ended; False where that cannot be known from here."""
    try:
        host, pid, started = tag.split(" ")[:3]
        return host == platform.node() and not ProcessId(int(pid), float(started)).alive
    except ValueError:
        return False


def used_inputs(asked: Materialization, instance: DagsterInstance, outcome: Mapping[str, Any]) -> dict[str, str]:
    """The tags that name the versions of its inputs that a table has used, by its newest receipt.

    None for a table with partitions, and where the log cannot be read: Dagster names those that were reported last.
    """
    if asked.partitioned or outcome["version"] is None:
        return {}
    try:
        newest = delta_log.read_newest(asked.warehouse.location(asked.spec))
        if newest is None or newest.receipt is None or newest.foreign:
            return {}
        told = read_events(instance, {each.key for each in asked.inputs})
        stamp = outcome.get("data_timestamp")
        # The sensor reports the tables again that the engine keeps, and no others.
        return input_tags(
            asked.inputs,
            newest.receipt,
            told,
            None if stamp is None else datetime.fromisoformat(stamp),
            or_later=outcome.get("mode") != Mode.BATCH.value,
        )
    except FreshlineError:
        # Cleaned up or replaced since: the next event names them.
        return {}


def result(
    asked: Materialization, outcome: Mapping[str, Any], now: datetime, tags: Mapping[str, str] | None = None
) -> MaterializeResult[Any]:
    """The materialization event: the rows a person reads and the numbers that Dagster plots."""
    version = outcome["version"]
    metadata: dict[str, Any] = outcome_metadata(outcome, now)
    if version is not None:
        metadata |= version_metadata(asked, version)
        metadata |= sample_metadata(asked)
    return MaterializeResult(
        asset_key=asked.key,
        metadata=metadata,
        data_version=None if version is None else DataVersion(str(version)),
        tags=tags,
    )


def version_metadata(asked: Materialization, version: int) -> dict[str, Any]:
    """The metadata of one version by its log: how many rows it has, of which columns, and where these come from.

    Columns and their lineage stand in every event, because the UI shows those of the newest one.
    """
    path = asked.warehouse.location(asked.spec)
    metadata: dict[str, Any] = {}
    # The rows of a sink are in its system.
    rows = None if kind_of(asked.spec) is TableKind.SINK else delta_log.count_rows(path, version)
    if rows is not None:
        metadata["dagster/row_count"] = rows
    schema = column_schema(asked.spec, path, version=version, descriptions=asked.descriptions)
    if schema is not None:
        metadata["dagster/column_schema"] = schema
    if asked.lineage is not None:
        metadata["dagster/column_lineage"] = asked.lineage
    watermark = watermark_of(asked.specs, asked.warehouse, asked.name) if asked.name in asked.specs else None
    if watermark is not None and watermark.at is not None:
        metadata["watermark"] = MetadataValue.timestamp(watermark.at)
        # A number beside the time, because Dagster plots numbers only.
        metadata["watermark_lag_seconds"] = MetadataValue.float(
            round((datetime.now(UTC) - watermark.at).total_seconds(), 3)
        )
    if watermark is not None:
        metadata["watermark_held_by"] = ", ".join(watermark.held_by)
    if isinstance(asked.spec, TableSpec):
        windows = open_windows(asked.specs, asked.warehouse, asked.spec)
        if windows is not None:
            metadata["open_windows"] = MetadataValue.int(windows)
    return metadata


def sample_metadata(asked: Materialization) -> dict[str, Any]:
    """Some rows of the table as Dagster's table of texts; nothing where none are to be shown or there are none.

    An event stays in Dagster's storage for ever, so only those of runs have rows, and their texts are short.
    """
    try:
        sample = read_sample(asked.warehouse.location(asked.spec), asked.sample_rows, asked.mask)
    except FreshlineError as error:
        return {"sample_problem": str(error)}
    if sample is None or not sample.rows:
        return {}
    columns = [TableColumn(name) for name in sample.columns]
    # Dagster has no NULL in a table.
    texts = [[cut_text(printable(text or ""), MOST_SAMPLE_TEXT) for text in row] for row in sample.rows]
    records = [TableRecord(dict(zip(sample.columns, row, strict=True))) for row in texts]
    return {"sample": MetadataValue.table(records, TableSchema(columns))}


# The values of an outcome that are shown as they are.
OUTCOME = (
    *("version", "strategy", "reason", "mode", "refreshes"),
    *("rows_in", "rows_out", "rejected", "late_rows", "ahead_rows", "late_by_seconds"),
)


def outcome_metadata(outcome: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """An outcome under stable names; a value that there is not has no row."""
    metadata: dict[str, Any] = {key: outcome[key] for key in OUTCOME if outcome.get(key) is not None}
    for key in ("seconds", "cpu_seconds"):
        if outcome.get(key) is not None:
            metadata[key] = round(float(outcome[key]), 3)
    if outcome.get("violations"):
        metadata["violations"] = sum(int(each["rows"]) for each in outcome["violations"].values())
    if outcome.get("data_timestamp"):
        stamp = datetime.fromisoformat(outcome["data_timestamp"])
        lag = lag_seconds(stamp, now)
        metadata["data_timestamp"] = MetadataValue.timestamp(stamp)
        metadata["lag_seconds"] = None if lag is None else round(lag, 3)
    if outcome.get("clock"):
        metadata["clock"] = MetadataValue.timestamp(datetime.fromisoformat(outcome["clock"]))
    if outcome.get("models"):
        metadata["models"] = versions_text(outcome["models"])
    if outcome.get("problems"):
        metadata["problems"] = MetadataValue.md(plain_list(map(_sentence, outcome["problems"])))
    return metadata


def failure(error: Mapping[str, Any], outcome: Mapping[str, Any] | None = None) -> Failure:
    """The failure of a step: the engine's sentence, its code, and whether another try can help."""
    retry_helps = bool(error.get("retry_helps", False))
    return Failure(
        description=_sentence(error),
        metadata={
            "code": str(error.get("code", "FRESHLINE")),
            "retry_helps": retry_helps,
            **({"where": str(error["where"])} if error.get("where") else {}),
            **(outcome_metadata(outcome, datetime.now(UTC)) if outcome else {}),
        },
        allow_retries=retry_helps,
    )


def closable(events: Iterator[dict[str, Any]]) -> Generator[dict[str, Any], None, None]:
    """The events, in an iterator that can be closed."""
    yield from events


def _each_step_once(report: Callable[[str], None]) -> Callable[[str], None]:
    """While an engine starts, its client repeats the step with the seconds so far; a run keeps every line for ever."""
    told = ""

    def progress(message: str) -> None:
        nonlocal told
        step = SECONDS.sub("", message)
        if step != told:
            report(step)
        told = step

    return progress


def _sentence(error: Mapping[str, Any]) -> str:
    return f"{error['where']}: {error['message']}" if error.get("where") else str(error["message"])


def _summary(outcome: Mapping[str, Any]) -> str:
    """One line about an outcome, as the command line prints it."""
    what = outcome["strategy"] if outcome["state"] == "SUCCEEDED" else str(outcome["state"]).lower()
    numbers = f"{outcome['rows_in']} rows in, {outcome['rows_out']} out, {outcome['seconds']:.1f} s"
    version = "" if outcome["version"] is None else f", version {outcome['version']}"
    return f"{outcome['table']}: {what} ({outcome['reason']}); {numbers}{version}"


def _unanswered(name: TableName, state: str | None) -> str:
    if state == "CANCELLED":
        return f"the refresh of {name} was cancelled; nothing of it was committed"
    return f"the engine ended the request without an outcome for {name}. See the engine's log, then materialize again."

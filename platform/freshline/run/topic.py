"""One refresh of the log table of a Kafka source: the records that the topic has and the log has not.

A look at the brokers fixes the end. What is there is read in portions, each one fenced commit whose receipt has the
next offsets; so a stop at any point loses and repeats nothing, and no checkpoint decides what was read. The order
within a batch is that of files: rejected records to the quarantine table, then the log.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import count_all, newest_version, read_newest
from freshline.commit.event_time import passed_by, watermark_after
from freshline.declare.names import TableName
from freshline.declare.spec import SourceSpec
from freshline.errors import BrokerError, FencedError, TopicReplacedError
from freshline.plan.position import TopicPosition
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt, Violation, added_up
from freshline.plan.request import LIVE, RefreshRequest
from freshline.plan.result import Kind, RefreshResult, State
from freshline.plan.topic import (
    FIRST_PORTION,
    TopicLook,
    TopicRange,
    advanced,
    allowed_by_rate,
    find_range,
    next_portion_size,
    rest_of,
    take_portion,
)
from freshline.refresh.cancellation import Cancellation
from freshline.refresh.execution import suited_to
from freshline.refresh.ingest import ERROR, accepted, parse_records
from freshline.refresh.plain_json import STOPPED
from freshline.refresh.topic import Brokers, read_range, resolve_brokers
from freshline.run.log import (
    SMALL_BATCH_ROWS,
    Batch,
    Portion,
    commit_checked,
    commit_log,
    lacks_columns,
    newest_batch,
    next_seq,
    provide_log,
    watermark_in_receipt,
)
from freshline.run.runtime import PortionMemory, Progress, Runtime

# What a loop asks for ends after this long, so that what was read is handed on; the rest comes with the next look.
LIVE_SECONDS = 20.0
# A broker that has just started knows the ends of its topics only after a while.
SETTLE_SECONDS = 10.0
_LOOK_SECONDS = 0.2
# What Kafka's client, and Spark's reader of its records, say of what they were not given.
_OF_BROKERS = re.compile(
    r"org\.apache\.kafka\.(?:common|clients)\S*(?:Exception|Error)|KAFKA_DATA_LOSS|data may have been lost|Cannot fetch"
)


@dataclass(frozen=True)
class _Step:
    """One portion: the position that it begins at, the one that it leads to, and the data timestamp that it brings.

    `clean` says that its records are expected to be good, `watermark` is the one before it.
    """

    portion: TopicRange
    before: TopicPosition | None
    after: TopicPosition
    stamp: datetime | None
    clean: bool
    watermark: datetime | None


def refresh_topic(
    runtime: Runtime,
    spec: SourceSpec,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> RefreshResult:
    """Bring in every record that the topic has now; part of them where `rate-limit` or the time of a loop ends."""
    started = time.monotonic()
    path = runtime.warehouse.path(spec.name)
    mode = str(runtime.graph.mode(spec.name))
    receipt = newest_batch(spec, path)
    position = topic_position(receipt, spec.name)
    brokers = brokers_of(runtime, spec)
    stamp = runtime.clock()
    version = newest_version(path)
    found = None
    if position is None or version is None or lacks_columns(path, spec) or not _is_all_read(runtime, brokers, position):
        found = _find(runtime, spec, brokers, position, cancellation)
    rows_out = rejected = left_out = late = ahead = 0
    violations: dict[str, Violation] = {}
    committed = False
    left = 0
    if found is not None:
        look, whole = found
        with runtime.working(cancellation, pool=request.cause, what=f"ingest {spec.name}") as spark:
            provide_log(runtime, spark, spec, path)
            version = newest_version(path)
            watermark = watermark_after(spec, path, read_newest(path))
            left = whole.offsets
            while left or position is None:
                memory = runtime.portions.get(spec.name, PortionMemory(FIRST_PORTION))
                most = _most(spec, memory, runtime.clock())
                if most == 0 and position is not None:
                    break
                portion = take_portion(whole, most)
                rest = rest_of(whole, portion)
                left = rest.offsets
                progress(f"reading up to {portion.offsets} records, {left} are left")
                at = receipt.data_timestamp if left and receipt is not None else None if left else stamp
                begun = time.monotonic()
                step = _Step(portion, position, advanced(position, look, portion), at, memory.clean, watermark)
                batch = _ingest(runtime, spark, spec, brokers, step, mode, cancellation)
                position = step.after
                if spec.watermark is not None:
                    passed = passed_by(spec, path, batch.committed.version, batch.committed.receipt.seq, watermark)
                    watermark, late, ahead = passed.watermark, late + passed.late, ahead + passed.ahead
                size = next_portion_size(memory.size, portion.offsets, time.monotonic() - begun)
                runtime.portions[spec.name] = PortionMemory(size, runtime.clock(), clean=batch.rejected == 0)
                receipt, whole = batch.committed.receipt, rest
                rows_out += batch.committed.rows_out
                rejected += batch.rejected
                left_out += batch.redelivered + batch.dropped
                violations = added_up(violations, batch.violations)
                version, committed = batch.committed.version, True
                if request.cause == LIVE and time.monotonic() - started > LIVE_SECONDS:
                    break
    if not left:
        runtime.control.record_check(spec.name, stamp, "" if receipt is None else f'{{"seq": {receipt.seq}}}')
    return RefreshResult(
        table=spec.name,
        at=runtime.clock(),
        kind=Kind.LOG,
        state=State.SUCCEEDED,
        strategy="append" if committed else "noop",
        reason=str(Reason("NEW_RECORDS", str(rows_out + rejected + left_out)) if committed else _nothing(left)),
        version=version,
        rows_in=rows_out + rejected + left_out,
        rows_out=rows_out,
        rejected=rejected,
        late_rows=None if spec.watermark is None else late,
        ahead_rows=None if spec.watermark is None else ahead,
        seconds=time.monotonic() - started,
        mode=mode,
        data_timestamp=stamp if not left else None if receipt is None else receipt.data_timestamp,
        committed=committed,
        violations=violations,
    )


def topic_position(receipt: Receipt | None, name: TableName) -> TopicPosition | None:
    """How far a receipt has read its topic."""
    position = None if receipt is None else receipt.positions.get(name)
    return position if isinstance(position, TopicPosition) else None


def brokers_of(runtime: Runtime, spec: SourceSpec) -> Brokers:
    """The brokers of a Kafka source, its references resolved in this process."""
    assert spec.kafka is not None
    return resolve_brokers(spec.kafka, runtime.settings.root, os.environ, where=str(spec.name))


def look_behind(
    runtime: Runtime, brokers: Brokers, reached: Callable[[TopicLook], bool], cancellation: Cancellation
) -> TopicLook:
    """Look at a topic; where it has less than is known of it, look again for as long as a broker needs to start.

    The last look is returned in any case.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        look = runtime.topics.look(brokers)
        if reached(look) or time.monotonic() > deadline:
            return look
        cancellation.wait(_LOOK_SECONDS)
        cancellation.check()


def covers(look: TopicLook, position: TopicPosition) -> bool:
    """Whether a topic has all partitions, up to the offsets, that a position has read; True for another topic."""
    return look.topic_id != position.topic_id or all(
        look.ends.get(partition, -1) >= offset for partition, offset in position.offsets.items()
    )


def _nothing(left: int) -> Reason:
    return Reason("NOTHING_NEW", f"rate-limit, {left} records wait") if left else Reason("NOTHING_NEW")


def _most(spec: SourceSpec, memory: PortionMemory, now: datetime) -> int:
    assert spec.kafka is not None
    seconds = None if memory.read_at is None else (now - memory.read_at).total_seconds()
    allowed = allowed_by_rate(spec.kafka.rate_limit, seconds)
    return memory.size if allowed is None else min(memory.size, allowed)


def _is_all_read(runtime: Runtime, brokers: Brokers, position: TopicPosition) -> bool:
    """Whether a short look says that the topic is where it was; another topic never is."""
    topic_id, ends = runtime.topics.ends(brokers)
    return topic_id == position.topic_id and dict(ends) == dict(position.offsets)


def _find(
    runtime: Runtime,
    spec: SourceSpec,
    brokers: Brokers,
    position: TopicPosition | None,
    cancellation: Cancellation,
) -> tuple[TopicLook, TopicRange]:
    assert spec.kafka is not None
    # Asked before the ends: what comes between the two is read.
    first = runtime.topics.starting(brokers, spec.kafka.starting) if position is None else None
    look = look_behind(runtime, brokers, lambda look: position is None or covers(look, position), cancellation)
    return look, find_range(spec.kafka, look, position, first, where=str(spec.name))


def _ingest(
    runtime: Runtime,
    spark: SparkSession,
    spec: SourceSpec,
    brokers: Brokers,
    step: _Step,
    mode: str,
    cancellation: Cancellation,
) -> Batch:
    """Commit one portion. Raises FencedError where the log is not where the portion begins."""
    started = time.monotonic()
    path: Path = runtime.warehouse.path(spec.name)
    portion, position = step.portion, step.after
    # First: what is committed from here on was not seen.
    planned = newest_version(path)
    newest = newest_batch(spec, path)
    if topic_position(newest, spec.name) != step.before:
        raise FencedError(
            "another batch was committed to this log meanwhile; nothing was written. Ask again.", where=str(spec.name)
        )
    seq = next_seq(runtime, spark, spec, newest, mode)
    attempt = uuid4().hex

    def receipt(good: int | None, rejected: int, left_out: int) -> Receipt:
        # The records are read. Were they those of a topic that was made anew meanwhile, offsets would say nothing.
        topic_id, _ = runtime.topics.ends(brokers)
        if topic_id != position.topic_id:
            raise TopicReplacedError(
                f"topic {brokers.topic} was deleted and made anew while it was read; nothing of it was committed.",
                where=str(spec.name),
            )
        # Where nobody counted, the commit's own metrics have the rows.
        read = portion.offsets if good is None else good + rejected + left_out
        return Receipt(
            table=spec.name,
            fingerprint=spec.fingerprint,
            epoch=runtime.epoch,
            seq=seq,
            mode=mode,
            strategy="append",
            reason=str(Reason("NEW_RECORDS", str(read))),
            data_timestamp=step.stamp,
            positions={spec.name: position},
            rows_in=read,
            rows_out=good,
            rejected=rejected,
            attempt=attempt,
            cut={str(spec.name): {"seq": seq}},
            seconds=time.monotonic() - started,
            planned=planned,
            watermark=watermark_in_receipt(spec, step.watermark),
        )

    small = portion.offsets <= SMALL_BATCH_ROWS
    stored = count_all([path]) if spec.primary_key else []
    with suited_to(spark, [*stored, SMALL_BATCH_ROWS if small else None]):
        rows = parse_records(read_range(spark, brokers, portion), spec).rows
        batch_of = Portion(spec, path, seq, runtime.clock(), small, receipt)
        try:
            committed = None
            if step.clean and not small and not spec.primary_key and not spec.constraints:
                committed = _commit_certain(runtime, batch_of, rows, receipt(None, 0, 0), cancellation)
            return committed or commit_checked(runtime, spark, batch_of, rows, cancellation)
        except (PySparkException, Py4JJavaError) as error:
            cancellation.check()
            if not _OF_BROKERS.search(str(error)):
                raise
            # The brokers themselves say what is wrong: gone, or no longer what was looked at.
            look = runtime.topics.look(brokers)
            assert spec.kafka is not None
            before = TopicPosition(position.cluster_id, position.topic, position.topic_id, portion.start)
            find_range(spec.kafka, look, before, None, where=str(spec.name))
            raise BrokerError(
                f"reading topic {brokers.topic} from {brokers.servers} was interrupted. Nothing of it was committed; "
                "it is tried again.",
                where=str(spec.name),
            ) from error


def _commit_certain(
    runtime: Runtime, portion: Portion, rows: DataFrame, receipt: Receipt, cancellation: Cancellation
) -> Batch | None:
    """Commit records in one pass that ends at the first one that is no row; None where it ended, and nothing is there.

    Without a key no record needs to be compared with others, so that nothing has to be counted or kept beforehand.
    """
    certain = rows.where(F.assert_true(F.col(ERROR).isNull(), F.lit(STOPPED)).isNull())
    good = accepted(certain, portion.spec, portion.seq, portion.now)
    try:
        return Batch(commit_log(runtime, portion, good, receipt, cancellation, count=None), 0, 0)
    except (PySparkException, Py4JJavaError) as error:
        if STOPPED not in str(error):
            raise
        return None

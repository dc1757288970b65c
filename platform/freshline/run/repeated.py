"""Records whose key came before, in their batch or in the log: the same again is dropped, another one is a conflict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import count_all
from freshline.declare.change import OP, POSITION, UNSENT
from freshline.declare.spec import SourceSpec
from freshline.plan.receipt import Receipt
from freshline.refresh.execution import suited_to
from freshline.refresh.inputs import HASH, INGESTED_AT, SEQ
from freshline.refresh.keys import keys_of
from freshline.refresh.known_keys import Bits, KnownKeys, LogKeys, bits_of, collect_bits, first_keys
from freshline.refresh.literal import quoted
from freshline.refresh.materialize import materialize_once
from freshline.refresh.small_tables import read_small
from freshline.sources.changes import judge_events, same_values
from freshline.sources.records import ERROR, mark_duplicates, mark_known

# So many keys of a batch are picked out by a list. More are looked for with all the others.
MOST_SUSPECTS = 2_000
# The log's keys with those of a batch, by the identity of the batch's receipt.
KeysAfter = Callable[[str], LogKeys]


@dataclass(frozen=True)
class LogBefore:
    """A log as a batch finds it: its newest receipt, the time of the batch, and where the keys of logs are kept."""

    spec: SourceSpec
    path: Path
    newest: Receipt | None
    now: datetime
    known: KnownKeys


def mark_repeated(
    spark: SparkSession, log: LogBefore, rows: DataFrame, *, few: bool
) -> tuple[DataFrame, KeysAfter | None]:
    """Judged records with those marked that came before, and the log's keys with theirs, None where nobody keeps them.

    `few` says that the records are in the driver.
    """
    if not log.spec.primary_key:
        return rows, None
    if log.spec.is_change_feed:
        return _judge_events(spark, log, rows)
    return _mark_redelivered(spark, log, rows, few=few)


def _judge_events(spark: SparkSession, log: LogBefore, rows: DataFrame) -> tuple[DataFrame, KeysAfter | None]:
    """Events of a change feed as `judge_events` marks them; and the log's events with theirs.

    The log is read only for events that it may have, and for values that were not sent.
    """
    spec = log.spec
    count = count_all([log.path])[0]
    names = (*spec.primary_key, POSITION, OP)
    good = rows.where(F.col(ERROR).isNull())
    known_by = good.where(F.col(POSITION).isNotNull())
    before = _log_keys(spark, log, count, names) if spec.recognizes_events else None
    after: KeysAfter | None = None
    twice, sought = False, known_by.select(*_columns(names)) if spec.recognizes_events else None
    if before is not None:
        bits = collect_bits(known_by, names)
        after = partial(before.after, bits=bits)
        twice = len(np.unique(bits)) < len(bits)
        sought = _with_bits(known_by, names, np.unique(bits[before.among(bits)]))
    unsent = good.where(F.size(UNSENT) > 0).select(*_columns(spec.primary_key))
    lacks = unsent.limit(1).count() > 0
    in_order = spec.format is not None and spec.format.is_in_source_order
    if sought is None and not (twice or lacks or in_order):
        return rows, after
    stored = _stored(spark, log.path)
    recent = None if sought is None and not twice else good.select(*_columns(names)).limit(0)
    with suited_to(spark, [count]):
        if sought is not None:
            wanted = F.broadcast(sought.distinct()).alias("w")
            found = _recent(log, stored).select(*_columns(names)).alias("l")
            recent, _ = materialize_once(found.join(wanted, same_values("l", "w", names), "left_semi").distinct())
        if lacks and not in_order:
            stored, _ = materialize_once(
                stored.join(F.broadcast(unsent.distinct()), list(spec.primary_key), "left_semi")
            )
    return judge_events(rows, recent, stored, spec), after


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _mark_redelivered(
    spark: SparkSession, log: LogBefore, rows: DataFrame, *, few: bool
) -> tuple[DataFrame, KeysAfter | None]:
    """The records with those marked whose key came before, in the batch or in the log; and the log's keys with theirs.

    Of a few records only those are looked for whose key the log may have.
    """
    spec = log.spec
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    good = rows.where(F.col(ERROR).isNull())
    stored_count = count_all([log.path])[0]
    before = _log_keys(spark, log, stored_count, tuple(spec.primary_key)) if few else None
    if before is None:
        after = None
        twice = good.groupBy(*keys).count().where("count > 1").limit(1).count() > 0
        sought: DataFrame | None = good.select(*keys).distinct()
    else:
        bits = np.array([row[0] for row in good.select(bits_of(spec.primary_key)).collect()], dtype=np.int64)
        after = partial(before.after, bits=bits)
        twice = len(np.unique(bits)) < len(bits)
        sought = _with_bits(good, spec.primary_key, np.unique(bits[before.among(bits)]))
    # First by the log: of a key that it has the first record of the batch may be the wrong one.
    marked = rows if sought is None else _mark_known(spark, log, rows, sought, stored_count, few=before is not None)
    return mark_duplicates(marked, spec) if twice else marked, after


def _mark_known(
    spark: SparkSession, log: LogBefore, rows: DataFrame, sought: DataFrame, stored_count: int | None, *, few: bool
) -> DataFrame:
    """The records with those marked that have one of the keys `sought` and whose key is in the log."""
    keys = [F.col(quoted(key)) for key in log.spec.primary_key]
    with suited_to(spark, [stored_count]):
        stored = _recent(log, _stored(spark, log.path))
        # The batch is the small side: its keys go to the log's scan.
        hits = (
            keys_of(sought).restrict(stored)
            if few
            else stored.join(F.broadcast(sought), list(log.spec.primary_key), "left_semi")
        )
        known, found = materialize_once(hits.groupBy(*keys).agg(F.min_by(HASH, SEQ).alias("_freshline_known")))
    return mark_known(rows, known, log.spec) if found else rows


def _log_keys(spark: SparkSession, log: LogBefore, count: int | None, key: tuple[str, ...]) -> LogKeys | None:
    """The keys of the log before a batch, by a scan of the log where they are not kept; None of a log of too many."""
    identity = "" if log.newest is None else log.newest.identity
    kept = log.known.find(log.path, key, identity)
    if kept is not None or count is None or count > log.known.most:
        return kept
    if count == 0:
        return first_keys(key, identity, np.empty(0, dtype=np.int64))
    with suited_to(spark, [count]):
        return first_keys(key, identity, collect_bits(_stored(spark, log.path), key))


def _with_bits(rows: DataFrame, key: Sequence[str], bits: Bits) -> DataFrame | None:
    """The keys of the rows that have one of these bits; None where there are no such bits."""
    if not len(bits):
        return None
    keys = rows.select(*[F.col(quoted(name)) for name in key])
    if len(bits) > MOST_SUSPECTS:
        return keys
    names = ", ".join(quoted(name) for name in key)
    return keys.where(f"xxhash64({names}) IN ({', '.join(map(str, bits))})")


def _stored(spark: SparkSession, path: Path) -> DataFrame:
    stored = read_small(spark, path, None)
    return spark.read.format("delta").load(str(path)) if stored is None else stored


def _recent(log: LogBefore, stored: DataFrame) -> DataFrame:
    """The rows of the log that a record can be a repetition of."""
    seconds = log.spec.deduplicate_seconds
    if seconds is None:
        return stored
    return stored.where(F.col(INGESTED_AT) > F.lit(log.now - timedelta(seconds=seconds)))

"""Records whose key came before, in their batch or in the log: the same again is dropped, another one is a conflict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import count_all, exists, newest_version
from freshline.compute.execution import suited_to
from freshline.compute.inputs import HASH, INGESTED_AT, SEQ
from freshline.compute.keys import keys_of
from freshline.compute.log_keys import Bits, KnownKeys, LogKeys, bits_of, collect_bits, no_keys, read_keys
from freshline.compute.materialize import has_rows, materialize_once
from freshline.compute.small_tables import files_of_batches, read_small
from freshline.sources.changes import (
    as_sent,
    begun_again,
    find_facts,
    judge_events,
    mark_kept,
    of_keys_and_truncates,
    same_values,
    unknown_keys,
    with_unknown_keys,
)
from freshline.sources.records import ERROR, mark_duplicates, mark_known
from freshline.values.change import OP, POSITION, UNSENT
from freshline.values.names import quoted
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# So many keys of a batch are picked out by a list, more by a join.
MOST_SUSPECTS = 2_000
# So many keys that are there more than once are ordered without all the others.
MOST_REPEATED = 200_000
# The log's keys with those of a batch, by the identity of the batch's receipt.
KeysAfter = Callable[[str], LogKeys]


@dataclass(frozen=True)
class LogBefore:
    """A log as a batch finds it: its newest receipt, the batch's number and time, and where the keys of logs are."""

    spec: SourceSpec
    path: Path
    quarantine: Path
    newest: Receipt | None
    seq: int
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
        return _judge_events(spark, log, rows, few=few)
    return _mark_redelivered(spark, log, rows, few=few)


def _judge_events(
    spark: SparkSession, log: LogBefore, rows: DataFrame, *, few: bool
) -> tuple[DataFrame, KeysAfter | None]:
    """Events of a change feed as `judge_events` marks them; and the log's events with theirs.

    The log is read only for events that it may have, and for values that were not sent.
    """
    spec = log.spec
    count = count_all([log.path])[0]
    names = (*spec.primary_key, POSITION, OP)
    good = rows.where(F.col(ERROR).isNull())
    known_by = good.where(F.col(POSITION).isNotNull())
    found = find_facts(rows, spec)
    lacks = found.unsent > 0
    before = log_keys(spark, log, count, names) if spec.recognizes_events else None
    after: KeysAfter | None = None
    twice, sought = False, known_by.select(*_columns(names)) if spec.recognizes_events else None
    if before is not None:
        bits = collect_bits(known_by, names)
        known = before.among(bits)
        # A key that comes again is mostly left out, and must not be kept once more each time.
        after = partial(before.after, bits=bits[~known], seq=log.seq, last=found.last)
        twice = len(np.unique(bits)) < len(bits)
        sought = _with_bits(known_by, names, np.unique(bits[known]))
    begun = []
    if found.deletes and spec.recognizes_events and count != 0:
        # A source that sends nothing twice gives whole transactions.
        begun = [each for each in found.first if before is None or before.may_have_begun(*each)]
    in_order = spec.format is not None and spec.format.is_in_source_order
    if sought is None and not (twice or lacks or in_order or begun or found.may_share_keys):
        return (with_unknown_keys(rows, spec) if found.rejected else rows), after
    stored = _stored(spark, log.path)
    recent = None if sought is None and not twice else good.select(*_columns(names)).limit(0)
    with suited_to(spark, [count]):
        if sought is not None:
            wanted = F.broadcast(sought.distinct()).alias("w")
            sent = as_sent(_recent(log, stored)).select(*_columns(names)).alias("l")
            recent, _ = materialize_once(sent.join(wanted, same_values("l", "w", names), "left_semi").distinct())
        unsent = good.where(F.size(UNSENT) > 0).select(*_columns(spec.primary_key))
        of_unsent = stored
        if lacks and not in_order:
            of_unsent, _ = materialize_once(of_keys_and_truncates(stored, F.broadcast(unsent.distinct()), spec))
        unknown = _unknown_keys(spark, log) if lacks and not in_order else None
        judged = judge_events(rows, recent, of_unsent, unknown, spec, few=few)
        if found.deletes and (twice or sought is not None):
            begun = list({*begun, *begun_again(judged)})
        if begun or found.may_share_keys:
            judged = mark_kept(judged, stored, spec, begun)
    return (with_unknown_keys(judged, spec) if found.rejected or lacks else judged), after


def _unknown_keys(spark: SparkSession, log: LogBefore) -> DataFrame | None:
    """The keys whose newest values may be in quarantine, as `unknown_keys` has them; None where there is none."""
    if log.newest is None or not exists(log.quarantine):
        return None
    return unknown_keys(_stored(spark, log.quarantine), log.newest.seq)


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _mark_redelivered(
    spark: SparkSession, log: LogBefore, rows: DataFrame, *, few: bool
) -> tuple[DataFrame, KeysAfter | None]:
    """The records with those marked whose key came before, in the batch or in the log; and the log's keys with theirs.

    Only those are searched whose key the log or another record may have. `few` says that they are in the driver.
    """
    spec, key = log.spec, tuple(log.spec.primary_key)
    good = rows.where(F.col(ERROR).isNull())
    stored_count = count_all([log.path])[0]
    # They pass through this process. Of a batch of too many Spark searches for all.
    many = not few and good.count() > log.known.most
    before = None if many else log_keys(spark, log, stored_count, key)
    if before is None:
        keys = [F.col(quoted(name)) for name in key]
        counted = good.groupBy(*keys).agg(F.count(F.lit(1)).alias("_freshline_times"))
        twice = has_rows(counted.where("_freshline_times > 1"))
        stored = _recent(log, _stored(spark, log.path))
        marked = _mark_known(spark, log, rows, good.select(*keys).distinct(), stored, stored_count, few=False)
        return mark_duplicates(marked, spec) if twice else marked, None
    if few:
        bits = np.array([row[0] for row in good.select(bits_of(key)).collect()], dtype=np.int64)
    else:
        bits = collect_bits(good, key)
    each, times = np.unique(bits, return_counts=True)
    suspects, repeated = each[before.among(each)], each[times > 1]
    sought = _with_bits(good, key, suspects)
    # First by the log: of a key that it has the first record of the batch may be the wrong one.
    if sought is not None and not few:
        sought = sought.distinct()
    marked = rows
    if sought is not None:
        stored = _recent(log, _stored_in(spark, log.path, before.seqs_of(suspects)))
        marked = _mark_known(spark, log, rows, sought, stored, stored_count, few=few)
    if len(repeated):
        marked = mark_duplicates(marked, spec) if few else _mark_repeated_in_batch(marked, spec, repeated)
    return marked, partial(before.after, bits=_bits_that_stay(marked, key, each, suspects), seq=log.seq)


def _bits_that_stay(marked: DataFrame, key: Sequence[str], each: Bits, suspects: Bits) -> Bits:
    """The bits of the keys that a batch adds to the log; `each` are those of all of its keys.

    A key that came before is mostly left out, and must not be kept once more each time.
    """
    if not len(suspects):
        return each
    stay = _having_bits(marked.where(F.col(ERROR).isNull()), key, suspects)
    return np.concatenate([np.setdiff1d(each, suspects), collect_bits(stay, key)])


def _mark_repeated_in_batch(rows: DataFrame, spec: SourceSpec, bits: Bits) -> DataFrame:
    """As `mark_duplicates`, where only keys with some of the bits may be there twice: few of many are put in order.

    The records are divided by the bits of their keys, and not by their places: of records that are tried again, two of
    different batches may have one place.
    """
    if len(bits) > MOST_REPEATED:
        return mark_duplicates(rows, spec)
    some = _having_bits(rows, spec.primary_key, bits)
    others = _having_bits(rows, spec.primary_key, bits, is_so=False)
    return others.unionByName(mark_duplicates(some, spec))


def _mark_known(
    spark: SparkSession,
    log: LogBefore,
    rows: DataFrame,
    sought: DataFrame,
    stored: DataFrame,
    stored_count: int | None,
    *,
    few: bool,
) -> DataFrame:
    """The records with those marked that have one of the keys `sought` and whose key is in the log.

    `stored` are the rows of the log that may have such a key.
    """
    keys = [F.col(quoted(key)) for key in log.spec.primary_key]
    with suited_to(spark, [stored_count]):
        # The batch is the small side: its keys go to the log's scan.
        hits = (
            keys_of(sought).restrict(stored)
            if few
            else stored.join(F.broadcast(sought), list(log.spec.primary_key), "left_semi")
        )
        known, found = materialize_once(hits.groupBy(*keys).agg(F.min_by(HASH, SEQ).alias("_freshline_known")))
    return mark_known(rows, known, log.spec) if found else rows


def log_keys(spark: SparkSession, log: LogBefore, count: int | None, key: tuple[str, ...]) -> LogKeys | None:
    """The keys of the log before a batch, by a scan of the log where they are not kept; None of a log of too many."""
    identity = "" if log.newest is None else log.newest.identity
    kept = log.known.find(log.path, key, identity)
    if kept is not None or count is None or count > log.known.most:
        return kept
    if count == 0:
        return no_keys(key, identity)
    with suited_to(spark, [count]):
        stored = _stored(spark, log.path)
        return read_keys(as_sent(stored) if OP in key else stored, key, identity)


def _with_bits(rows: DataFrame, key: Sequence[str], bits: Bits) -> DataFrame | None:
    """The keys of the rows that have one of these bits; None where there are no such bits."""
    if not len(bits):
        return None
    return _having_bits(rows.select(*[F.col(quoted(name)) for name in key]), key, bits)


def _having_bits(rows: DataFrame, key: Sequence[str], bits: Bits, *, is_so: bool = True) -> DataFrame:
    """The rows whose key has one of the bits, or with `is_so` false has none."""
    if len(bits) <= MOST_SUSPECTS:
        names = ", ".join(quoted(name) for name in key)
        return rows.where(f"xxhash64({names}) {'IN' if is_so else 'NOT IN'} ({', '.join(map(str, bits))})")
    wanted = rows.sparkSession.createDataFrame(pa.table({"_freshline_bits": pa.array(bits)}))
    how = "left_semi" if is_so else "left_anti"
    return rows.join(F.broadcast(wanted), bits_of(key) == F.col("_freshline_bits"), how)


def _stored(spark: SparkSession, path: Path) -> DataFrame:
    stored = read_small(spark, path, None)
    return spark.read.format("delta").load(str(path)) if stored is None else stored


def _stored_in(spark: SparkSession, path: Path, seqs: Sequence[int]) -> DataFrame:
    """The rows of the files of a log that may have rows of some batches."""
    version = newest_version(path)
    files = None if version is None else files_of_batches(path, version, seqs)
    stored = None if files is None else read_small(spark, path, version, files=files)
    return _stored(spark, path) if stored is None else stored


def _recent(log: LogBefore, stored: DataFrame) -> DataFrame:
    """The rows of the log that a record can be a repetition of."""
    seconds = log.spec.deduplicate_seconds
    if seconds is None:
        return stored
    return stored.where(F.col(INGESTED_AT) > F.lit(log.now - timedelta(seconds=seconds)))

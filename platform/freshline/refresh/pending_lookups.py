"""Rows of a lookup join that wait: for their dimension (`lookup.retry-on-miss`), or for an answer (`lookup.on-error`).

A row that misses its dimension is parked beside the table, and looked up again by later refreshes, until it finds a row
or its tries are used up; then it is added as it is, with NULL for the dimension. A row whose key has no answer is
parked too, is in quarantine meanwhile, and is asked for again until there is one.

The set of parked rows is written as one version of the table `<name>__parked` before the refresh commits, and the
receipt names that version. So the receipt alone decides: a refresh that was stopped between the two leaves a version
that nothing names, and the next one begins with the version that the newest receipt names.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, timedelta
from functools import reduce
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.columns import input_columns
from freshline.commit.delta_log import exists, last_seq, open_table
from freshline.commit.write import create_table, overwrite_table, stored_schema, write_and_read_back
from freshline.compute.answers import newest_answers
from freshline.compute.constraints import WAITING_ROW, as_json
from freshline.compute.fold import as_stored
from freshline.compute.inputs import read_version, shadow_inputs
from freshline.compute.materialize import materialize_once
from freshline.compute.read_only import read_declared, read_only
from freshline.errors import FencedError, RefreshError, SourceError
from freshline.plan.disk import HISTORY_SECONDS
from freshline.query.rules.asked_keys import asked_keys_text, find_key_queries
from freshline.refresh.attempt import Attempt, LookedUp
from freshline.refresh.computed_rows import ask_outside
from freshline.refresh.constraint_check import UnansweredRows, position_of_row, positions_text
from freshline.refresh.runtime import Runtime
from freshline.values.connector import RETRIED_IN
from freshline.values.lookup import FAILED as WHY_NONE
from freshline.values.names import TableName, quoted
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.spec import SourceSpec, TableSpec

TRIES_LEFT = "_freshline_tries_left"
RETRY_AT = "_freshline_retry_at"
ROW = "_freshline_row"
ROW_SEEN = "_freshline_row_seen"
MISSED = "_freshline_missed"
# Of rows without an answer: the code, why there is none, and how often in a row there was none.
FAILED, WHY, FAILURES = "_freshline_failed", "_freshline_why", "_freshline_failures"
# The columns that waiting rows have beside those of the input.
OF_WAITING = (TRIES_LEFT, RETRY_AT, FAILED, WHY, FAILURES, WAITING_ROW)
# The code of a row in quarantine, with the source in parentheses.
NO_ANSWER = "NO_ANSWER"
_OF_FAILED = ((FAILED, "string"), (WHY, "string"), (FAILURES, "int"), (WAITING_ROW, "string"))
# Rows without an answer are asked for again after the first of these, which doubles up to the second.
FIRST_SECONDS, MOST_SECONDS = 60, 3600


def takes_pending_lookups(spec: TableSpec, receipt: Receipt | None) -> bool:
    """Whether rows wait beside the table, and its declaration still looks up the dimension that they wait for."""
    if receipt is None or receipt.pending_lookups is None:
        return False
    return bool(spec.query.lookup_joins) and len(spec.driving) == 1


def is_due(runtime: Runtime, spec: TableSpec, receipt: Receipt | None, *, retry: bool = False) -> bool:
    """Whether a parked row of the newest receipt is to be looked up again by now. Reads without Spark.

    `retry` says that somebody asks for rows without an answer now.
    """
    if not takes_pending_lookups(spec, receipt):
        return False
    assert receipt is not None
    table = open_table(_path(runtime, spec), receipt.pending_lookups)
    failed = f"{FAILED} IS NOT NULL" if FAILED in {field.name for field in table.schema().fields} else "false"
    query = f"SELECT {failed} AS failed, min({RETRY_AT}) AS at FROM parked GROUP BY {failed}"
    # Where the declaration has no retries any more, nothing waits.
    return any(
        not _still_waits(spec, failed=row["failed"])
        or (retry and row["failed"])
        or row["at"].astimezone(UTC) <= runtime.clock()
        for row in pa.table(QueryBuilder().register("parked", table).execute(query).read_all()).to_pylist()
    )


def _still_waits(spec: TableSpec, *, failed: bool) -> bool:
    """Whether the declaration lets a row wait that has no answer (`failed`) or no dimension."""
    return bool(spec.quarantined_lookups if failed else spec.lookup_attempts)


def look_up(
    attempt: Attempt,
    frames: Mapping[TableName, DataFrame],
    receipt: Receipt | None,
    *,
    left: DataFrame | None = None,
) -> LookedUp:
    """Look new rows and parked rows that are due up in the dimensions, which are views of the session.

    `frames` has the new rows of the driving input. `receipt` is the newest one, None where everything begins again.
    `left` are those of its parked rows that have not gone from the input, None for all of them.
    """
    runtime, spark, spec = attempt.runtime, attempt.spark, attempt.spec
    assert spec.columns is not None
    (driving,) = spec.driving
    versions = {join.alias.lower(): attempt.inputs[join.table].position.version for join in spec.sql.lookup_joins}
    now = runtime.clock()
    candidates = frames[driving].withColumn(TRIES_LEFT, F.lit(spec.lookup_attempts + 1))
    candidates = candidates.withColumns({name: F.lit(None).cast(kind) for name, kind in _OF_FAILED})
    waiting, asked_again, gone = None, 0, 0
    if receipt is not None and receipt.pending_lookups is not None:
        before = read_pending_lookups(runtime, spark, spec, receipt.pending_lookups)
        if left is not None:
            left, many = materialize_once(left)
            before, gone = left, before.count() - many
        has_failed = F.col(FAILED).isNotNull()
        stays = F.when(has_failed, _still_waits(spec, failed=True)).otherwise(_still_waits(spec, failed=False))
        is_due_now = ~stays | (F.col(RETRY_AT) <= F.lit(now)) | (has_failed & F.lit(attempt.retry))
        due, asked_again = materialize_once(before.where(is_due_now))
        waiting = before.where(~is_due_now)
        # The declaration may have fewer tries by now.
        tries = F.least(F.col(TRIES_LEFT), F.lit(spec.lookup_attempts + 1))
        # They may lack a column that the input gained meanwhile.
        again = due.drop(RETRY_AT).withColumn(TRIES_LEFT, tries)
        candidates = candidates.unionByName(again, allowMissingColumns=True)
    # Numbered once: later reads of them must see the same numbers.
    candidates, _ = materialize_once(candidates.withColumn(ROW, F.monotonically_increasing_id()))
    shadow_inputs({driving: candidates.drop(*OF_WAITING)})
    ask_outside(spark, attempt.inputs)
    failed, candidates, failures = _without_answer(attempt, candidates)
    text = spec.sql.render(versions=versions, select_also=_also(spec, spec.sql))
    columns = [F.col(quoted(name)) for name in spec.columns]
    found = read_declared(spark, text, [name.view for name in spec.sql.reads])
    flagged, _ = materialize_once(as_stored(found, spec).select(*columns, ROW_SEEN, MISSED))
    missed = flagged.where(MISSED).select(F.col(ROW_SEEN).alias(ROW)).distinct()
    kept = candidates.join(missed, ROW, "left_semi").where(F.col(TRIES_LEFT) > 1)
    kept, more = materialize_once(
        kept.withColumn(TRIES_LEFT, F.col(TRIES_LEFT) - 1).withColumn(
            RETRY_AT, F.lit(now + timedelta(seconds=spec.lookup_delay_seconds))
        )
    )
    rows = flagged.join(kept.select(F.col(ROW).alias(ROW_SEEN)), ROW_SEEN, "left_anti").select(*columns)
    kept = kept.withColumns({name: F.lit(None).cast(kind) for name, kind in _OF_FAILED})
    kept = (kept if failed is None else kept.unionByName(failed)).drop(ROW)
    after, many = materialize_once(kept if waiting is None else kept.unionByName(waiting, allowMissingColumns=True))
    unanswered = _moves_of_quarantine(attempt, after)
    if not many and not spec.lookup_attempts:
        return LookedUp(rows, None, 0, unanswered)  # nothing waits any more
    if more or asked_again or gone or failures:
        return LookedUp(rows, _commit(runtime, spark, spec, after, many), many, unanswered)
    return LookedUp(rows, None if receipt is None else receipt.pending_lookups, many, unanswered)


def _without_answer(attempt: Attempt, candidates: DataFrame) -> tuple[DataFrame | None, DataFrame, int]:
    """The rows that need an answer which is none, as they wait from now on, the other ones, and how many have none.

    `candidates` have ROW, and are the driving input in the session; afterwards the other ones are.
    """
    (driving,) = attempt.spec.driving
    found = _find_failed(attempt)
    if found is None:
        return None, candidates, 0
    found, count = materialize_once(found)
    if not count:
        return None, candidates, 0
    failures = F.coalesce(F.col(FAILURES), F.lit(0)) + 1
    # No more than the steps that reach the longest pause: a power of two of many would not fit.
    pause = F.least(F.lit(MOST_SECONDS), F.pow(F.lit(2), F.least(failures, F.lit(10)) - 1) * FIRST_SECONDS)
    failed = (
        candidates.drop(FAILED, WHY)
        .join(found, ROW)
        .withColumn(RETRY_AT, F.timestamp_seconds(F.lit(attempt.runtime.clock().timestamp()) + pause))
        .withColumn(FAILURES, failures)
        .withColumn(WAITING_ROW, F.coalesce(F.col(WAITING_ROW), F.expr("uuid()")))
    )
    others, _ = materialize_once(candidates.join(found, ROW, "left_anti"))
    shadow_inputs({driving: others.drop(*OF_WAITING)})
    return materialize_once(failed)[0], others, count


def _find_failed(attempt: Attempt) -> DataFrame | None:
    """The rows of the driving input whose lookup has no answer: ROW with FAILED and WHY; None where that cannot be."""
    runtime, spark, spec = attempt.runtime, attempt.spark, attempt.spec
    if not spec.quarantined_lookups:
        return None
    columns = input_columns(runtime.graph, runtime.warehouse, spec)
    schema = {name.view.lower(): known for name, known in columns.items()}
    queries = find_key_queries(spec.sql, schema, spec.quarantined_lookups, also=ROW)
    if isinstance(queries, Reason):
        raise RefreshError(f"the keys of its lookups are not found: {queries}", where=str(spec.written_at))
    found = []
    for query in queries:
        source = runtime.graph.spec(query.table)
        assert isinstance(source, SourceSpec)
        seq = attempt.inputs[query.table].position.seq
        failed = newest_answers(spark, runtime.warehouse.answers(source.name), source, seq).where(F.col(WHY_NONE) != "")
        key = [F.col(quoted(column)).alias(column) for column in query.columns]
        types = {column.name.lower(): column.type for column in source.columns}
        asked = read_only(spark, asked_keys_text(query, types, also=ROW))
        why = F.concat(
            F.lit(f"{source.name} has no answer to "), F.to_json(F.struct(*key)), F.lit(": "), F.col(WHY_NONE)
        )
        code = F.lit(f"{NO_ANSWER}({source.name})")
        found.append(
            asked.join(failed.select(*key, WHY_NONE), list(query.columns)).select(
                ROW, code.alias(FAILED), why.alias(WHY)
            )
        )
    # Of several lookups without an answer the first is named.
    first = F.min(F.struct(FAILED, WHY)).alias("first")
    return reduce(DataFrame.unionAll, found).groupBy(ROW).agg(first).select(ROW, "first.*")


def _moves_of_quarantine(attempt: Attempt, waiting: DataFrame) -> UnansweredRows | None:
    """The rows that come to the quarantine and those that leave it, by those that wait from now on; None for neither.

    The quarantine is compared with what waits, so that a savepoint that brings waiting rows back is followed too.
    """
    spark, spec = attempt.spark, attempt.spec
    path = attempt.runtime.warehouse.rejections(spec)
    there = None
    if exists(path) and WAITING_ROW in stored_schema(path).names:
        stored = spark.read.format("delta").load(str(path))
        there = stored.where(F.col(WAITING_ROW).isNotNull() & F.col(RETRIED_IN).isNull()).select(WAITING_ROW).distinct()
    elif not spec.quarantined_lookups:
        return None
    failed = waiting.where(F.col(FAILED).isNotNull())
    left, leaving = (None, 0) if there is None else materialize_once(there.join(failed, WAITING_ROW, "left_anti"))
    positions = position_of_row(failed, positions_text(attempt.pins))
    new = failed if there is None else failed.join(there, WAITING_ROW, "left_anti")
    new, count = materialize_once(
        new.select(
            positions.alias("positions"),
            as_json(failed.columns).alias("raw"),
            F.col(FAILED).alias("error"),
            F.col(WHY).alias("message"),
            WAITING_ROW,
        )
    )
    if not (count or leaving):
        return None
    # Where rows are there, also without one that leaves: a savepoint may have brought back one that had left.
    return UnansweredRows(new, count, left)


def read_pending_lookups(runtime: Runtime, spark: SparkSession, spec: TableSpec, version: int) -> DataFrame:
    """The rows of the driving input that are parked at a version, with the columns OF_WAITING."""
    path = _path(runtime, spec)
    if not exists(path):
        raise SourceError(
            f"the parked rows of {spec.name} are gone ({path}). Compute the table from the beginning with "
            f"`freshline refresh {spec.name} --full`.",
            where=str(spec.name),
        )
    rows = read_version(spark, path, version)
    # Those of an earlier freshline wait for a dimension.
    missing = {name: F.lit(None).cast(kind) for name, kind in _OF_FAILED if name not in rows.columns}
    return rows.withColumns(missing) if missing else rows


def _path(runtime: Runtime, spec: TableSpec) -> Path:
    return runtime.warehouse.pending_lookups(spec.name)


def _also(spec: TableSpec, query: SqlQuery) -> tuple[str, str]:
    """The select items that say for each result row from which row of the input it came, and whether that one missed.

    A row whose own key is NULL finds no dimension row ever, and does not wait for one.
    """
    (name,) = spec.driving
    alias = next(reference.alias for reference in query.references if reference.name == name)
    misses = []
    for join in query.lookup_joins:
        column = f"`{join.alias}`.{quoted(join.keys[0][0])} IS NULL"
        asked = [f"({probe}) IS NOT NULL" for _, probe in join.keys]
        misses.append(f"({' AND '.join([column, *asked])})")
    return f"`{alias}`.{ROW} AS {ROW_SEEN}", f"({' OR '.join(misses)}) AS {MISSED}"


def _commit(runtime: Runtime, spark: SparkSession, spec: TableSpec, rows: DataFrame, count: int) -> int:
    """Write the parked rows as one version. Its number counts for itself: the receipt of the table names it."""
    path = _path(runtime, spec)
    if not exists(path):
        runtime.require_warehouse()
        create_table(spark, path, rows.schema, history_seconds=spec.history_seconds or HISTORY_SECONDS)
    receipt = Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=runtime.epoch,
        seq=last_seq(path) + 1,
        mode="",
        strategy=str(Strategy.FULL),
        reason="rows that wait for their dimension",
        data_timestamp=None,
        positions={},
        rows_in=count,
        rows_out=count,
        attempt=uuid4().hex,
    )
    committed = write_and_read_back(
        lambda: overwrite_table(rows, path, receipt), path, receipt, runtime.require_warehouse
    )
    if committed is None:
        raise FencedError("another refresh parked rows of this table meanwhile. Ask again.", where=str(spec.name))
    return committed.version

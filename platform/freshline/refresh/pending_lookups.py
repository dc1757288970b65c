"""Rows of a lookup join that wait for their dimension (`lookup.retry-on-miss`).

A row that misses its dimension is parked beside the table, and looked up again by later refreshes, until it finds a row
or its tries are used up; then it is added as it is, with NULL for the dimension.

The set of parked rows is written as one version of the table `<name>__parked` before the refresh commits, and the
receipt names that version. So the receipt alone decides: a refresh that was stopped between the two leaves a version
that nothing names, and the next one begins with the version that the newest receipt names.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import QueryBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import exists, last_seq, open_table
from freshline.commit.write import create_table, overwrite_table, write_and_read_back
from freshline.compute.fold import as_stored
from freshline.compute.inputs import read_version, shadow_inputs
from freshline.compute.materialize import materialize_once
from freshline.compute.read_only import read_declared
from freshline.errors import FencedError, SourceError
from freshline.plan.disk import HISTORY_SECONDS
from freshline.refresh.attempt import Attempt, LookedUp
from freshline.refresh.computed_rows import ask_outside
from freshline.refresh.runtime import Runtime
from freshline.values.names import TableName, quoted
from freshline.values.query import SqlQuery
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec

TRIES_LEFT = "_freshline_tries_left"
RETRY_AT = "_freshline_retry_at"
ROW = "_freshline_row"
ROW_SEEN = "_freshline_row_seen"
MISSED = "_freshline_missed"


def takes_pending_lookups(spec: TableSpec, receipt: Receipt | None) -> bool:
    """Whether rows wait beside the table, and its declaration still looks up the dimension that they wait for."""
    if receipt is None or receipt.pending_lookups is None:
        return False
    return bool(spec.query.lookup_joins) and len(spec.driving) == 1


def is_due(runtime: Runtime, spec: TableSpec, receipt: Receipt | None) -> bool:
    """Whether a parked row of the newest receipt is to be looked up again by now. Reads without Spark."""
    if not takes_pending_lookups(spec, receipt):
        return False
    assert receipt is not None
    table = open_table(_path(runtime, spec), receipt.pending_lookups)
    found = QueryBuilder().register("parked", table).execute(f"SELECT min({RETRY_AT}) AS at FROM parked").read_all()
    first = pa.table(found)["at"][0].as_py()
    # Where the declaration has no retries any more, nothing waits.
    return first is not None and (not spec.lookup_attempts or first.astimezone(UTC) <= runtime.clock())


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
    waiting, asked_again, gone = None, 0, 0
    if receipt is not None and receipt.pending_lookups is not None:
        before = read_pending_lookups(runtime, spark, spec, receipt.pending_lookups)
        if left is not None:
            left, many = materialize_once(left)
            before, gone = left, before.count() - many
        is_due_now = F.col(RETRY_AT) <= F.lit(now) if spec.lookup_attempts else F.lit(True)
        due, asked_again = materialize_once(before.where(is_due_now))
        waiting = before.where(~is_due_now)
        # The declaration may have fewer tries by now.
        tries = F.least(F.col(TRIES_LEFT), F.lit(spec.lookup_attempts + 1))
        # They may lack a column that the input gained meanwhile.
        again = due.drop(RETRY_AT).withColumn(TRIES_LEFT, tries)
        candidates = candidates.unionByName(again, allowMissingColumns=True)
    # Numbered once: later reads of them must see the same numbers.
    candidates, _ = materialize_once(candidates.withColumn(ROW, F.monotonically_increasing_id()))
    shadow_inputs({driving: candidates.drop(TRIES_LEFT)})
    ask_outside(spark, attempt.inputs)
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
    kept = kept.drop(ROW)
    after, many = materialize_once(kept if waiting is None else kept.unionByName(waiting, allowMissingColumns=True))
    if not many and not spec.lookup_attempts:
        return LookedUp(rows, None, 0)  # nothing waits any more, and nothing will
    if more or asked_again or gone:
        return LookedUp(rows, _commit(runtime, spark, spec, after, many), many)
    return LookedUp(rows, None if receipt is None else receipt.pending_lookups, many)


def read_pending_lookups(runtime: Runtime, spark: SparkSession, spec: TableSpec, version: int) -> DataFrame:
    """The rows of the driving input that are parked at a version, with TRIES_LEFT and RETRY_AT."""
    path = _path(runtime, spec)
    if not exists(path):
        raise SourceError(
            f"the parked rows of {spec.name} are gone ({path}). Compute the table from the beginning with "
            f"`freshline refresh {spec.name} --full`.",
            where=str(spec.name),
        )
    return read_version(spark, path, version)


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

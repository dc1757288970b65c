"""The rows of affected keys: which keys, the query restricted to them, and how it differs from what is stored.

The keys come from the change sets of the inputs (`query.rules.keys`). The query itself is never rewritten for rows: it
is the user's own, over the inputs as they are now, of which only the rows with an affected key are asked for. Spark
carries that condition to the scans as far as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    SparkRuntimeException,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.compute.arrow_rows import ArrowRows, are_served, in_spark, take
from freshline.compute.covering_ranges import near_values, time_condition
from freshline.compute.literal import EPOCH, for_literal, from_spark, partition_predicate, sql_literal
from freshline.compute.materialize import FEW_ROWS, LIKELY_MANY, has_rows, materialize_once
from freshline.compute.netting import NET, counted_by_value, is_compared, is_loosely_equal, net
from freshline.compute.read_only import read_only
from freshline.compute.searches import Searches
from freshline.query.rules.algebra import SIGN
from freshline.query.rules.keys import Affected, QueryStage
from freshline.query.tree import RelationState, view_of
from freshline.sql.placeholders import in_own_words
from freshline.sql.tokens import in_lower_case
from freshline.values.names import quoted
from freshline.values.reason import Reason

# Up to this many values of a column are written into conditions, where scans can use them; of more it is the least and
# the greatest. For a few hundred that is cheaper than a join with them, which plans and sends more.
FEW_KEYS = 1_000
# Up to this many keys are sent to every task instead of being shuffled.
BROADCAST_KEYS = 500_000
OP = "_freshline_op"
INSERT, UPDATE, DELETE = "I", "U", "D"
# Times between these come to Python and back as they are, in whichever time zone.
YEARS = ("0001-01-03 00:00:00Z", "9999-12-29 00:00:00Z")
_FIRST_TIME, _LAST_TIME = (
    (datetime.fromisoformat(text.replace("Z", "+00:00")) - EPOCH) // timedelta(microseconds=1) for text in YEARS
)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
WRITTEN = (BooleanType, DateType, DecimalType, IntegralType, StringType, TimestampType)
# Rules that move operators about: without them, a query that is written in two ways is planned in one. A rule that
# computes would compare what two queries are of the rows that happen to be there.
MOVING_RULES = (
    "ColumnPruning CollapseWindow CombineFilters CombineUnions ConvertToLocalRelation EliminateOuterJoin "
    "InferFiltersFromConstraints OptimizeOneRowPlan PropagateEmptyRelation PushDownLeftSemiAntiJoin "
    "PushDownPredicates PushLeftSemiLeftAntiThroughJoin PushPredicateThroughJoin PushPredicateThroughNonJoin "
    "PushProjectionThroughUnion ReorderJoin TransposeWindow".split()
)
EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
# Spark refuses the analysis's queries, or rows make them fail: keys are searched among rows that the query itself
# leaves out, and a condition on keys may be computed before the query's own.
REFUSED = (AnalysisException, ParseException)
FAILED_BY_ROWS = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
# How Delta says that it has no changed rows of a range of versions.
CHANGES_GONE = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_TABLE_FEED_DISABLED")
# How Spark says that a plan of its own names a column which is not there.
BROKEN_PLAN = ("INTERNAL_ERROR", "key not found: ", "Couldn't find ")
Stored = Callable[[DataFrame], DataFrame]
Readings = Mapping[tuple[RelationState, str], DataFrame]


@dataclass(frozen=True)
class ValueRange:
    """Where the values of one column of the keys lie: all of them, or the least and the greatest of many."""

    values: tuple[object, ...]
    null: bool
    whole: bool

    def text(self, column: str) -> str:
        """The condition in SQL that a column's value is one of them, or may be where not all are known.

        As a text, because each value handed over as a column is several calls into the JVM.
        """
        if self.whole:
            if not self.values and not self.null:
                return "(false)"
            values = [(value,) for value in (*self.values, *([None] if self.null else []))]
            text = f"({partition_predicate([column], values)})"
            if len(self.values) > 1 and all(isinstance(value, datetime) for value in self.values):
                # Delta takes a list of values for all that lies between the least and the greatest.
                near = time_condition(column, near_values(self.values, 0, 0, whole=True), nulls=self.null)
                text = f"({text} AND ({near}))"
            return text
        least, greatest = (sql_literal(value) for value in self.values)
        null = f" OR {column} IS NULL" if self.null else ""
        return f"({column} BETWEEN {least} AND {greatest}{null})"


@dataclass(frozen=True)
class Keys:
    """Affected keys: distinct rows of `columns` in the types of the table, and how many.

    `spans` say where the values of a column lie, None for a column whose type has no exact literal.
    """

    held: DataFrame | ArrowRows
    columns: tuple[str, ...]
    count: int
    spans: Mapping[str, ValueRange | None]

    @cached_property
    def rows(self) -> DataFrame:
        """The keys for Spark."""
        return in_spark(self.held)

    def restrict(self, rows: DataFrame) -> DataFrame:
        """The rows that have one of the keys; a NULL in a key is a value like any other."""
        spans = [self.spans[column] for column in self.columns]
        for column, span in zip(self.columns, spans, strict=True):
            if span is not None:
                rows = rows.where(span.text(quoted(column)))
        if len(spans) == 1 and spans[0] is not None and spans[0].whole:
            return rows
        return _with_keys(rows, self.rows, self.columns, self.count)

    def leave(self, rows: DataFrame) -> DataFrame:
        """The rows that have none of the keys."""
        named, condition = _on(self.rows, self.columns)
        return rows.join(F.broadcast(named) if self.count <= BROADCAST_KEYS else named, condition, "left_anti")

    def near(self, alias: str | None) -> str | None:
        """A condition in SQL that all rows of the keys match; None where no column has values of a plain type."""
        prefix = "" if alias is None else f"{alias}."
        parts = [span.text(f"{prefix}{quoted(column)}") for column, span in self.spans.items() if span is not None]
        return " AND ".join(parts) or None


def _on(keys: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, list[Column]]:
    """The keys under other names, and the condition by which rows have them."""
    named = keys.select(*[F.col(quoted(name)).alias(f"_freshline_k{n}") for n, name in enumerate(columns)])
    return named, [F.col(quoted(name)).eqNullSafe(F.col(f"_freshline_k{n}")) for n, name in enumerate(columns)]


def _with_keys(rows: DataFrame, keys: DataFrame, columns: Sequence[str], count: int) -> DataFrame:
    named, condition = _on(keys, columns)
    return rows.join(F.broadcast(named) if count <= BROADCAST_KEYS else named, condition, "left_semi")


def is_broken_plan(error: Py4JJavaError) -> bool:
    """Whether Spark made a plan that cannot run: its optimizer loses a column of some subqueries that keys restrict."""
    return any(sign in str(error) for sign in BROKEN_PLAN)


def why_not(error: Exception) -> Reason:
    """Why a refresh that failed with an error of REFUSED or FAILED_BY_ROWS, or a broken plan, is to be full instead."""
    lines = str(error).split("\n")
    text = next((line for line in lines if any(sign in line for sign in BROKEN_PLAN)), lines[0])
    text = in_own_words(text)
    text = text if len(text) <= 160 else text[:157] + "..."
    if any(sign in text for sign in CHANGES_GONE):
        return Reason("HISTORY_GONE", text)
    return Reason("ROW_FAILED" if isinstance(error, FAILED_BY_ROWS) else "REWRITE_MISMATCH", text)


def find_keys(
    spark: SparkSession,
    affected: Affected,
    inputs: Readings,
    schema: StructType,
    *,
    declared: str | None,
    stored: Stored,
    unchanged: Iterable[str] = (),
    grown: Iterable[str] = (),
) -> Keys | Reason:
    """The keys that the changes of the inputs affect, or why a full refresh is right.

    `inputs` has every input's rows by reading and by name in lower case, of which those that are `unchanged` have no
    changed rows, and those that have `grown` gained rows only; `schema` is the stored table's, and `stored` gives rows
    as it keeps them. Views are made in the session for what the analysis names; `drop_key_views` takes them away.
    `declared` is the query, over views of the new rows that are there under the inputs' own names; it is compared with
    what the analysis read, unless it is None.

    Raises errors of REFUSED and FAILED_BY_ROWS, which are no failures of the refresh: see `why_not`.
    """
    for (reading, relation), rows in inputs.items():
        rows.createOrReplaceTempView(view_of(reading, relation))
    searches = Searches(spark, unchanged, grown)
    for stage in affected.stages:
        _provide(spark, stage, searches)
    if declared is not None and not is_as_declared(spark, affected, declared, stored):
        return Reason("REWRITE_MISMATCH")
    for query, reason in affected.guards:
        if searches.that_find([query]) and has_rows(read_only(spark, query)):
            return reason
    fields = {field.name.lower(): field for field in schema.fields}
    if not set(affected.columns) <= fields.keys():
        return Reason("REWRITE_MISMATCH", f"columns {', '.join(affected.columns)}")
    # Fewer columns give greater keys, of which all rows are read, so columns can be left out.
    asked = [fields[name] for name in affected.columns if is_compared(fields[name].dataType)]
    if not asked:
        return Reason("NO_KEY", f"{', '.join(affected.columns)} cannot be compared")
    wanted = StructType(asked)
    names = [quoted(field.name.lower()) for field in asked]
    found = [
        typed(searches.read(query).toDF(*affected.columns).select(*names), wanted)
        for query in searches.that_find(affected.queries)
    ]
    every = reduce(DataFrame.unionAll, found or [spark.createDataFrame([], wanted)])
    return keys_of(stored(every).distinct())


def reads_as_declared(
    spark: SparkSession, affected: Affected, inputs: Readings, *, declared: str, stored: Stored
) -> bool:
    """Whether Spark finds the query as the analysis read it to be the declared one, without reading changes.

    `inputs`, `declared` and `stored` are as in `find_keys`, as are the views that are made.
    """
    for (reading, relation), rows in inputs.items():
        if reading is RelationState.NEW:
            rows.createOrReplaceTempView(view_of(reading, relation))
    for stage in affected.stages:
        read_only(spark, stage.new).createOrReplaceTempView(view_of(RelationState.NEW, stage.relation))
    return is_as_declared(spark, affected, declared, stored)


def keys_of(rows: DataFrame) -> Keys:
    """Distinct rows as keys; they are computed here."""
    served = are_served(rows.schema)
    few = take(rows, FEW_ROWS) if served else None
    if few is not None:
        return keys_of_few(few)
    # The failed attempt is not repeated.
    settled, count = materialize_once(rows, expected=LIKELY_MANY + 1 if served else 0)
    return Keys(settled, tuple(rows.columns), count, _spans(settled, count, rows.schema))


def keys_of_few(rows: ArrowRows) -> Keys:
    """Distinct rows that are here as keys."""
    spans: dict[str, ValueRange | None] = dict.fromkeys(rows.schema.names)
    for field in rows.schema.fields:
        values = _written_here(rows.table[field.name], field.dataType)
        if values is not None:
            spans[field.name] = _span_of(values, field.dataType)
    return Keys(rows, tuple(rows.schema.names), rows.count, spans)


def typed(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the columns of a schema, by place."""
    return rows.toDF(*schema.names).select(
        *[F.col(quoted(field.name)).cast(field.dataType).alias(field.name) for field in schema.fields]
    )


def _spans(rows: DataFrame, count: int, schema: StructType) -> dict[str, ValueRange | None]:
    """Where the values of each column lie, None for one whose values would not come back from Python as they went."""
    found: dict[str, ValueRange | None] = dict.fromkeys(schema.names)
    plain = [field for field in schema.fields if isinstance(field.dataType, WRITTEN)]
    if not plain:
        return found
    good = [comes_back(F.col(quoted(field.name)), field.dataType) for field in plain]
    written = [for_literal(F.col(quoted(field.name)), field.dataType) for field in plain]
    shown = [F.when(sound, value) for value, sound in zip(written, good, strict=True)]
    if count > FEW_ROWS:
        asked = [
            each
            for sound, value in zip(good, shown, strict=True)
            for each in (F.min(value), F.max(value), F.count_if(value.isNull()), F.bool_and(sound))
        ]
        ends = rows.agg(*asked).collect()[0]
        for number, field in enumerate(plain):
            least, greatest, nulls, sound = ends[4 * number : 4 * number + 4]
            if sound:
                both = (_value(least, field.dataType), _value(greatest, field.dataType))
                found[field.name] = ValueRange((), True, True) if least is None else ValueRange(both, nulls > 0, False)
        return found
    few = rows.select(*shown, *good).collect()
    for number, field in enumerate(plain):
        values = dict.fromkeys(_value(row[number], field.dataType) for row in few)
        if not all(row[len(plain) + number] for row in few):
            continue
        found[field.name] = _span_of(values, field.dataType)
    return found


def _span_of(values: Iterable[Any], kind: DataType) -> ValueRange | None:
    """The span of a few values; None of many texts of a collation, which Spark would order in another way."""
    present = dict.fromkeys(values)
    null = present.pop(None, ...) is None
    whole = len(present) <= FEW_KEYS
    if not whole and isinstance(kind, StringType) and kind != StringType():
        return None
    return ValueRange(tuple(present) if whole else (min(present), max(present)), null, whole)


def _written_here(column: pa.ChunkedArray, kind: DataType) -> list[Any] | None:
    """The values of a column for literals; None of a type without, and where one would not come back as it is.

    The same as `comes_back` says of those that Spark has.
    """
    if not isinstance(kind, WRITTEN):
        return None
    if isinstance(kind, TimestampType):
        times = column.cast(pa.int64()).to_pylist()
        if any(time is not None and not _FIRST_TIME <= time <= _LAST_TIME for time in times):
            return None
        return [from_spark(time, kind) for time in times]
    if isinstance(kind, DateType):
        days = [None if day is None else day + _EPOCH_DAY for day in column.cast(pa.int32()).to_pylist()]
        if any(day is not None and not 1 <= day <= date.max.toordinal() for day in days):
            return None
        return [None if day is None else date.fromordinal(day) for day in days]
    if isinstance(kind, StringType):
        try:
            return [None if text is None else text.decode("utf-8") for text in column.to_pylist()]
        except UnicodeDecodeError:
            return None
    return list(column.to_pylist())


def _value(value: Any, kind: DataType) -> Any:
    """A value as it came from Spark; an empty text is one, which as a partition is NULL."""
    return from_spark(value, kind) if isinstance(kind, TimestampType) else value


def comes_back(column: Column, kind: DataType) -> Column:
    """Whether a value is the same after it was in Python, which knows no broken text and only years of four digits."""
    if isinstance(kind, StringType):
        return column.isNull() | F.is_valid_utf8(column)
    if isinstance(kind, DateType):
        return column.isNull() | column.between(F.lit("0001-01-01").cast("date"), F.lit("9999-12-31").cast("date"))
    if isinstance(kind, TimestampType):
        return column.isNull() | column.between(*(F.lit(text).cast("timestamp") for text in YEARS))
    if isinstance(kind, TimestampNTZType):
        return column.isNull() | column.between(*(F.lit(text[:-1]).cast("timestamp_ntz") for text in YEARS))
    return F.lit(True)


def _provide(spark: SparkSession, stage: QueryStage, searches: Searches) -> None:
    """Make the views of one query inside the query."""
    new = read_only(spark, stage.new)
    new.createOrReplaceTempView(view_of(RelationState.NEW, stage.relation))
    if stage.old is None:
        return
    # It is read once for everything that reads the stage, at two times.
    changed, count = _changed_of(spark, stage, stage.old, new, searches)
    if count == 0:
        searches.note_unchanged(stage.relation)
    changed.createOrReplaceTempView(view_of(RelationState.CHANGED, stage.relation))


def _changed_of(
    spark: SparkSession, stage: QueryStage, as_it_was: str, new: DataFrame, searches: Searches
) -> tuple[DataFrame, int]:
    """The changed rows of a stage and how many; its view of the rows as they were is made too."""
    columns = stage.key_columns
    fields = {field.name.lower(): field for field in new.schema.fields}
    # Of some sides of a UNION alone the types may be narrower than those of the whole.
    wanted = new.schema if stage.changed else StructType([fields[name] for name in columns])
    found = [typed(searches.read(query), wanted) for query in searches.that_find(stage.changed or stage.keys)]
    if not found:
        found = [new.select(*[quoted(name) for name in wanted.names]).limit(0)]
    rows = reduce(DataFrame.unionAll, found)
    rows, count = materialize_once(rows if stage.changed else rows.distinct())
    # An unchanged relation is as it was, and need not be planned a second time.
    old = read_only(spark, as_it_was) if count else new
    old.createOrReplaceTempView(view_of(RelationState.OLD, stage.relation))
    if stage.changed:
        return rows, count
    if count == 0:
        return new.limit(0), 0
    after, before = (_with_keys(side, rows, columns, count) for side in (new, old))
    return materialize_once(_netted(after, before) if stage.exact else after.unionAll(before))


def _netted(new: DataFrame, old: DataFrame) -> DataFrame:
    """The rows of which there are more or fewer than before: of a key with many rows mostly few change."""
    return net(new.withColumn(SIGN, F.lit(1)).unionAll(old.withColumn(SIGN, F.lit(-1))), new.columns)


def drop_key_views(spark: SparkSession, affected: Affected, relations: Sequence[str]) -> None:
    """Take the views of `find_keys` away again."""
    for relation in (*relations, *(stage.relation for stage in affected.stages)):
        for reading in RelationState:
            spark.catalog.dropTempView(view_of(reading, relation))


def is_as_declared(spark: SparkSession, affected: Affected, declared: str, stored: Stored) -> bool:
    """Whether Spark finds the query as the analysis read it to be the declared one, by their plans.

    Equal rows would say little: a query may be misread in a way that the rows of today do not show.
    """
    return is_one_query(spark, affected.whole, declared, stored)


def is_one_query(spark: SparkSession, text: str, declared: str, stored: Stored) -> bool:
    """Whether Spark plans a query as a rule wrote it, and the declared one, in one way."""
    read, asked = stored(read_only(spark, text)), stored(read_only(spark, declared))
    if [field.dataType for field in read.schema.fields] != [field.dataType for field in asked.schema.fields]:
        return False
    if read.sameSemantics(asked) or is_planned_alike(read, asked):
        return True
    with _plain_plans(spark):
        read, asked = read_only(spark, text), read_only(spark, in_lower_case(declared))
        return is_planned_alike(stored(read), stored(asked))


def is_planned_alike(read: DataFrame, asked: DataFrame) -> bool:
    """Whether Spark plans two queries in one way, so that they are one query."""
    plans = [rows._jdf.queryExecution().optimizedPlan() for rows in (read, asked)]
    return bool(plans[0].sameResult(plans[1]))


@contextmanager
def _plain_plans(spark: SparkSession) -> Iterator[None]:
    """Plans that differ only where the queries do; letter case matters to them and must be the same."""
    before = spark.conf.get(EXCLUDED_RULES, None)
    rules = ",".join(f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in MOVING_RULES)
    spark.conf.set(EXCLUDED_RULES, rules)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(EXCLUDED_RULES)
        else:
            spark.conf.set(EXCLUDED_RULES, before)


def difference_by_key(new: DataFrame, old: DataFrame, key: Sequence[str]) -> DataFrame:
    """The changes that turn `old` into `new`, rows being unique by `key`: the columns and OP."""
    names = old.columns
    left = new.select(F.struct(*[F.col(quoted(name)) for name in names]).alias("n"))
    right = old.select(F.struct(*[F.col(quoted(name)) for name in names]).alias("o"))
    on = reduce(
        lambda a, b: a & b, [F.col(f"n.{quoted(k)}").eqNullSafe(F.col(f"o.{quoted(k)}")) for k in key], F.lit(True)
    )
    joined = left.join(right, on, "full_outer")
    op = F.when(F.col("o").isNull(), F.lit(INSERT)).when(F.col("n").isNull(), F.lit(DELETE))
    op = op.when(_differ(old.schema), F.lit(UPDATE))
    row = F.coalesce("n", "o")
    picked = joined.select(op.alias(OP), row.alias("r")).where(F.col(OP).isNotNull())
    return picked.select(OP, *[F.col(f"r.{quoted(name)}").alias(name) for name in names])


def _differ(schema: StructType) -> Column:
    parts = []
    for field in schema.fields:
        new, old = (F.col(f"{side}.{quoted(field.name)}") for side in ("n", "o"))
        if not is_compared(field.dataType):
            parts.append(F.lit(True))
            continue
        parts.append(~new.eqNullSafe(old))
        if is_loosely_equal(field.dataType):
            # Zeros of either sign are equal, and so are texts by a collation; the query's own is stored.
            parts.append(~new.cast("string").eqNullSafe(old.cast("string")))
    return reduce(lambda left, right: left | right, parts)


def difference_by_bag(new: DataFrame, old: DataFrame, keys: Keys) -> DataFrame:
    """The changes that turn `old` into `new` where rows have no key of their own: the columns and OP.

    Rows are added one by one. Where a row goes away, all rows of its affected key go (one DELETE with the key's columns
    filled) and those that belong there are added again: of equal rows one cannot be named.
    """
    names = old.columns
    new = new.select(*[F.col(quoted(name)) for name in names])
    signed = new.withColumn(SIGN, F.lit(1)).unionAll(old.withColumn(SIGN, F.lit(-1)))
    counted = counted_by_value(signed, names)
    if counted is None:
        gone = keys.rows
        added = new
    else:
        net, _ = materialize_once(counted)
        gone = net.where(F.col(NET) < 0).select(*[F.col(quoted(name)) for name in keys.columns]).distinct()
        more = net.where(F.col(NET) > 0)
        named, condition = _on(gone, keys.columns)
        times = F.explode(F.sequence(F.lit(1), F.col(NET)))
        alone = more.join(F.broadcast(named), condition, "left_anti").withColumn("_freshline_copy", times)
        again = new.join(F.broadcast(named), condition, "left_semi")
        added = again.unionAll(alone.select(*[F.col(quoted(name)) for name in names]))
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in old.schema.fields]
    present = {name.lower() for name in keys.columns}
    tombstones = gone.select(
        F.lit(DELETE).alias(OP),
        *[
            F.col(quoted(field.name)) if field.name.lower() in present else empty
            for field, empty in zip(old.schema.fields, nothing, strict=True)
        ],
    )
    inserts = added.select(F.lit(INSERT).alias(OP), *[F.col(quoted(name)) for name in names])
    return inserts.unionAll(tombstones)

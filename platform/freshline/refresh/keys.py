"""The rows of affected keys: which keys, the query restricted to them, and how it differs from what is stored.

The keys come from the change sets of the inputs (`plan.affected`). The query itself is never rewritten for rows: it is
the user's own, over the inputs as they are now, of which only the rows with an affected key are asked for. Spark
carries that condition to the scans as far as it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

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
)

from freshline.plan.affected.values import Affected, Reading, Stage, view_of
from freshline.plan.reason import Reason
from freshline.refresh.literal import partition_predicate, quoted

# Up to this many keys are written into conditions, where scans can use them; more are joined.
FEW_KEYS = 1_000
# Up to this many rows are kept in the driver.
FEW_ROWS = 5_000
# Up to this many keys are sent to every task instead of being shuffled.
BROADCAST_KEYS = 500_000
OP = "_freshline_op"
INSERT, UPDATE, DELETE = "I", "U", "D"
WRITTEN = (BooleanType, DateType, DecimalType, IntegralType, StringType)
Readings = Mapping[tuple[Reading, str], DataFrame]


@dataclass(frozen=True)
class Keys:
    """Affected keys: distinct `rows` of `columns` in the types of the table, and how many.

    `values` are those of each column that can be written into a condition, None for a column of which there are too
    many or whose type has no exact literal.
    """

    rows: DataFrame
    columns: tuple[str, ...]
    count: int
    values: Mapping[str, tuple[object, ...] | None]

    def restrict(self, rows: DataFrame) -> DataFrame:
        """The rows that have one of the keys; a NULL in a key is a value like any other."""
        exact = len(self.columns) == 1 and self.values[self.columns[0]] is not None
        for column in self.columns:
            values = self.values[column]
            if values is not None:
                rows = rows.where(_among(F.col(quoted(column)), values))
        if exact:
            return rows
        return _with_keys(rows, self.rows, self.columns, self.count)

    def leave(self, rows: DataFrame) -> DataFrame:
        """The rows that have none of the keys."""
        named, condition = _on(self.rows, self.columns)
        return rows.join(F.broadcast(named) if self.count <= BROADCAST_KEYS else named, condition, "left_anti")

    def near(self, alias: str) -> str | None:
        """A condition in SQL that all rows of the keys meet; None where no column has few values of a plain type."""
        parts = []
        for column, values in self.values.items():
            if values is not None:
                texts = [(value,) for value in values]
                parts.append(f"({partition_predicate([f'{alias}.{quoted(column)}'], texts)})")
        return " AND ".join(parts) or None


def _among(column: Column, values: Sequence[object]) -> Column:
    present = [value for value in values if value is not None]
    found = column.isin(present) if present else F.lit(False)
    return found | column.isNull() if len(present) < len(values) else found


def _on(keys: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, list[Column]]:
    """The keys under other names, and the condition by which rows have them."""
    named = keys.select(*[F.col(quoted(name)).alias(f"_freshline_k{n}") for n, name in enumerate(columns)])
    return named, [F.col(quoted(name)).eqNullSafe(F.col(f"_freshline_k{n}")) for n, name in enumerate(columns)]


def _with_keys(rows: DataFrame, keys: DataFrame, columns: Sequence[str], count: int) -> DataFrame:
    named, condition = _on(keys, columns)
    return rows.join(F.broadcast(named) if count <= BROADCAST_KEYS else named, condition, "left_semi")


def find_keys(spark: SparkSession, affected: Affected, inputs: Readings, schema: StructType) -> Keys | Reason:
    """The keys that the changes of the inputs affect, or why a full refresh is right.

    `inputs` holds every input's rows by reading and by name in lower case; `schema` is the stored table's. Views are
    made in the session for what the analysis names; `drop_key_views` takes them away.
    """
    for (reading, relation), rows in inputs.items():
        rows.createOrReplaceTempView(view_of(reading, relation))
    for stage in affected.stages:
        _provide(spark, stage)
    for query, reason in affected.guards:
        if spark.sql(query).limit(1).count():
            return reason
    fields = {field.name.lower(): field for field in schema.fields}
    columns = tuple(fields[name].name for name in affected.columns)
    kinds = [fields[name].dataType for name in affected.columns]
    found = [spark.sql(query) for query in affected.queries]
    every = reduce(DataFrame.unionAll, [_typed(rows, columns, kinds) for rows in found])
    rows, count = settle(every.distinct())
    return Keys(rows, columns, count, _values(rows, count, columns, kinds))


def _typed(rows: DataFrame, columns: Sequence[str], kinds: Sequence[DataType]) -> DataFrame:
    return rows.select(
        *[
            F.col(quoted(found)).cast(kind).alias(name)
            for found, name, kind in zip(rows.columns, columns, kinds, strict=True)
        ]
    )


def settle(rows: DataFrame) -> tuple[DataFrame, int]:
    """Compute rows once, and how many there are.

    Few are kept in the driver as a relation of their own: what joins with them or sends them to tasks needs no job for
    it. More stay where they were computed.
    """
    spark = rows.sparkSession
    found = rows.limit(FEW_ROWS + 1)._jdf.collectAsList()
    if found.size() <= FEW_ROWS:
        return DataFrame(spark._jsparkSession.createDataFrame(found, rows._jdf.schema()), spark), found.size()
    kept = rows.localCheckpoint(eager=True)
    return kept, kept.count()


def _values(
    rows: DataFrame, count: int, columns: Sequence[str], kinds: Sequence[DataType]
) -> dict[str, tuple[object, ...] | None]:
    if count > FEW_KEYS:
        return dict.fromkeys(columns)
    few = rows.collect()
    return {
        name: tuple(dict.fromkeys(row[name] for row in few)) if isinstance(kind, WRITTEN) else None
        for name, kind in zip(columns, kinds, strict=True)
    }


def _provide(spark: SparkSession, stage: Stage) -> None:
    """Make the views of one query inside the query."""
    new = spark.sql(stage.new)
    new.createOrReplaceTempView(view_of(Reading.NEW, stage.relation))
    if stage.old is None:
        return
    old = spark.sql(stage.old)
    old.createOrReplaceTempView(view_of(Reading.OLD, stage.relation))
    if stage.changed:
        changed = reduce(DataFrame.unionAll, [spark.sql(query) for query in stage.changed])
    else:
        columns = stage.key_columns
        keys, count = settle(reduce(DataFrame.unionAll, [spark.sql(query) for query in stage.keys]).distinct())
        keys = keys.toDF(*columns)
        changed = _with_keys(new, keys, columns, count).unionAll(_with_keys(old, keys, columns, count))
    # It is read once for everything that reads the stage, at two times.
    changed, _ = settle(changed)
    changed.createOrReplaceTempView(view_of(Reading.CHANGED, stage.relation))


def drop_key_views(spark: SparkSession, affected: Affected, relations: Sequence[str]) -> None:
    """Take the views of `find_keys` away again."""
    for relation in (*relations, *(stage.relation for stage in affected.stages)):
        for reading in Reading:
            spark.catalog.dropTempView(view_of(reading, relation))


def same_query(spark: SparkSession, affected: Affected, declared: DataFrame) -> bool:
    """Whether Spark finds the query as the analysis read it to be the declared one.

    The views of `find_keys` must be there, and `declared` must be computed over the same rows. Spark's plans are
    compared; where they differ in form, it is the rows that count.
    """
    read = spark.sql(affected.whole)
    if len(read.columns) != len(declared.columns):
        return False
    if read.sameSemantics(declared):
        return True
    plans = [rows._jdf.queryExecution().optimizedPlan() for rows in (read, declared)]
    if plans[0].sameResult(plans[1]):
        return True
    if [f.dataType for f in read.schema.fields] != [f.dataType for f in declared.schema.fields]:
        return False
    if "map<" in read.schema.simpleString():
        return False
    return not (read.exceptAll(declared).limit(1).count() or declared.exceptAll(read).limit(1).count())


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
    parts = [
        F.lit(True)
        if "map<" in field.dataType.simpleString()
        else ~F.col(f"n.{quoted(field.name)}").eqNullSafe(F.col(f"o.{quoted(field.name)}"))
        for field in schema.fields
    ]
    return reduce(lambda left, right: left | right, parts)


def difference_by_bag(new: DataFrame, old: DataFrame, keys: Keys) -> DataFrame:
    """The changes that turn `old` into `new` where rows have no key of their own: the columns and OP.

    Rows are added one by one. Where a row goes away, all rows of its affected key go (one DELETE with the key's columns
    filled) and those that belong there are added again: of equal rows one cannot be named.
    """
    names = old.columns
    new = new.select(*[F.col(quoted(name)) for name in names])
    if "map<" in old.schema.simpleString():
        gone = keys.rows
        added = new
    else:
        net = (
            new.withColumn(OP, F.lit(1))
            .unionAll(old.withColumn(OP, F.lit(-1)))
            .groupBy(*[F.col(quoted(name)) for name in names])
            .agg(F.sum(OP).alias(OP))
            .where(F.col(OP) != 0)
        )
        net, _ = settle(net)
        gone = net.where(F.col(OP) < 0).select(*[F.col(quoted(name)) for name in keys.columns]).distinct()
        more = net.where(F.col(OP) > 0)
        named, condition = _on(gone, keys.columns)
        times = F.explode(F.sequence(F.lit(1), F.col(OP)))
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

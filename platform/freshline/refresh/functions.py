"""Calling the function of a table in Python for some of its input rows, and trying out what its declaration promises.

A function that promises `keys` or `append` is called with the rows that changes affect. Its code does not show whether
it keeps its promise. So it is tried: its rows for half of the keys, or of the rows, must be those that it gives for
all. A function that ranks, counts or compares across keys is found out wherever that shows in the rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned, read_whole
from freshline.compute.keys import Keys, keys_of
from freshline.compute.literal import collect_for_message
from freshline.compute.netting import is_compared
from freshline.errors import PromiseBrokenError, QueryError
from freshline.refresh.attempt import NotIncremental
from freshline.refresh.computed_rows import table_rows, type_text
from freshline.refresh.runtime import Runtime
from freshline.values.column_types import takes_values
from freshline.values.names import TableName, quoted
from freshline.values.query import PythonQuery
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec

# How many rows of a broken promise are shown.
SAMPLES = 3
# Distinguishes equal rows where a promise is tried.
NUMBER = "_freshline_number"


@dataclass(frozen=True)
class Function:
    """The function of a table, its inputs at their positions, and the owner of its rows' caches."""

    runtime: Runtime
    spark: SparkSession
    spec: TableSpec
    pins: Mapping[TableName, Pinned]
    held: ExitStack
    cancellation: Cancellation

    @property
    def query(self) -> PythonQuery:
        """The function in the declaration."""
        assert isinstance(self.spec.query, PythonQuery)
        return self.spec.query

    def rows(self, frames: Mapping[TableName, DataFrame]) -> DataFrame:
        """Its rows for these rows of some inputs, and for all rows of the others.

        Raises QueryError, PythonLimitError and CancelledError.
        """
        return table_rows(self.made(frames), self.spec)

    def made(self, frames: Mapping[TableName, DataFrame]) -> DataFrame:
        """As `rows`, with what a class says of its keys (`freshline.keyed.batches`)."""
        tables = self.runtime.python_tables
        assert tables is not None, "tables in Python need the engine's worker"
        with ExitStack() as views:
            given = {}
            for name, frame in frames.items():
                given[name] = f"freshline_rows_{uuid4().hex}"
                frame.createGlobalTempView(given[name])
                views.callback(self.spark.catalog.dropGlobalTempView, given[name])
            view = tables.compute(self.spec, list(self.pins.values()), self.cancellation, given)
        self.held.callback(tables.drop, view)
        return self.spark.table(f"global_temp.{view}")

    def rows_of_keys(self, keys: Keys) -> DataFrame:
        """Its rows for the rows of some keys; the inputs whose key is not declared are whole."""
        return self.rows({name: self.with_keys(name, columns, keys) for name, columns in self.query.keys})

    def with_keys(self, name: TableName, columns: tuple[str, ...], keys: Keys) -> DataFrame:
        """The rows of an input that have one of the keys, which are called otherwise there."""
        spans = {column: keys.spans[known] for column, known in zip(columns, keys.columns, strict=True)}
        return replace(keys, held=keys.rows.toDF(*columns), columns=columns, spans=spans).restrict(
            read_whole(self.spark, self.pins[name])
        )

    def all_keys(self, like: DataFrame) -> DataFrame:
        """The keys of all inputs, distinct, with the names and types of the columns of `like`."""
        found = [
            self.as_keys(read_whole(self.spark, self.pins[name]), columns, like) for name, columns in self.query.keys
        ]
        every = found[0]
        for more in found[1:]:
            every = every.unionAll(more)
        return every.distinct()

    def as_keys(self, rows: DataFrame, columns: tuple[str, ...], like: DataFrame) -> DataFrame:
        """The columns of some rows as keys.

        Raises QueryError where the rows have no such column, and PromiseBrokenError where those of the result do not
        take each of its values: the rows of such a key would not be found again.
        """
        missing = [name for name in columns if name.lower() not in {known.lower() for known in rows.columns}]
        if missing:
            raise QueryError(
                f"`keys` names {missing[0]}, and the rows have {', '.join(rows.columns)}. Correct `keys`.",
                where=str(self.spec.written_at),
            )
        given = {field.name.lower(): field.dataType for field in rows.schema.fields}
        found = []
        for column, known in zip(columns, self.key_names(like), strict=True):
            kind, own = given[column.lower()], like.schema[known].dataType
            if not takes_values(type_text(own), type_text(kind)):
                raise self._broken(
                    f"the key is {type_text(kind)} in the input ({column}) and {type_text(own)} in its rows ({known}), "
                    "which does not take each value as it is"
                )
            found.append(F.col(quoted(column)).cast(own).alias(known))
        return rows.select(*found)

    def key_names(self, rows: DataFrame) -> tuple[str, ...]:
        """The key's columns as the result spells them. Raises QueryError where it has no such column."""
        spelling = {name.lower(): name for name in rows.columns}
        missing = [name for name in self.query.key_columns if name.lower() not in spelling]
        if missing:
            raise QueryError(
                f"the rows of {self.query.function} have no column {missing[0]}, which `keys` names first. They have "
                f"{', '.join(rows.columns)}.",
                where=str(self.spec.written_at),
            )
        return tuple(spelling[name.lower()] for name in self.query.key_columns)

    def try_promise(self, whole: DataFrame) -> None:
        """Compare what it gives for halves of its keys, or rows, with the rows that it gave for all of them.

        Raises PromiseBrokenError.
        """
        if self.query.keys:
            self._try_keys(whole)
        elif self.query.append is not None:
            self._try_append(whole, self.query.append)

    def _try_keys(self, whole: DataFrame) -> None:
        names = self.key_names(whole)
        every = self.all_keys(whole.select(*[F.col(quoted(name)) for name in names]))
        half = keys_of(every.where(_half([F.col(quoted(name)) for name in names])))
        self.require_own_keys(whole, keys_of(every))
        self._require_same(self.rows_of_keys(half), half.restrict(whole), "for half of its keys it gives other rows")

    def _try_append(self, whole: DataFrame, name: TableName) -> None:
        rows = read_whole(self.spark, self.pins[name])
        by = [F.col(quoted(field.name)) for field in rows.schema.fields if is_compared(field.dataType)]
        if not by:
            return
        half = _half(by)
        if len(by) == len(rows.schema.fields):
            # The second of two equal rows is in the other half: a function that takes it away would not be found.
            rows = rows.withColumn(NUMBER, F.row_number().over(Window.partitionBy(*by).orderBy(F.lit(0))))
            half = half == (F.pmod(F.col(NUMBER), F.lit(2)) == 0)
        first, second = (self.rows({name: rows.where(own).drop(NUMBER)}) for own in (half, ~half))
        self._require_same(first.unionByName(second), whole, "for two halves of the rows it gives others than for all")

    def require_stored_keys(self, keys: Keys) -> None:
        """Raises NotIncremental for an empty text, or NULL, in a key that is a partition too.

        Delta stores NULL for both, so that stored rows do not show of which of the two keys they are.
        """
        partitions = {column.lower() for column in self.spec.partitioned_by}
        texts = [
            F.coalesce(F.col(quoted(field.name)), F.lit("")) == ""
            for field in keys.rows.schema.fields
            if field.name.lower() in partitions and isinstance(field.dataType, StringType)
        ]
        if texts and keys.rows.where(reduce(lambda one, other: one | other, texts)).limit(1).count():
            raise NotIncremental(Reason("UNSUPPORTED", "an empty text or NULL in a key that is a partition"))

    def require_own_keys(self, rows: DataFrame, keys: Keys) -> None:
        """Raises PromiseBrokenError where a row has a key that none of the rows had from which it was made."""
        strange = collect_for_message(keys.leave(rows).limit(SAMPLES))
        if strange:
            raise self._broken(f"a row has a key that no input row has, such as {_text(strange[0].asDict())}")

    def _require_same(self, some: DataFrame, expected: DataFrame, found: str) -> None:
        columns = [name for name in expected.columns if is_compared(expected.schema[name].dataType)]
        shown = [F.col(quoted(name)) for name in columns]
        net = (
            some.select(*shown, F.lit(1).alias("_freshline_net"))
            .unionAll(expected.select(*shown, F.lit(-1).alias("_freshline_net")))
            .groupBy(*shown)
            .agg(F.sum("_freshline_net").alias("_freshline_net"))
            .where(F.col("_freshline_net") != 0)
        )
        different = collect_for_message(net.drop("_freshline_net").limit(SAMPLES))
        if different:
            raise self._broken(f"{found}, such as {_text(different[0].asDict())}")

    def _broken(self, found: str) -> PromiseBrokenError:
        return PromiseBrokenError(str(self.spec.name), self.query.function, found, where=str(self.spec.written_at))


def _half(columns: Sequence[Column]) -> Column:
    return F.pmod(F.xxhash64(*columns), F.lit(2)) == 0


def _text(row: Mapping[str, object]) -> str:
    text = str(dict(row))
    return text if len(text) <= 200 else f"{text[:197]}.."

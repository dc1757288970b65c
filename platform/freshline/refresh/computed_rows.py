"""Computing a table's rows: the declared query over pinned inputs, in one session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from freshline.compute.cancellation import Cancellation
from freshline.compute.constraints import leave_out
from freshline.compute.fold import as_stored, fold_all
from freshline.compute.graph import GraphRun
from freshline.compute.inputs import Pinned, read_whole, shadow_inputs
from freshline.compute.literal import collect_for_message
from freshline.compute.netting import is_ordered
from freshline.compute.read_only import read_declared
from freshline.errors import DuplicateKeyError, LookupKeyError, ProcessKeyError
from freshline.keyed.batches import KIND
from freshline.query.first_rows import first_rows
from freshline.query.query import read_query
from freshline.query.select_list import groups_by
from freshline.refresh.runtime import Runtime
from freshline.refresh.time_partitions import within
from freshline.values.names import TableName, quoted
from freshline.values.partition import Interval
from freshline.values.process import require_columns, require_key_types
from freshline.values.query import LookupJoin, PythonQuery, SqlQuery
from freshline.values.spec import SourceSpec, TableSpec


def whole_inputs(
    spark: SparkSession, spec: TableSpec, pins: Mapping[TableName, Pinned], *, only: Sequence[TableName] | None = None
) -> dict[TableName, DataFrame]:
    """Every input (or those named) at its position, dimensions reduced to one row a key where the declaration asks."""
    frames = {}
    for name, pinned in pins.items():
        if only is not None and name not in only:
            continue
        rows = read_whole(spark, pinned, arrival=spec.merge is not None and pinned.is_log, arrived=spec.query.arrived)
        if spec.lookup_on_duplicate == "any" and name in spec.lookups and isinstance(spec.query, SqlQuery):
            for join in spec.query.lookup_joins:
                if join.table == name:
                    rows = _any_row(rows, join)
        frames[name] = rows
    return frames


def _any_row(rows: DataFrame, join: LookupJoin) -> DataFrame:
    """One row a lookup key: the least, so that the same version always gives the same row."""
    keys = [quoted(column) for column, _ in join.keys]
    row = F.struct(*[F.col(quoted(column)) for column in rows.columns])
    return rows.groupBy(*keys).agg(F.min(row).alias("_freshline_row")).select("_freshline_row.*")


def run_query(spark: SparkSession, spec: TableSpec, pins: Mapping[TableName, Pinned]) -> DataFrame:
    """The table's rows over the views of the session: what the query yields and no constraint leaves out."""
    return leave_out(run_before_constraints(spark, spec, pins), spec.constraints)


def run_before_constraints(
    spark: SparkSession,
    spec: TableSpec,
    pins: Mapping[TableName, Pinned],
    intervals: Sequence[Interval] | None = None,
    check: Callable[[], None] = lambda: None,
) -> DataFrame:
    """The query over the views of the session; `version_of` gives the pinned versions.

    With `intervals`, only those of its rows that belong to these time partitions. `check` raises where the request was
    cancelled, and is called while a graph function is computed here.
    """
    if spec.sql.graph is not None:
        graph = GraphRun(spark, spec.sql, str(spec.written_at), check)
        return as_stored(graph.rows(graph.values(graph.edges())), spec)
    ask_outside(spark, pins)
    versions = {join.alias.lower(): pins[join.table].position.version for join in spec.sql.lookup_joins}
    rows = as_stored(_in_one_order(spark, spec.sql.render(versions=versions), views_of(spec)), spec)
    return rows if intervals is None else rows.where(within(spec, rows.schema, intervals))


def ask_outside(spark: SparkSession, pins: Mapping[TableName, Pinned]) -> None:
    """Ask sources for the keys that a query over the views of the session needs, where a refresh asks.

    Raises AnswersArrivedError where answers came that the pinned positions do not have.
    """
    ask = next((pinned.ask for pinned in pins.values() if pinned.ask is not None), None)
    if ask is not None:
        ask(spark, pins)


def views_of(spec: TableSpec) -> list[str]:
    """The views that the query of a table reads."""
    return [name.view for name in spec.query.reads]


def _in_one_order(spark: SparkSession, text: str, views: Sequence[str]) -> DataFrame:
    """The rows of a declared query; where it keeps the first ones of an order, always the same of equal ones."""
    rows = read_declared(spark, text, views)
    first = first_rows(text)
    if first is None or not all(is_ordered(field.dataType) for field in rows.schema.fields):
        return rows
    return read_declared(spark, first.ordered(rows.columns), views)


def compute_whole(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    pins: Mapping[TableName, Pinned],
    cancellation: Cancellation,
    *,
    constraint_check: Callable[[DataFrame], DataFrame] | None = None,
) -> tuple[DataFrame, str | None]:
    """All rows of the table at the pinned versions; the name of the view to drop afterwards, for a Python table.

    `constraint_check` takes the place of leaving out the rows that violate constraints; not for a merge, whose rows are
    checked before they are folded.
    """
    checked = partial(leave_out, constraints=spec.constraints) if constraint_check is None else constraint_check
    if isinstance(spec.query, PythonQuery):
        assert runtime.python_tables is not None, "tables in Python need the engine's worker"
        if spec.query.process is not None:
            (pinned,) = pins.values()
            require_process_columns(spec, read_whole(spark, pinned).schema)
        view = runtime.python_tables.compute(spec, list(pins.values()), cancellation)
        return checked(table_rows(spark.table(f"global_temp.{view}"), spec)), view
    shadow_inputs(whole_inputs(spark, spec, pins))
    if spec.merge is not None:
        return as_stored(fold_all(spark, spec), spec), None
    return checked(run_before_constraints(spark, spec, pins, check=cancellation.check)), None


def table_rows(made: DataFrame, spec: TableSpec) -> DataFrame:
    """The rows of a table in Python among those that its code made; the others are entries of keys."""
    process = spec.query.process if isinstance(spec.query, PythonQuery) else None
    if process is not None:
        made = made.where(F.col(KIND).isNull()).select(*[F.col(quoted(name)) for name in process.names])
    return as_stored(made, spec)


def require_process_columns(spec: TableSpec, rows: StructType) -> None:
    """Raises ProcessKeyError for keys and an order of a class that do not serve; `rows` is its input's schema.

    Most of them show in the declaration. That of a table in Python, or of a table over one, shows no types or no
    columns.
    """
    process = spec.query.process if isinstance(spec.query, PythonQuery) else None
    if process is None:
        return
    types = {field.name.lower(): type_text(field.dataType) for field in rows.fields}
    names = tuple(name for name in rows.names if not name.lower().startswith("_freshline_"))
    for _, sentence in (*require_columns(process, names, types), *require_key_types(process, types)):
        raise ProcessKeyError(sentence, where=str(spec.written_at))


def type_text(kind: DataType) -> str:
    """A type of Spark, in upper case as in declarations."""
    return kind.simpleString().upper()


def check_lookups(runtime: Runtime, spark: SparkSession, spec: TableSpec, pins: Mapping[TableName, Pinned]) -> None:
    """Refuse a dimension with two rows for one lookup key, unless its declaration rules that out."""
    if spec.lookup_on_duplicate == "any":
        return
    for join in spec.query.lookup_joins:
        dimension = runtime.graph.spec(join.table)
        columns = [column for column, _ in join.keys]
        if isinstance(dimension, SourceSpec) and dimension.is_lookup:
            continue  # of each key there is one answer
        declared = {key.lower() for key in dimension.primary_key}
        if isinstance(dimension, TableSpec) and declared and declared <= {column.lower() for column in columns}:
            continue
        rows = read_whole(spark, pins[join.table])
        for column in columns:
            rows = rows.where(F.col(quoted(column)).isNotNull())
        samples = _repeated(rows, columns)
        if samples:
            raise LookupKeyError(str(spec.name), str(join.table), columns, samples)


def check_key(rows: DataFrame, spec: TableSpec) -> None:
    """Refuse rows of which two share a primary key."""
    samples = _repeated(rows, spec.primary_key)
    if samples:
        raise DuplicateKeyError(str(spec.name), spec.primary_key, samples)


def check_key_against(rows: DataFrame, stored: DataFrame, spec: TableSpec) -> None:
    """Refuse new rows whose primary key the table has already."""
    condition = [F.col(f"n.{quoted(key)}").eqNullSafe(F.col(f"o.{quoted(key)}")) for key in spec.primary_key]
    new = rows.select(*[F.col(quoted(key)) for key in spec.primary_key]).alias("n")
    met = collect_for_message(new.join(stored.alias("o"), condition, "left_semi").limit(5))
    if met:
        raise DuplicateKeyError(str(spec.name), spec.primary_key, [row.asDict() for row in met])


def _repeated(rows: DataFrame, columns: Sequence[str]) -> list[dict[str, object]]:
    keys = [F.col(quoted(column)) for column in columns]
    repeated = rows.groupBy(*keys).agg(F.count(F.lit(1)).alias("_freshline_count")).where("_freshline_count > 1")
    return [row.asDict() for row in collect_for_message(repeated.drop("_freshline_count").limit(5))]


def is_unique_by_query(spec: TableSpec) -> bool:
    """Whether the outermost GROUP BY already makes the primary key unique."""
    keys = groups_by(read_query(spec.query)) if not isinstance(spec.query, PythonQuery) else None
    return keys is not None and keys <= {key.lower() for key in spec.primary_key}

"""Rows against the constraints of their declaration.

A row satisfies a condition that is true for it; false and NULL are violations. Rows that violate DROP ROW or QUARANTINE
are no rows of the table: whoever computes rows leaves them out, so that refreshing by any strategy and verifying agree.
Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from freshline.compute.inputs import SEQ
from freshline.compute.read_only import read_expression
from freshline.errors import ConstraintError
from freshline.values.connector import RETRIED_IN
from freshline.values.names import RESERVED_COLUMN, quoted
from freshline.values.receipt import Violation
from freshline.values.spec import Constraint, OnViolation

# The names of the constraints that a row violates.
VIOLATED = "_freshline_violated"
ROWS = "_freshline_rows"
# How many rows, and how much of each, are shown of a constraint.
SAMPLES = 3
SAMPLE_CHARACTERS = 300

TABLE_QUARANTINE_SCHEMA = StructType(
    [
        StructField(SEQ, LongType()),
        StructField("positions", StringType()),
        StructField("raw", StringType()),
        StructField("error", StringType()),
        StructField("message", StringType()),
        StructField("quarantined_at", TimestampType()),
    ]
)


# The row of a lookup without an answer that waits beside the table, and the refresh with which it left the quarantine.
WAITING_ROW = "_freshline_waiting_row"
LOOKUP_QUARANTINE_SCHEMA = StructType(
    [*TABLE_QUARANTINE_SCHEMA.fields, StructField(RETRIED_IN, LongType()), StructField(WAITING_ROW, StringType())]
)


def violated(constraints: Sequence[Constraint]) -> Column:
    """The names of the constraints that a row violates, in the order of their declaration."""
    names = [F.when(~_is_met(constraint), F.lit(constraint.name)) for constraint in constraints]
    return F.array_compact(F.array(*names)) if names else F.array().cast("array<string>")


def leave_out(rows: DataFrame, constraints: Sequence[Constraint], *, but: Column | None = None) -> DataFrame:
    """The rows that the table has: those that violate no constraint which leaves rows out.

    Rows that satisfy `but` are not judged.
    """
    strict = [constraint for constraint in constraints if constraint.on_violation.leaves_out]
    if not strict:
        return rows
    met = reduce(lambda a, b: a & b, [_is_met(constraint) for constraint in strict])
    return rows.where(met if but is None else met | but)


def kept(marked: DataFrame, constraints: Sequence[Constraint]) -> DataFrame:
    """Of rows with VIOLATED those that the table has, without VIOLATED."""
    strict = [constraint.name for constraint in constraints if constraint.on_violation.leaves_out]
    return (marked.where(~_violates_any(strict)) if strict else marked).drop(VIOLATED)


def first_violated(constraints: Sequence[Constraint], on_violation: OnViolation) -> Column:
    """The name of the first constraint of a kind that a row with VIOLATED violates; NULL for none."""
    names = [constraint.name for constraint in constraints if constraint.on_violation is on_violation]
    found = [F.when(F.array_contains(VIOLATED, name), F.lit(name)) for name in names]
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def rejected_rows(marked: DataFrame, constraints: Sequence[Constraint], positions: Column) -> DataFrame:
    """The rows with VIOLATED that go to quarantine: positions, raw, error and message."""
    name = first_violated(constraints, OnViolation.QUARANTINE)
    clauses = [F.lit(text) for each in constraints for text in (each.name, f"EXPECT ({each.condition}) is not met")]
    return marked.where(name.isNotNull()).select(
        positions.alias("positions"),
        as_json(marked.columns).alias("raw"),
        F.concat(F.lit("CONSTRAINT("), name, F.lit(")")).alias("error"),
        F.element_at(F.create_map(*clauses), name).alias("message"),
    )


def in_quarantine(rejected: DataFrame, seq: int, now: datetime, *, also: Sequence[str] = ()) -> DataFrame:
    """Rejected rows as rows of the quarantine table; `also` are further columns of it."""
    columns = [F.col(name) for name in (*(field.name for field in TABLE_QUARANTINE_SCHEMA.fields[1:-1]), *also)]
    return rejected.select(F.lit(seq).cast("bigint").alias(SEQ), *columns, F.lit(now).alias("quarantined_at"))


def as_json(columns: Iterable[str]) -> Column:
    """A row as one JSON text, without the columns that freshline works with."""
    shown = [F.col(quoted(name)) for name in columns if not name.lower().startswith(RESERVED_COLUMN)]
    return F.to_json(F.struct(*shown), {"ignoreNullFields": "false"})


def count_violations(marked: DataFrame, constraints: Sequence[Constraint], table: str) -> dict[str, Violation]:
    """How many rows violate each constraint, with samples. `marked` has VIOLATED, and is cheap to read again.

    Raises ConstraintError where one is declared to fail.
    """
    bad = marked.where(F.size(VIOLATED) > 0)
    counted = bad.select(F.explode(VIOLATED).alias(VIOLATED)).groupBy(VIOLATED).agg(F.count(F.lit(1)).alias(ROWS))
    counts = {row[VIOLATED]: row[ROWS] for row in counted.collect()}
    found = {}
    for constraint in constraints:
        if constraint.name not in counts:
            continue
        some = (
            bad.where(F.array_contains(VIOLATED, constraint.name))
            .select(as_json(marked.columns))
            .limit(SAMPLES)
            .collect()
        )
        samples = tuple(_shortened(row[0]) for row in some)
        found[constraint.name] = Violation(counts[constraint.name], samples)
        if constraint.on_violation is OnViolation.FAIL:
            raise ConstraintError(table, constraint.name, constraint.condition, counts[constraint.name], samples)
    return found


def _is_met(constraint: Constraint) -> Column:
    return F.coalesce(read_expression(f"({constraint.condition})").cast("boolean"), F.lit(False))


def _violates_any(names: Sequence[str]) -> Column:
    return F.arrays_overlap(F.col(VIOLATED), F.array(*[F.lit(name) for name in names]))


def _shortened(text: str) -> str:
    return text if len(text) <= SAMPLE_CHARACTERS else text[: SAMPLE_CHARACTERS - 3] + "..."

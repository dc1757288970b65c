"""The comparison of two bags of rows. Floating-point values count as equal within 1e-9 of their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from freshline.compute.literal import collect_for_message
from freshline.compute.netting import comparable
from freshline.values.json import to_json
from freshline.values.names import TableName, quoted

RELATIVE = 1e-9
SAMPLES = 5
# Differences up to this many rows are compared again with tolerance; more than that is no rounding.
TOLERANT_ROWS = 10_000
NET = "_freshline_net"


@dataclass(frozen=True)
class Verification:
    """How a stored table differs from its recompute.

    `missing` rows are in the recompute only, `extra` rows in the table only, `unverified` rows could not be recomputed.
    `differences` are the differing rows, each with a sign: `+` is in the table only, `-` in the recompute only. Beyond
    TOLERANT_ROWS different ones the rest is only counted. `partitions` are those that were compared, none for all of
    the table.
    """

    table: TableName
    equal: bool
    missing: int
    extra: int
    unverified: int
    version: int | None
    seconds: float
    differences: tuple[tuple[str, dict[str, Any]], ...] = ()
    error: str | None = None
    detail: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[str, ...]:
        """Some of the differing rows of each sign, as texts."""
        shown = [row for sign in "+-" for row in [r for r in self.differences if r[0] == sign][:SAMPLES]]
        return tuple(f"{sign} {row}" for sign, row in shown)

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline verify --json` prints."""
        values = to_json(replace(self, differences=()))
        del values["differences"]
        return {**values, "samples": list(self.samples)}


def compare(stored: DataFrame, expected: DataFrame) -> tuple[int, int, tuple[tuple[str, dict[str, Any]], ...]]:
    """How many rows are only in `expected`, how many only in `stored`, and these rows with their signs."""
    names = list(stored.columns)
    left = stored.select(
        *[comparable(field.dataType, F.col(quoted(field.name))).alias(field.name) for field in stored.schema]
    )
    right_schema = {field.name.lower(): field for field in expected.schema}
    right = expected.select(
        *[
            comparable(right_schema[name.lower()].dataType, F.col(quoted(right_schema[name.lower()].name))).alias(name)
            for name in names
        ]
    )
    # One pass over both sides: equal rows cancel each other out, what is left is how many more one side has of a row.
    both = left.withColumn(NET, F.lit(1)).unionByName(right.withColumn(NET, F.lit(-1)))
    net = both.groupBy(*[F.col(quoted(name)) for name in names]).agg(F.sum(NET).alias(NET)).where(F.col(NET) != 0)
    extras: list[dict[str, Any]] = []
    missings: list[dict[str, Any]] = []
    found = collect_for_message(net.limit(TOLERANT_ROWS + 1))
    for differing in found:
        row = differing.asDict(recursive=True)
        count = row.pop(NET)
        (extras if count > 0 else missings).extend([row] * abs(count))
    if len(found) > TOLERANT_ROWS:
        more, less = F.sum(F.greatest(NET, F.lit(0))), F.sum(F.greatest(-F.col(NET), F.lit(0)))
        totals = net.select(more, less).collect()[0]
        return totals[1], totals[0], _signed(extras, missings)
    floats = [f.name for f in stored.schema if _has_float(f.dataType)]
    if floats and extras and missings:
        extras, missings = _without_rounding(extras, missings, floats)
    return len(missings), len(extras), _signed(extras, missings)


def _has_float(kind: DataType) -> bool:
    return isinstance(kind, DoubleType | FloatType) or "double" in kind.simpleString() or "float" in kind.simpleString()


def _without_rounding(
    extras: Sequence[dict[str, Any]], missings: Sequence[dict[str, Any]], floats: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pair rows that are equal but for the last digits of floating-point values."""
    rest: dict[str, list[dict[str, Any]]] = {}
    for row in missings:
        rest.setdefault(repr([v for k, v in row.items() if k not in floats]), []).append(row)
    left = []
    for row in extras:
        group = rest.get(repr([v for k, v in row.items() if k not in floats]), [])
        match = next((other for other in group if all(_close(row[name], other[name]) for name in floats)), None)
        if match is None:
            left.append(row)
        else:
            group.remove(match)
    return left, [row for group in rest.values() for row in group]


def _close(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=RELATIVE)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_close(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_close(left[key], right[key]) for key in left)
    return bool(left == right)


def _signed(
    extras: Sequence[dict[str, Any]], missings: Sequence[dict[str, Any]]
) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple([("+", row) for row in extras] + [("-", row) for row in missings])

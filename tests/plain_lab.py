"""A Lab that has delta-rs and DuckDB do what they do as Spark does: a twentieth of the CPU-seconds.

The preparation of a story is no part of its claim. Delta's UPDATE and DELETE cost Spark more than the refresh after
them (1.2 CPU-seconds, and 0.8 for the refresh of a small table), a new source as much as half a refresh. A statement is
plain where Spark and delta-rs write the same rows: literals of the column's type, comparisons, and arithmetic on
numbers without a division. All others, and those of tables with features that delta-rs does not write, go to Spark.

A table is compared with its query by DuckDB first (`tests/duckdb_rows.py`); where it does not find the same rows, Spark
says what differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from sqlglot import exp

from freshline.commit.delta_log import newest_version, position_of
from freshline.compute.inputs import Pinned
from freshline.compute.literal import sql_literal
from freshline.errors import FreshlineError
from freshline.refresh.pin import pin_at
from freshline.testing import Lab
from freshline.testing.lab import in_order
from freshline.values.names import TableName, quoted
from freshline.values.spec import TableSpec
from tests.duckdb_rows import UNKNOWN, equals_its_query, rows_of

_FEATURES = frozenset({"appendOnly", "invariants", "changeDataFeed"})
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PLAIN_TYPES = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")
_WHOLE = ("byte", "short", "integer", "long")
# Of two expressions of the same kind.
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_COMPUTED = (exp.Add, exp.Sub, exp.Mul, exp.Mod)
_WRITES = re.compile(r"\s*(INSERT INTO|UPDATE|DELETE FROM)\b", re.IGNORECASE)


class PlainLab(Lab):
    """As its base."""

    def __init__(self, spark: SparkSession | None = None, *, start: datetime | None = None) -> None:
        super().__init__(spark, start=start)
        # Sources whose names Spark has.
        self._known: set[TableName] = set()

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """As of a Lab."""
        if _WRITES.match(statement) and self._is_written(statement):
            return []
        self._make_known()
        return super().sql(statement)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """As of a Lab."""
        stored = self._newest(name)
        if stored is None:
            return super().rows(name)
        try:
            return in_order(rows_of(stored))
        except UNKNOWN:
            return super().rows(name)

    def diff(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """As of a Lab."""
        spec, receipt, stored = self.runtime.graph.spec(TableName.parse(name)), self.receipt(name), self._newest(name)
        if isinstance(spec, TableSpec) and receipt is not None and stored is not None:
            try:
                inputs = pin_at(self.runtime, spec, receipt.positions)
            except FreshlineError:
                # Of the versions that are gone.
                return super().diff(name)
            if equals_its_query(spec, receipt, stored, inputs):
                return []
        return super().diff(name)

    def _make_source(
        self, name: TableName, path: Path, columns: str, partitioned_by: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        if plain_fields(columns) is None or partitioned_by or set(properties) != {"delta.enableChangeDataFeed"}:
            super()._make_source(name, path, columns, partitioned_by, properties)
        else:
            create_source(path, columns, partitioned_by, properties)

    def _newest(self, name: str) -> Pinned | None:
        spec = self.runtime.graph.spec(TableName.parse(name))
        path = self.runtime.warehouse.location(spec)
        version = newest_version(path)
        return None if version is None else Pinned(spec, path, position_of(path, version))

    def _make_known(self) -> None:
        """Give Spark the names of the sources that it did not make."""
        self._use_database()
        for name in self.runtime.graph.order:
            path = self._folder.joinpath("sources", *name.parts)
            if name not in self._known and newest_version(path) is not None:
                self._spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {quoted(name.view)} USING delta LOCATION {sql_literal(str(path))}"
                )
                self._known.add(name)

    def _is_written(self, statement: str) -> bool:
        """Whether the statement was plain, and its rows are written."""
        parsed = sqlglot.parse_one(statement, read="spark")
        target = parsed.this.this if isinstance(parsed.this, exp.Schema) else parsed.this
        name = TableName.parse(target.sql("spark").replace("`", ""))
        path = self._folder.joinpath("sources", *name.parts)
        if newest_version(path) is None or parsed.args.get("alias") or target.args.get("alias"):
            return False
        table = DeltaTable(str(path))
        kinds = _kinds(table)
        if kinds is None:
            return False
        if isinstance(parsed, exp.Insert):
            rows = _inserted(parsed, table, kinds)
            if rows is None:
                return False
            write_deltalake(table, rows, mode="append")
            return True
        where = parsed.args.get("where")
        if where is not None and _kind(where.this, kinds) != "boolean":
            return False
        condition = None if where is None else where.this.sql("spark")
        if isinstance(parsed, exp.Delete):
            table.delete(condition)
            return True
        changes = {each.this.name: each.expression for each in parsed.expressions}
        if not all(name in kinds and _fits(value, kinds[name], kinds) for name, value in changes.items()):
            return False
        table.update({name: value.sql("spark") for name, value in changes.items()}, None, condition)
        return True


def plain_fields(columns: str) -> list[tuple[str, pa.DataType]] | None:
    """The columns of CREATE TABLE, where all are of plain types; else None."""
    # The comma of a DECIMAL ends no column.
    pairs = [column.split(maxsplit=1) for column in re.split(r",(?![^(]*\))", columns)]
    fields = []
    for pair in pairs:
        kind = _plain_type(pair[1]) if len(pair) == 2 and _PLAIN_NAME.fullmatch(pair[0]) else None
        if kind is None:
            return None
        fields.append((pair[0], kind))
    return fields


def _plain_type(written: str) -> pa.DataType | None:
    decimal = re.fullmatch(r"DECIMAL\((\d+), ?(\d+)\)\s*", written)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN_TYPES.get(written.rstrip())


def create_source(path: Path, columns: str, partitioned_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """An empty Delta table without Spark, of columns that are plain."""
    fields = plain_fields(columns)
    assert fields is not None, columns
    DeltaTable.create(
        str(path),
        schema=pa.schema(fields),
        configuration=dict(properties),
        partition_by=list(partitioned_by),
    )


def _kinds(table: DeltaTable) -> dict[str, str] | None:
    """The type of each column, such as `integer` or `decimal(10,2)`; None for a table that Spark writes."""
    protocol, schema = table.protocol(), table.schema()
    if not {*(protocol.reader_features or ()), *(protocol.writer_features or ())} <= _FEATURES:
        return None
    if any(key.startswith("delta.constraints.") for key in table.metadata().configuration):
        return None
    if any(field.metadata or not field.nullable for field in schema.fields):
        return None
    return {field.name: getattr(field.type, "type", type(field.type).__name__) for field in schema.fields}


def _inserted(insert: exp.Insert, table: DeltaTable, kinds: dict[str, str]) -> pa.Table | None:
    """The rows of INSERT INTO .. VALUES with literals alone, else None."""
    values = insert.expression
    if not isinstance(values, exp.Values) or insert.args.get("overwrite") or insert.args.get("partition"):
        return None
    named = [each.name for each in insert.this.expressions] if isinstance(insert.this, exp.Schema) else list(kinds)
    if not set(named) <= set(kinds):
        return None
    columns: dict[str, list[Any]] = {name: [] for name in kinds}
    for row in values.expressions:
        given = row.expressions if isinstance(row, exp.Tuple) else [row]
        if len(given) != len(named):
            return None
        by_name = dict(zip(named, given, strict=True))
        for name, kind in kinds.items():
            value = _value(by_name[name], kind) if name in by_name else (None,)
            if value is None:
                return None
            columns[name].append(value[0])
    schema = pa.schema(table.schema())
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema)


def _value(literal: exp.Expression, kind: str) -> tuple[Any] | None:
    """The value of a literal of this type, in a tuple; None for anything that Spark would have to cast."""
    sign, inner = (-1, literal.this) if isinstance(literal, exp.Neg) else (1, literal)
    if isinstance(literal, exp.Null):
        return (None,)
    if isinstance(literal, exp.Boolean):
        return (bool(literal.this),) if kind == "boolean" else None
    if isinstance(literal, exp.Cast) and isinstance(literal.this, exp.Literal) and literal.this.is_string:
        return _moment(literal.this.this, literal.to.sql("spark"), kind)
    if not isinstance(inner, exp.Literal):
        return None
    if inner.is_string:
        return (inner.this,) if kind == "string" and sign == 1 else None
    # Arithmetic would round to 28 digits.
    number = Decimal(inner.this) if sign == 1 else Decimal(inner.this).copy_negate()
    if kind in _WHOLE:
        bits = {"byte": 7, "short": 15, "integer": 31, "long": 63}[kind]
        return (
            (int(number),) if number == int(number) and "." not in inner.this and number.copy_abs() < 2**bits else None
        )
    if kind == "double":
        # Without an exponent it is a DECIMAL first, and zero has no sign.
        return (float(number) if number or "e" in inner.this.lower() else 0.0,)
    if kind.startswith("decimal("):
        precision, scale = (int(each) for each in kind[8:-1].split(","))
        digits = number.copy_abs()
        exact = -int(digits.as_tuple().exponent) <= scale and digits < Decimal(10) ** (precision - scale)
        return (number,) if exact else None
    return None


def _moment(text: str, cast: str, kind: str) -> tuple[date | datetime] | None:
    if (cast, kind) == ("DATE", "date") and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return (date.fromisoformat(text),)
    if (cast, kind) == ("TIMESTAMP", "timestamp") and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", text):
        return (datetime.fromisoformat(text).replace(tzinfo=UTC),)
    return None


def _kind(node: exp.Expression, kinds: dict[str, str]) -> str | None:
    """The result of a plain expression: `boolean`, `number`, `string`, `date` or `null`; None for all others."""
    match node:
        case exp.Paren():
            return _kind(node.this, kinds)
        case exp.Null():
            return "null"
        case exp.Boolean():
            return "boolean"
        case exp.Literal():
            return "string" if node.is_string else "number"
        case exp.Cast() if node.to.sql("spark") == "DATE" and isinstance(node.this, exp.Literal):
            return "date"
        case exp.Column():
            return _kind_of_column(node, kinds)
    return _kind_of_operator(node, kinds)


def _kind_of_column(column: exp.Column, kinds: dict[str, str]) -> str | None:
    kind = kinds.get(column.name)
    if kind is None or column.table or not _PLAIN_NAME.fullmatch(column.name):
        return None
    return "number" if kind.startswith(_NUMBERS) else kind if kind in ("string", "date", "boolean") else None


def _kind_of_operator(node: exp.Expression, kinds: dict[str, str]) -> str | None:
    if isinstance(node, exp.Is):
        return "boolean" if _kind(node.this, kinds) and isinstance(node.expression, exp.Null) else None
    if isinstance(node, exp.Between):
        return _same(kinds, node.this, node.args["low"], node.args["high"])
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        return _same(kinds, node.this, *node.expressions)
    if isinstance(node, _COMPARED):
        return _same(kinds, node.left, node.right)
    given = {_kind(each, kinds) for each in node.iter_expressions()}
    if isinstance(node, (exp.Not, exp.And, exp.Or)):
        return "boolean" if given == {"boolean"} else None
    return "number" if isinstance(node, (exp.Neg, *_COMPUTED)) and given == {"number"} else None


def _same(kinds: dict[str, str], *nodes: Any) -> str | None:
    """`boolean` where all are of one kind."""
    found = {_kind(node, kinds) for node in nodes}
    return "boolean" if len(found) == 1 and None not in found and "null" not in found else None


def _fits(value: exp.Expression, kind: str, kinds: dict[str, str]) -> bool:
    """Whether a column of this type takes the value as Spark would store it."""
    if _value(value, kind) is not None and not isinstance(value, exp.Cast):
        return True
    if kind in _WHOLE:
        # Whole numbers of whole numbers. A decimal point would be cut off by one and refused by the other.
        parts = list(value.find_all(exp.Column, exp.Literal))
        return _kind(value, kinds) == "number" and all(
            kinds.get(each.name) in _WHOLE if isinstance(each, exp.Column) else "." not in each.this for each in parts
        )
    if kind.startswith("decimal("):
        return _kind(value, kinds) == "number" and not list(value.find_all(exp.Mod))
    return isinstance(value, exp.Column) and kinds.get(value.name) == kind == "string"

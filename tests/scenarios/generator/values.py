"""Kinds of columns and the few values of generated rows: small domains, so that rows match, repeat and vanish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType

from freshline.values.as_of_joins import Versions


@dataclass(frozen=True)
class Column:
    """A column of a relation; `kind` is a key of KINDS."""

    name: str
    kind: str


@dataclass(frozen=True)
class Relation:
    """A source, or a query inside a query, by the columns that it has. `key` names a column that is unique in it.

    `since` is the column with the time since when a row is valid, where its rows are versions for as-of joins.
    """

    name: str
    columns: tuple[Column, ...]
    key: str | None = None
    since: str | None = None

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of PRIMARY KEY."""
        return () if self.key is None else (self.key,)

    @property
    def versions(self) -> Versions | None:
        """Its versions as its declaration has them: of two of one time that with the greatest key wins."""
        return None if self.since is None else Versions(self.since, self.primary_key)


# The type of each kind, in Spark and DuckDB.
KINDS = {
    "int": ("INT", "INTEGER"),
    "long": ("BIGINT", "BIGINT"),
    "text": ("STRING", "VARCHAR"),
    "decimal": ("DECIMAL(9,2)", "DECIMAL(9,2)"),
    "date": ("DATE", "DATE"),
    "time": ("TIMESTAMP", "TIMESTAMP"),
    "double": ("DOUBLE", "DOUBLE"),
    "struct": ("STRUCT<f: INT, g: STRING>", "STRUCT(f INTEGER, g VARCHAR)"),
    "array": ("ARRAY<INT>", "INTEGER[]"),
}
# Kinds that can be compared with <, grouped by and made distinct.
PLAIN = ("int", "long", "text", "decimal", "date", "time", "double")
# The kind of values that an aggregate or a window gets by adding numbers up: a DOUBLE that follows the order of its
# rows. No column of a source is of this kind.
SUMMED = "summed"
# Values as SQL that both engines read; NULL is as likely as one of them.
VALUES: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "3", "-1"),
    "long": ("0", "1", "2", "3", "4"),
    "text": ("'a'", "'b'", "'A'", "''", "'é'", "'🙂'"),
    "decimal": ("0.00", "0.50", "1.00", "2.00", "-1.25"),
    "date": ("DATE '2026-01-01'", "DATE '2026-01-02'", "DATE '2025-12-31'"),
    # Added up in another order they give another sum, of the great ones altogether another.
    "double": ("1e16", "1e0", "-1e16", "1e-1", "2e-1", "3e-1", "-7e-1", "1e-3"),
    "time": (
        "TIMESTAMP '2025-12-31 23:59:59.999999'",
        "TIMESTAMP '2026-01-01 00:00:00'",
        "TIMESTAMP '2026-01-01 12:30:00'",
        "TIMESTAMP '2026-01-02 00:00:00'",
    ),
}
# Times for windows, sessions and as-of joins: bounds and a microsecond beside them, exactly the gap of a session and a
# microsecond more, a month ago, and before 1970. NULL and equal ones come as of any kind.
MOMENTS = (
    *VALUES["time"],
    "TIMESTAMP '2026-01-01 12:00:00'",
    "TIMESTAMP '2026-01-01 12:30:00.000001'",
    "TIMESTAMP '2025-12-01 06:00:00'",
    "TIMESTAMP '1969-12-31 23:59:59.999999'",
    "TIMESTAMP '1969-12-31 11:30:00'",
)
STRUCTS = (("1", "'a'"), ("2", "NULL"), ("NULL", "'b'"), ("1", "'b'"))
ARRAYS = ((), ("1",), ("1", "2"), ("2", "2"), ("NULL", "1"))
NULL_SHARE = 0.22
SPARK, DUCKDB = "spark", "duckdb"


def value(random: Random, kind: str, instead: Mapping[str, Sequence[str]] = MappingProxyType({})) -> str:
    """A random value of a kind, NULL among them, of some kinds one of those `instead` of VALUES.

    Structs and arrays are written as `written` understands.
    """
    if random.random() < NULL_SHARE:
        return "NULL"
    if kind == "struct":
        return "{" + ", ".join(random.choice(STRUCTS)) + "}"
    if kind == "array":
        return "[" + ", ".join(random.choice(ARRAYS)) + "]"
    return random.choice(instead.get(kind, VALUES[kind]))


def literal(random: Random, kind: str) -> str:
    """A random value of a plain kind that is not NULL."""
    return random.choice(VALUES[kind])


def written(text: str, kind: str, dialect: str) -> str:
    """A value of `value` in the SQL of one engine.

    >>> written("{1, 'a'}", "struct", SPARK), written("[1, 2]", "array", SPARK)
    ("named_struct('f', CAST(1 AS INT), 'g', CAST('a' AS STRING))", 'CAST(array(1, 2) AS ARRAY<INT>)')
    """
    if text == "NULL" or kind not in ("struct", "array"):
        return text
    inside = text[1:-1]
    if kind == "array":
        return f"CAST(array({inside}) AS ARRAY<INT>)" if dialect == SPARK else f"CAST([{inside}] AS INTEGER[])"
    number, name = inside.split(", ")
    if dialect == SPARK:
        return f"named_struct('f', CAST({number} AS INT), 'g', CAST({name} AS STRING))"
    return f"{{'f': CAST({number} AS INTEGER), 'g': CAST({name} AS VARCHAR)}}"


def type_of(kind: str, dialect: str) -> str:
    """The SQL type of a kind."""
    return KINDS[kind][0 if dialect == SPARK else 1]


def declaration(columns: Sequence[Column], dialect: str) -> str:
    """The columns as in CREATE TABLE."""
    return ", ".join(f"{column.name} {type_of(column.kind, dialect)}" for column in columns)


NAMES = (("o", "O"), ("c",), ("d", "D_x"))
COLUMN_NAMES = {
    "int": ("k", "v", "n", "Amt"),
    "long": ("k", "cid", "Big"),
    "text": ("s", "name", "Country"),
    "decimal": ("amt", "price"),
    "date": ("d", "Day"),
    "time": ("ts", "moment"),
    "struct": ("p", "St"),
    "array": ("arr", "list"),
}


# The kinds that columns of sources are drawn from.
_DRAWN = ("int", "long", "text", "decimal", "date", "time", "struct", "array")


def with_doubles(random: Random, relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """The sources, each with one or two columns of DOUBLE beside its own."""
    return tuple(
        replace(relation, columns=(*relation.columns, *(Column(name, "double") for name in names)))
        for relation in relations
        if (names := random.sample(("q", "Ratio"), random.choice((1, 2))))
    )


def with_times(random: Random, relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """The sources, each with a column of times beside its own; those with a key are versions by it."""
    found = []
    for relation in relations:
        time = Column(random.choice(("seen", "At_")), "time")
        since = None if relation.key is None else time.name
        found.append(replace(relation, columns=(*relation.columns, time), since=since))
    return tuple(found)


def with_marks(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """The sources, each with a key, a column of times, and one of a few numbers for conditions on rows."""
    found = []
    for relation in relations:
        own = relation.columns if relation.key else (Column("id", "long"), *relation.columns)
        found.append(Relation(relation.name, (*own, Column("mark", "int"), Column("seen", "time")), "id", "seen"))
    return tuple(found)


def sources(random: Random) -> tuple[Relation, ...]:
    """Two or three sources that can be joined: each has an integer column of a few values, and others."""
    found = []
    for names in NAMES[: random.choice((2, 3, 3))]:
        columns = [Column("k", random.choice(("int", "long")))]
        key = "id" if random.random() < 0.5 else None
        if key:
            columns.insert(0, Column(key, "long"))
        for _ in range(random.randint(1, 3)):
            kind = random.choices(_DRAWN, (4, 1, 4, 2, 2, 2, 1, 1))[0]
            free = [n for n in COLUMN_NAMES[kind] if n.lower() not in {column.name.lower() for column in columns}]
            if free:
                columns.append(Column(random.choice(free), kind))
        found.append(Relation(random.choice(names), tuple(columns), key))
    return tuple(found)

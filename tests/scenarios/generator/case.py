"""A case: sources, tables over them, and rounds of changes with a refresh behind each.

A case is a value, drawn from a seed. It can be printed, replayed and made smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.scenarios.generator.changes import Change, Changes
from tests.scenarios.generator.queries import Queries, Query
from tests.scenarios.generator.values import PLAIN, SPARK, Relation, declaration, sources

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


@dataclass(frozen=True)
class Table:
    """A table: its query, and what stands before it in the declaration. `names` are its columns, in lower case."""

    name: str
    query: str
    names: tuple[str, ...]
    primary_key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()

    @property
    def declaration(self) -> str:
        """The statement that declares it."""
        key = f" (PRIMARY KEY ({', '.join(self.primary_key)}))" if self.primary_key else ""
        parts = f" PARTITIONED BY ({', '.join(self.partitioned_by)})" if self.partitioned_by else ""
        return f"CREATE MATERIALIZED TABLE {self.name}{key}{parts} {HOURLY} AS {self.query}"


@dataclass(frozen=True)
class Case:
    """Everything that happens. `first` are the changes before the first refresh."""

    seed: int
    relations: tuple[Relation, ...]
    first: tuple[Change, ...]
    tables: tuple[Table, ...]
    rounds: tuple[tuple[Change, ...], ...]

    def relation(self, name: str) -> Relation:
        """The source of a name."""
        return next(relation for relation in self.relations if relation.name == name)

    def only(self, table: str) -> Case:
        """The case with one of its tables."""
        return replace(self, tables=tuple(item for item in self.tables if item.name == table))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}"]
        lines += [
            f"lab.source({relation.name!r}, {declaration(relation.columns, SPARK)!r})" for relation in self.relations
        ]
        lines += [f"lab.declare({table.declaration!r})" for table in self.tables]
        for number, changes in enumerate((self.first, *self.rounds)):
            lines.append(f"# round {number}" if number else "# before the first refresh")
            lines += [
                f"lab.sql({statement!r})"
                for change in changes
                for statement in change.statements(self.relation(change.source), SPARK)
            ]
        return "\n".join(lines)


def draw(seed: int, *, tables: int = 4, rounds: int = 3, deep: int = 3, partitioned: float = 0.2) -> Case:
    """The case of a seed; `partitioned` is the share of tables that are, as far as their columns allow it."""
    random = Random(seed)
    relations = sources(random)
    changes = Changes(random, relations)
    queries = Queries(random, relations, deep)
    first = tuple(changes.first())
    made = tuple(_table(random, f"t{number}", queries.top(), partitioned) for number in range(tables))
    return Case(seed, relations, first, made, tuple(tuple(changes.some()) for _ in range(rounds)))


def _table(random: Random, name: str, query: Query, partitioned: float) -> Table:
    key = query.unique if query.unique and random.random() < 0.5 else ()
    plain = [column.name for column in query.columns if column.kind in PLAIN]
    parts = (random.choice(plain),) if plain and len(query.columns) > 1 and random.random() < partitioned else ()
    return Table(name, query.text, tuple(column.name.lower() for column in query.columns), key, parts)

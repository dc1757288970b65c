"""Random changes of sources, as values: a shrunk case keeps some of them, and each engine has statements for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.scenarios.generator.values import MOMENTS, SPARK, Relation, value, written

Row = tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """One statement on a source.

    `what` is insert, delete, update, truncate, overwrite, same, merge or again; `rows` are what it writes, `where` and
    `assign` parts of its SQL, which both engines read.
    """

    what: str
    source: str
    rows: tuple[Row, ...] = ()
    where: str = ""
    assign: str = ""

    def statements(self, relation: Relation, dialect: str) -> list[str]:
        """The statements of one engine that make this change."""
        name = relation.name
        rows = ", ".join(
            "(" + ", ".join(written(v, c.kind, dialect) for v, c in zip(row, relation.columns, strict=True)) + ")"
            for row in self.rows
        )
        match self.what:
            case "insert":
                return [f"INSERT INTO {name} VALUES {rows}"]
            case "delete":
                return [f"DELETE FROM {name} WHERE {self.where}"]
            case "update":
                return [f"UPDATE {name} SET {self.assign} WHERE {self.where}"]
            case "truncate":
                return [f"TRUNCATE TABLE {name}" if dialect == SPARK else f"DELETE FROM {name}"]
            case "overwrite":
                if dialect == SPARK:
                    return [f"INSERT OVERWRITE {name} VALUES {rows}"]
                return [f"DELETE FROM {name}", f"INSERT INTO {name} VALUES {rows}"]
            case "same":
                return [f"INSERT OVERWRITE {name} SELECT * FROM {name}"] if dialect == SPARK else []
            case "again":
                # The rows go away and come back.
                found = [f"DELETE FROM {name} WHERE {_is_row(row, relation, dialect)}" for row in self.rows]
                return [*found, f"INSERT INTO {name} VALUES {rows}"]
            case "merge":
                return self._merge(relation, dialect)
        raise ValueError(self.what)

    def _merge(self, relation: Relation, dialect: str) -> list[str]:
        (row,) = self.rows
        names = [column.name for column in relation.columns]
        values = [written(v, c.kind, dialect) for v, c in zip(row, relation.columns, strict=True)]
        if dialect == SPARK:
            new = ", ".join(f"{text} AS {name}" for text, name in zip(values, names, strict=True))
            sets = ", ".join(f"t.{name} = s.{name}" for name in names if name != relation.key)
            matched = f"MERGE INTO {relation.name} t USING (SELECT {new}) s ON t.{self.where} <=> s.{self.where}"
            return [f"{matched} WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED THEN INSERT *"]
        place = names.index(self.where)
        condition = f"{self.where} IS NOT DISTINCT FROM {values[place]}"
        sets = ", ".join(f"{n} = {v}" for n, v in zip(names, values, strict=True) if n != relation.key)
        absent = f"NOT EXISTS (SELECT 1 FROM {relation.name} WHERE {condition})"
        return [
            f"INSERT INTO {relation.name} SELECT {', '.join(values)} WHERE {absent}",
            f"UPDATE {relation.name} SET {sets} WHERE {condition}",
        ]


def _is_row(row: Row, relation: Relation, dialect: str) -> str:
    same = "<=>" if dialect == SPARK else "IS NOT DISTINCT FROM"
    return " AND ".join(
        f"{column.name} {same} {written(text, column.kind, dialect)}"
        for text, column in zip(row, relation.columns, strict=True)
        if relation.key in (None, column.name)
    )


class Changes:
    """Draws changes. Keys of sources that have one are never used twice, so that they stay unique.

    `begins` is with how many rows a source may begin, at least and at most. With `busy` every source changes in each
    round, and conditions mostly name values that are there; with `growing` rows are only added. With `at_bounds`, times
    are those of MOMENTS.
    """

    def __init__(
        self,
        random: Random,
        relations: Sequence[Relation],
        begins: tuple[int, int] = (1, 9),
        *,
        busy: bool = False,
        growing: bool = False,
        at_bounds: bool = False,
    ) -> None:
        self.random = random
        self.values = {"time": MOMENTS} if at_bounds else {}
        self.begins = begins
        self.busy = busy
        self.growing = growing
        self.relations: Mapping[str, Relation] = {relation.name: relation for relation in relations}
        self.numbers = 0
        self.known: dict[str, list[Row]] = {name: [] for name in self.relations}

    def row(self, relation: Relation) -> Row:
        """A new row; a source without a key often gets one that it has had before."""
        known = self.known[relation.name]
        if relation.key is None and known and self.random.random() < 0.3:
            return self.random.choice(known)
        # Rows of one time, and mostly of one value in all columns by which rows match, are ties.
        tied = self.random.choice(known) if self.values and known and self.random.random() < 0.3 else None
        found = []
        for place, column in enumerate(relation.columns):
            if column.name == relation.key:
                self.numbers += 1
                found.append(str(self.numbers))
            elif tied is not None and (column.kind == "time" or self.random.random() < 0.7):
                found.append(tied[place])
            else:
                found.append(value(self.random, column.kind, self.values))
        known.append(tuple(found))
        return tuple(found)

    def rows(self, relation: Relation, most: int) -> tuple[Row, ...]:
        """Up to that many new rows, one at least."""
        return tuple(self.row(relation) for _ in range(self.random.randint(1, most)))

    def _begin(self, relation: Relation) -> tuple[Row, ...]:
        return tuple(self.row(relation) for _ in range(self.random.randint(*self.begins)))

    def first(self) -> list[Change]:
        """The rows that every source begins with; one may begin empty."""
        begun = [relation for relation in self.relations.values() if self.random.random() < 0.93]
        return [Change("insert", relation.name, self._begin(relation)) for relation in begun]

    def some(self) -> list[Change]:
        """The changes between two refreshes."""
        if self.growing:
            return [Change("insert", relation.name, self.rows(relation, 3)) for relation in self.relations.values()]
        if self.busy:
            return [self.one(relation) for relation in self.relations.values()]
        return [self.one() for _ in range(self.random.choices((1, 2, 3, 4, 5), (5, 5, 3, 2, 1))[0])]

    def one(self, relation: Relation | None = None) -> Change:
        """One change of one source, which is drawn too unless it is given."""
        random = self.random
        relation = relation or random.choice(list(self.relations.values()))
        name = relation.name
        what = random.choices(
            ("insert", "delete", "update", "truncate", "overwrite", "same", "again", "merge"),
            (8, 5, 6, 0.4, 0.5, 0.3, 1.5, 1),
        )[0]
        if what in ("insert", "overwrite"):
            return Change(what, name, self.rows(relation, 4))
        if what == "delete":
            return Change(what, name, where=self.where(relation))
        if what == "update":
            free = [column for column in relation.columns if column.name != relation.key]
            column = random.choice(free)
            new = value(random, column.kind, self.values)
            # Structs and arrays are only set to NULL: their text differs between engines.
            text = "NULL" if column.kind in ("struct", "array") else new
            return Change(what, name, where=self.where(relation), assign=f"{column.name} = {text}")
        if what == "again" and self.known[name]:
            return Change(what, name, (random.choice(self.known[name]),))
        if what == "merge" and relation.key is not None:
            return Change(what, name, (self._merged(relation),), where=relation.key)
        if what == "merge":
            # Without a key a merge would write one row into several, which engines refuse.
            return Change("insert", name, self.rows(relation, 2))
        if what == "again":
            return Change("insert", name, self.rows(relation, 1))
        return Change(what, name)

    def _merged(self, relation: Relation) -> Row:
        """A row for a MERGE, often of a key that was there before."""
        known = list(self.known[relation.name])
        row = self.row(relation)
        if not known or self.random.random() < 0.3:
            return row
        place = [column.name for column in relation.columns].index(str(relation.key))
        return (*row[:place], self.random.choice(known)[place], *row[place + 1 :])

    def where(self, relation: Relation) -> str:
        """A condition on rows of a source."""
        random = self.random
        column = random.choice([c for c in relation.columns if c.kind not in ("struct", "array")])
        if column.name == relation.key:
            return f"{column.name} % {random.choice((2, 3, 4))} = {random.choice((0, 1))}"
        if random.random() < 0.25:
            return f"{column.name} IS NULL"
        known = self.known[relation.name]
        if self.busy and known and random.random() < 0.8:
            text = random.choice(known)[list(relation.columns).index(column)]
        else:
            text = value(random, column.kind, self.values)
        if text == "NULL":
            return f"{column.name} IS NOT NULL" if random.random() < 0.3 else f"{column.name} IS NULL"
        return f"{column.name} {random.choice(('=', '=', '=', '<>', '<', '>='))} {text}"

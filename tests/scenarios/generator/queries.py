"""Random queries over the whole grammar whose changes freshline follows, and some that it must refuse.

They are typed, so that Spark accepts nearly all of them, and use what DuckDB reads too (through sqlglot). Whatever a
query gives follows from the rows it reads: windows that rank by an incomplete order rank equal rows alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.scenarios.generator.definitions import (
    CUMULATED,
    HOPPED,
    TUMBLED,
    Meaning,
    in_counted,
    in_sessions,
    in_windows,
    met_as_of,
)
from tests.scenarios.generator.matches import draw_matching
from tests.scenarios.generator.values import PLAIN, SPARK, SUMMED, Column, Relation, literal, type_of, value

# Aliases are few, so that one name means different things at different depths.
ALIASES = ("a", "b", "t", "x", "o")
# Lengths of intervals: none, a part of the distance of drawn times, just that distance, and a month.
MINUTES = (0, 30, 360, 720, 750, 60 * 24 * 31)
OUTPUT_NAMES = ("k", "v", "id", "s", "Total", "n", "b", "Day", "w", "m", "Name", "c", "y", "z")


@dataclass(frozen=True)
class Term:
    """An expression of a kind; `plain` says that it is a column."""

    text: str
    kind: str
    plain: bool = False


@dataclass(frozen=True)
class Query:
    """SQL text with what it yields. `unique` are columns that no two of its rows share, None where that is unknown."""

    text: str
    columns: tuple[Column, ...]
    unique: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _From:
    text: str
    terms: tuple[Term, ...]
    # The one source whose rows are the rows of the FROM, each once.
    key: Term | None = None


@dataclass
class Queries:
    """Draws queries over some sources. `deep` is how many queries may stand inside of each other.

    With `doubles` they add up DOUBLE; with `thresholds`, rows are there or not by what that comes out as. With
    `subqueries`, more rows show one, and many are there or not by one that is the same for every row. With `windows`,
    much of what they read is put into windows first; with `patterns`, much of it is matched. With
    `intervals`, many joins and frames are by an interval of time. With `other_forms`, they read constant rows and
    columns renamed by an alias, joins have subqueries or are LATERAL, and QUALIFY reads an alias. `meanings` are those
    of all that was drawn so far.
    """

    random: Random
    relations: Sequence[Relation]
    deep: int = 3
    doubles: bool = False
    thresholds: bool = False
    subqueries: bool = False
    windows: bool = False
    patterns: bool = False
    intervals: bool = False
    other_forms: bool = False
    meanings: list[Meaning] = field(default_factory=list)

    # -- small choices

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def case(self, name: str) -> str:
        """The name in some letter case: names are the same in any."""
        return self.random.choice((name, name, name, name.upper(), name.capitalize(), f"`{name}`"))

    def names(self, count: int) -> list[str]:
        return self.random.sample(OUTPUT_NAMES, count)

    def pick(self, terms: Sequence[Term], kinds: Sequence[str], *, plain: bool = False) -> Term | None:
        found = [term for term in terms if term.kind in kinds and (term.plain or not plain)]
        return self.random.choice(found) if found else None

    # -- queries

    def top(self) -> Query:
        """A query for a table: its columns have types that every engine stores."""
        if self.doubles and self.chance(0.6):
            return self._over_sums()
        if self.patterns and self.chance(0.6):
            return self._matches()
        return self.query(self.relations, self.deep)

    def of_all_rows(self) -> Query:
        """Aggregates over all rows: the result is one row."""
        start = self._from(self.relations, self.deep)
        where = self._where(start.terms, self.relations, self.deep)
        text, columns = self._items([self._aggregate(start.terms) for _ in range(self.random.randint(1, 3))], None)
        return Query(f"SELECT {text} FROM {start.text}{where}", columns)

    def query(self, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None = None) -> Query:
        """A query that stands by itself."""
        if deep > 1 and self.chance(0.16):
            return self._with(relations, deep, kinds)
        if deep > 1 and self.chance(0.16):
            return self._set_operation(relations, deep, kinds)
        return self.select(relations, deep, kinds)

    def _with(self, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None) -> Query:
        known = list(relations)
        parts: list[str] = []
        taken: set[str] = set()
        for _ in range(self.random.choice((1, 1, 2))):
            inner = self.query(known, deep - 1)
            # Sometimes a common table is called like a source, and hides it from there on.
            name = self.random.choice([relation.name for relation in relations]) if self.chance(0.1) else "t"
            name = self.random.choice(("u", "w", "b", "t")) if name.lower() in taken or name == "t" else name
            while name.lower() in taken:
                name = f"{name}2"
            taken.add(name.lower())
            parts.append(f"{name} AS ({inner.text})")
            known = [relation for relation in known if relation.name.lower() != name.lower()]
            made = Relation(name, inner.columns)
            # Most queries read it, some twice, a few not at all.
            known = known + [made] * self.random.choice((0, 2, 4, 4)) or [made]
        body = self.query(known, deep - 1, kinds)
        if body.text.startswith("WITH"):
            body = self.select(known, deep - 1, kinds)
        return Query(f"WITH {', '.join(parts)} {body.text}", body.columns, body.unique)

    def _over_sums(self) -> Query:
        """A query over groups whose DOUBLE is added up, of which the second ones may be over the first."""
        made: list[Relation] = []
        parts = []
        for name in ("u", "w")[: self.random.choice((1, 2, 2))]:
            known = [*self.relations, *made, *made]
            inner = self._summed_groups(known)
            for _ in range(20):
                if any(column.kind == SUMMED for column in inner.columns):
                    break
                inner = self._summed_groups(known)
            made.append(Relation(name, inner.columns))
            parts.append(f"{name} AS ({inner.text})")
        body = self.select([*made * 3, self.random.choice(self.relations)], 1)
        if self.chance(0.6):
            body = self._of_sums(made) or body
        return Query(f"WITH {', '.join(parts)} {body.text}", body.columns, body.unique)

    def _of_sums(self, relations: Sequence[Relation]) -> Query | None:
        """Sums as they are, or values made of them, beside something that distinguishes their groups."""
        start = self._from(relations, 1)
        sums, plain = self.pick(start.terms, (SUMMED,)), self.pick(start.terms, PLAIN, plain=True)
        if sums is None or plain is None:
            return None
        items = [plain, self._any(start.terms, SUMMED), *([self._any(start.terms, None)] if self.chance(0.5) else [])]
        text, columns = self._items(items, None)
        word = "DISTINCT " if self.chance(0.15) else ""
        return Query(f"SELECT {word}{text} FROM {start.text}{self._where(start.terms, relations, 1)}", columns)

    def _summed_groups(self, relations: Sequence[Relation]) -> Query:
        start = self._from(relations, 1)
        return self._grouped(start, self._where(start.terms, relations, 1), relations, 1, None)

    def _matches(self) -> Query:
        """Matches as they are, or those of them that satisfy a condition."""
        text, columns = self._matched(self.random.choice(self.relations), near=self.chance(0.5))
        terms = [Term(f"x.{column.name}", column.kind, True) for column in columns]
        where = f" WHERE {self.condition(terms)}" if self.chance(0.2) else ""
        return Query(f"SELECT {', '.join(term.text for term in terms)} FROM {text} AS x{where}", columns)

    def _matched(self, relation: Relation, *, near: bool) -> tuple[str, tuple[Column, ...]]:
        """The matches in a source."""
        assert relation.since is not None
        name = f"freshline_matches_{len(self.meanings)}"
        matching = draw_matching(self.random, relation, relation.since, name, near=near)
        self.meanings.append(Meaning(matching.text, name, matching))
        return matching.text, matching.columns

    def _set_operation(self, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None) -> Query:
        kinds = kinds or [self.random.choice(("int", "long", "text", "int", "date", "decimal")) for _ in range(2)]
        operator = self.random.choices(
            ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"), (4, 2, 1, 1, 0.7, 0.7)
        )[0]
        left, right = (
            self._set_operation(relations, deep - 1, kinds)
            if deep > 2 and self.chance(0.2)
            else self.select(relations, deep - 1, kinds)
            for _ in range(2)
        )
        texts = [f"({side.text})" if " UNION" in side.text or self.chance(0.3) else side.text for side in (left, right)]
        columns = tuple(
            Column(first.name, _wider(first.kind, second.kind))
            for first, second in zip(left.columns, right.columns, strict=True)
        )
        return Query(f"{_in_parentheses(texts[0])} {operator} {_in_parentheses(texts[1])}", columns, None)

    def select(self, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None = None) -> Query:
        """One SELECT."""
        start = self._from(relations, deep)
        where = self._where(start.terms, relations, deep)
        shapes: list[Callable[[_From, str, Sequence[Relation], int, Sequence[str] | None], Query]] = [
            self._plain,
            self._distinct,
            self._grouped,
            self._sets,
            self._windowed,
            self._qualified,
            self._window_over_groups,
        ]
        shape = self.random.choices(shapes, (8, 2, 6, 1.5, 3, 2, 1))[0]
        return shape(start, where, relations, deep, kinds)

    # -- FROM and WHERE

    def _source(self, relations: Sequence[Relation], deep: int, alias: str) -> tuple[str, list[Term], Term | None]:
        if deep > 1 and self.chance(0.25):
            inner = self.query(relations, deep - 1)
            text, columns, key = f"({inner.text})", tuple(inner.columns), None
        else:
            relation = self.random.choice(relations)
            text, columns, key = self.case(relation.name), relation.columns, relation.key
        renamed = ""
        if self.other_forms and self.chance(0.4):
            text, columns, key, renamed = self._in_other_form(text, columns, key)
        if self.windows and self.chance(0.5):
            text, columns, key = self._in_windows(text, columns, key)
        elif self.patterns and self.chance(0.5):
            matched = self.random.choice(self.relations)
            (text, columns), key = self._matched(matched, near=self.chance(0.3)), None
        terms: list[Term] = []
        found: Term | None = None
        for column in columns:
            name = f"{self.case(alias)}.{self.case(column.name)}"
            terms.append(Term(name, column.kind, True))
            if column.name == key:
                found = terms[-1]
            if column.kind == "struct":
                terms += [Term(f"{alias}.{column.name}.f", "int"), Term(f"{alias}.{column.name}.g", "text")]
        return f"{text} {self.random.choice(('', 'AS '))}{alias}{renamed}", terms, found

    def _in_other_form(
        self, text: str, columns: tuple[Column, ...], key: str | None
    ) -> tuple[str, tuple[Column, ...], str | None, str]:
        """Constant rows in place of a source, or the source itself, with the names that its alias gives the columns."""
        if text.startswith("(") or self.chance(0.5):
            kinds = [self.random.choice(PLAIN) for _ in range(self.random.randint(1, 3))]
            names = self.names(len(kinds))
            typed = [type_of(kind, SPARK) for kind in kinds]
            rows = [
                ", ".join(f"CAST({value(self.random, kind)} AS {of})" for kind, of in zip(kinds, typed, strict=True))
                for _ in range(self.random.randint(1, 4))
            ]
            made = tuple(Column(name, kind) for name, kind in zip(names, kinds, strict=True))
            return f"VALUES ({'), ('.join(rows)})", made, None, f"({', '.join(names)})"
        names = self.names(len(columns))
        made = tuple(Column(name, column.kind) for name, column in zip(names, columns, strict=True))
        new = {column.name: name for name, column in zip(names, columns, strict=True)}
        return text, made, None if key is None else new.get(key), f"({', '.join(names)})"

    def _in_windows(
        self, text: str, columns: tuple[Column, ...], key: str | None
    ) -> tuple[str, tuple[Column, ...], str | None]:
        """A source, or a query in parentheses, as the input of a window function; as it is where it has no time."""
        names = {column.name.lower() for column in columns}
        times = [column.name for column in columns if column.kind == "time"]
        if not times or names & {"window_start", "window_end", "window_time", "window_number"}:
            return text, columns, key
        time = self.random.choice(times)
        data = text if text.startswith("(") else f"TABLE {text}"
        plain = [column.name for column in columns if column.kind in PLAIN and column.kind != "double"]
        keys = self.random.sample(plain, min(len(plain), self.random.choice((1, 1, 2))))
        by = f" PARTITION BY {', '.join(keys)}"
        grid = f"{data}, DESCRIPTOR({time}), INTERVAL"
        forms = [
            (f"TUMBLE({grid} '12' HOURS)", True, in_windows(TUMBLED, text, time)),
            (f"HOP({grid} '6' HOURS, INTERVAL '1' DAY)", False, in_windows(HOPPED, text, time)),
            (f"CUMULATE({grid} '8' HOURS, INTERVAL '1' DAY)", False, in_windows(CUMULATED, text, time)),
            (
                f"SESSION({data}{by}, DESCRIPTOR({time}), INTERVAL '12 hours 30 minutes')",
                True,
                in_sessions(text, keys, time),
            ),
        ]
        made = [Column("window_start", "time"), Column("window_end", "time"), Column("window_time", "time")]
        if key is not None and data.startswith("TABLE"):
            counted = f"COUNT_WINDOW({data}{by} ORDER BY {time}, {key}, SIZE => 2"
            forms += [
                (f"{counted})", True, in_counted(text, keys, time, key, 2)),
                (f"{counted}, SLIDE => 1)", False, in_counted(text, keys, time, key, 1)),
            ]
        call, once, meant = self.random.choice(forms)
        if call.startswith("COUNT_WINDOW"):
            made.append(Column("window_number", "long"))
        written = self.random.choice((call, f"TABLE({call})"))
        self.meanings.append(Meaning(written, meant))
        return written, (*columns, *made), key if once else None

    def _from(self, relations: Sequence[Relation], deep: int) -> _From:
        aliases = self.random.sample(ALIASES, 4)
        text, terms, key = self._source(relations, deep, aliases[0])
        for alias in aliases[1 : 1 + self.random.choices((0, 1, 2), (5, 4, 1.5))[0]]:
            if self.windows and self.chance(0.4):
                met = self._as_of(relations, terms, alias)
                if met is not None:
                    text, terms, key = f"{text} {met[0]}", [*terms, *met[1]], None
                    continue
            kind = self.random.choices(
                ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"),
                (4, 4, 2, 2, 1.5, 1.5, 0.3),
            )[0]
            other, more, _ = self._source(relations, deep, alias)
            condition = None if kind == "CROSS JOIN" else self._on(terms, more, only_equal=kind == "FULL JOIN")
            if condition is None:
                if kind != "CROSS JOIN":
                    continue
                text, terms, key = f"{text} CROSS JOIN {other}", [*terms, *more], None
                continue
            if self.other_forms and deep > 1 and self.chance(0.3):
                part = self._subquery_condition([*terms, *more], relations, deep)
                condition = condition if part is None else f"{condition} AND {part}"
            text = f"{text} {kind} {other} ON {condition}"
            if kind not in ("LEFT SEMI JOIN", "LEFT ANTI JOIN"):
                terms, key = [*terms, *more], None
        if self.chance(0.08):
            other, more, _ = self._source(relations, deep, aliases[3])
            text, terms, key = f"{text}, {other}", [*terms, *more], None
        if self.other_forms and deep > 1 and self.chance(0.15):
            beside = self._scalar(terms, relations, deep, None)
            if beside is not None:
                kind = self.random.choice(("JOIN", "LEFT JOIN"))
                text = f"{text} {kind} LATERAL {beside.text} l(y) ON true"
                terms, key = [*terms, Term("l.y", beside.kind, True)], None
        arrays = [term for term in terms if term.kind == "array"]
        if arrays and self.chance(0.5):
            outer = self.random.choice(("", "OUTER "))
            text += f" LATERAL VIEW {outer}explode({self.random.choice(arrays).text}) e AS x"
            terms, key = [*terms, Term("e.x", "int", True)], None
        return _From(text, tuple(terms), key)

    def _as_of(self, relations: Sequence[Relation], left: Sequence[Term], alias: str) -> tuple[str, list[Term]] | None:
        """An as-of join to what stands before it, and the terms that it adds; None where one of both has no time."""
        times = [term for term in left if term.kind == "time" and term.text.count(".") == 1]
        known = [relation for relation in relations if relation in self.relations and relation.since is not None]
        if not times or not known:
            return None
        relation = self.random.choice(known)
        right = [Term(f"{alias}.{column.name}", column.kind, True) for column in relation.columns]
        plain = [term for term in right if term.kind in PLAIN and term.kind not in ("double", "time")]
        pairs = [(one, two) for two in plain for one in left if _meet(one.kind, two.kind)]
        if not pairs:
            return None
        # By a key that is unique there are no two versions.
        several = [pair for pair in pairs if pair[1].text != f"{alias}.{relation.key}"]
        one, two = self.random.choice(several if several and self.chance(0.8) else pairs)
        kind, time = self.random.choice(("JOIN", "LEFT JOIN")), self.random.choice(times).text
        text = f"{kind} {relation.name} FOR SYSTEM_TIME AS OF {time} AS {alias} ON {one.text} = {two.text}"
        assert relation.since is not None
        assert relation.key is not None
        key = two.text.removeprefix(f"{alias}.")
        meant = met_as_of(kind, relation.name, relation.since, relation.key, alias, key, one.text, time)
        self.meanings.append(Meaning(text, meant))
        return text, right

    def _on(self, left: Sequence[Term], right: Sequence[Term], *, only_equal: bool) -> str | None:
        kinds = [term.kind for term in right if term.kind in PLAIN and any(_meet(term.kind, t.kind) for t in left)]
        if not kinds:
            return None
        kind = self.random.choice(kinds)
        one = self.random.choice([term for term in left if _meet(term.kind, kind)])
        two = self.random.choice([term for term in right if term.kind == kind])
        parts = [f"{one.text} {'<=>' if self.chance(0.12) else '='} {two.text}"]
        near = self._near(left, right) if self.intervals and self.chance(0.7) else None
        if near is not None:
            return f"{parts[0]} AND {near}"
        if not only_equal and self.chance(0.3):
            parts.append(self.condition([*left, *right] if self.chance(0.5) else list(right)))
        return " AND ".join(parts)

    def _near(self, left: Sequence[Term], right: Sequence[Term]) -> str | None:
        """A condition that the time of one row is in an interval around that of the other."""
        one, two = self.pick(left, ("time",), plain=True), self.pick(right, ("time",), plain=True)
        if one is None or two is None:
            return None
        if self.chance(0.5):
            one, two = two, one
        before, behind = (f"INTERVAL '{self.random.choice(MINUTES)}' MINUTES" for _ in range(2))
        forms = (
            f"{one.text} BETWEEN {two.text} - {before} AND {two.text} + {behind}",
            f"{one.text} BETWEEN {two.text} AND {two.text} + {behind}",
            f"{one.text} >= {two.text} - {before} AND {one.text} < {two.text} + {behind}",
            f"{one.text} + {before} > {two.text} AND {one.text} - {behind} <= {two.text}",
        )
        return self.random.choice(forms)

    def _where(self, terms: Sequence[Term], relations: Sequence[Relation], deep: int) -> str:
        parts = [self.condition(terms) for _ in range(self.random.choices((0, 1, 2), (5, 4, 1))[0])]
        if self.doubles and self.chance(0.4):
            parts += self._conditions_on_sums(terms)
        if deep > 1 and self.chance(0.35):
            part = self._subquery_condition(terms, relations, deep)
            if part is not None:
                if self.chance(0.15):
                    part = f"({part} OR {self.condition(terms)})"
                parts.insert(self.random.randint(0, len(parts)), part)
        if self.subqueries and self.chance(0.4):
            parts += self._gates(terms)
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def condition(self, terms: Sequence[Term]) -> str:
        """A condition on terms."""
        term = self.pick(terms, PLAIN)
        if term is None:
            return "1 = 1"
        text = self._expression(term, terms).text if self.chance(0.3) else term.text
        other = self.pick(terms, (term.kind,), plain=True)
        if text != term.text:
            other, kind = None, self._kind_of(text, term, terms)
        else:
            kind = term.kind
        form = self.random.choice(("value", "value", "value", "null", "list", "other", "case", "or"))
        if form == "null":
            return f"{text} IS {self.random.choice(('', 'NOT '))}NULL"
        if form == "list":
            values = ", ".join(literal(self.random, kind) for _ in range(2))
            return f"{text} {self.random.choice(('', '', 'NOT '))}IN ({values})"
        if form == "other" and other is not None:
            return f"{text} {self.random.choice(('=', '<', '<=', '<>', '<=>'))} {other.text}"
        if form == "or":
            return f"({text} = {literal(self.random, kind)} OR {text} IS NULL)"
        return f"{text} {self.random.choice(('=', '<>', '<', '<=', '>', '>='))} {literal(self.random, kind)}"

    def _conditions_on_sums(self, terms: Sequence[Term]) -> list[str]:
        """A condition on a sum, if there is one among the terms: one that is true for any, or a threshold."""
        term = self.pick(terms, (SUMMED,))
        return [] if term is None else [self._on_sum(term.text)]

    def _on_sum(self, text: str) -> str:
        if self.thresholds and self.chance(0.6):
            return f"{text} {self.random.choice(('>', '<=', '='))} {self.random.choice(('0', '6e-1', '3e-1', '1e0'))}"
        return self.random.choice((f"{text} < 1e300", f"coalesce({text}, 0e0) <> 1e300", f"{text} IS NOT NULL"))

    def _kind_of(self, text: str, term: Term, terms: Sequence[Term]) -> str:
        # Expressions of `_expression` keep the kind of their term.
        del text, terms
        return term.kind

    # -- expressions

    def _expression(self, term: Term, terms: Sequence[Term]) -> Term:
        """An expression of the same kind over a term."""
        text, kind, choice = term.text, term.kind, self.random.choice
        match kind:
            case "int" | "long":
                made = choice(
                    (
                        f"{text} + 1",
                        f"{text} % 2",
                        f"coalesce({text}, 0)",
                        f"nullif({text}, 2)",
                        f"abs({text})",
                        f"CASE WHEN {text} > 1 THEN {text} ELSE 0 END",
                        f"-{text}",
                    )
                )
            case "text":
                made = choice(
                    (f"upper({text})", f"concat({text}, 'x')", f"coalesce({text}, '∅')", f"nullif({text}, 'a')")
                )
            case "double" | "summed":
                made = choice((f"coalesce({text}, 0e0)", f"-{text}", f"{text} / 3", f"{text} + 1e0"))
            case "decimal":
                made = choice((f"coalesce({text}, 0.50)", f"-{text}", f"nullif({text}, 1.00)"))
            case "date":
                made = choice((f"coalesce({text}, DATE '2026-01-01')", f"nullif({text}, DATE '2026-01-02')"))
            case "time":
                made = choice((f"date_trunc('DAY', {text})", f"coalesce({text}, TIMESTAMP '2026-01-01 00:00:00')"))
            case _:
                return term
        return Term(made, kind)

    def _any(self, terms: Sequence[Term], kind: str | None, *, expression: float = 0.25) -> Term:
        """Some term, or an expression over one; a value where no term is of the kind."""
        if kind is None:
            term = self.random.choice(terms)
            return self._expression(term, terms) if self.chance(expression) else term
        found = self.pick(terms, [kind])
        if found is None and kind == "date":
            time = self.pick(terms, ["time"])
            if time is not None:
                return Term(f"CAST({time.text} AS DATE)", "date")
        if found is None and kind == "text":
            number = self.pick(terms, ["int", "long"])
            if number is not None:
                return Term(f"CAST({number.text} AS STRING)", "text")
        if found is None:
            return Term(literal(self.random, kind), kind)
        return self._expression(found, terms) if self.chance(expression) else found

    def _grouping(self, terms: Sequence[Term], kinds: Sequence[str] | None) -> list[Term]:
        """One or two expressions to group or partition by."""
        plain = [term for term in terms if term.kind in PLAIN]
        if not plain:
            return []
        found: list[Term] = []
        for _ in range(self.random.choice((1, 1, 2))):
            wanted = [term for term in plain if kinds and term.kind == kinds[0]] or plain
            term = self.random.choice(wanted)
            made = self._expression(term, terms) if self.chance(0.2) else term
            if made.text not in {item.text for item in found}:
                found.append(made)
        return found

    def _aggregate(self, terms: Sequence[Term], kind: str | None = None) -> Term:
        if self.doubles and kind is None and self.chance(0.6):
            summed = self._sum_of_doubles(terms)
            if summed is not None:
                return summed
        numbers = self.pick(terms, ("int", "long"))
        some = self.pick(terms, PLAIN) or terms[0]
        if kind in PLAIN and kind not in ("int", "long"):
            term = self.pick(terms, (kind,))
            if term is not None:
                return Term(f"{self.random.choice(('min', 'max'))}({term.text})", kind)
            return Term(f"max({literal(self.random, kind)})", kind)
        forms = [Term("count(*)", "long"), Term(f"count({some.text})", "long")]
        forms.append(Term(f"count(DISTINCT {some.text})", "long"))
        if numbers is not None:
            forms.append(Term(f"sum({numbers.text})", "long"))
            forms.append(Term(f"sum({numbers.text}) FILTER (WHERE {self.condition(terms)})", "long"))
            forms.append(Term(f"sum(DISTINCT {numbers.text})", "long"))
        if kind is None:
            forms.append(Term(f"min({some.text})", some.kind))
            forms.append(Term(f"max({some.text})", some.kind))
        return self.random.choice(forms)

    def _sum_of_doubles(self, terms: Sequence[Term]) -> Term | None:
        term = self.pick(terms, ("double", SUMMED))
        number = self.pick(terms, ("int", "long", "decimal"))
        forms = []
        if term is not None:
            forms = [f"{name}({term.text})" for name in ("sum", "sum", "sum", "avg", "stddev_pop", "var_pop")]
            forms.append(f"sum({term.text} * 2e0)")
            if term.kind == SUMMED:
                forms.append(f"{self.random.choice(('min', 'max'))}({term.text})")
        if number is not None and self.chance(0.3):
            forms.append(f"avg({number.text})" if number.kind != "decimal" else f"stddev_pop({number.text})")
        return Term(self.random.choice(forms), SUMMED) if forms else None

    # -- queries inside expressions

    def _inner(self, relations: Sequence[Relation], deep: int) -> _From:
        return self._from(relations, min(deep - 1, 2))

    def _correlated(self, terms: Sequence[Term], relations: Sequence[Relation], deep: int) -> tuple[_From, str] | None:
        """The FROM of a subquery, and its condition on the outer row; None if no columns match."""
        for _ in range(4):
            inner = self._inner(relations, deep)
            outside = [term for term in terms if term.plain and term.kind in PLAIN]
            hidden = _aliases(inner.text)
            outside = [term for term in outside if term.text.split(".")[0].strip("`").lower() not in hidden]
            kinds = [t.kind for t in outside if any(_meet(t.kind, i.kind) for i in inner.terms)]
            if not kinds:
                continue
            kind = self.random.choice(kinds)
            one = self.random.choice([term for term in outside if term.kind == kind])
            two = self.random.choice([term for term in inner.terms if _meet(kind, term.kind)])
            return inner, f"{two.text} = {one.text}"
        return None

    def _subquery_condition(self, terms: Sequence[Term], relations: Sequence[Relation], deep: int) -> str | None:
        form = self.random.choices(
            ("EXISTS", "NOT EXISTS", "IN", "NOT IN", "IN correlated", "scalar"), (3, 3, 2, 2, 1, 2)
        )[0]
        if form in ("IN", "NOT IN"):
            outer = self.pick(terms, ("int", "long", "text", "date"))
            if outer is None:
                return None
            inner = self.query(relations, min(deep - 1, 2), [outer.kind])
            if len(inner.columns) != 1 or not inner.text.startswith("SELECT"):
                return None
            return f"{outer.text} {form} ({inner.text})"
        found = self._correlated(terms, relations, deep)
        if found is None:
            return None
        start, condition = found
        more = self._where(start.terms, relations, deep - 1)
        where = f" WHERE {condition}" + (f" AND {more[7:]}" if more else "")
        if form == "scalar":
            aggregate = self._aggregate(start.terms, "int")
            return f"(SELECT {aggregate.text} FROM {start.text}{where}) {self.random.choice(('>', '=', '<='))} 1"
        if form == "IN correlated":
            outer = self.pick(terms, ("int", "long", "text"), plain=True)
            two = self.pick(start.terms, () if outer is None else (outer.kind,))
            if outer is None or two is None:
                return None
            hidden = _aliases(start.text)
            if outer.text.split(".")[0].strip("`").lower() in hidden:
                return None
            word = self.random.choice(("IN", "NOT IN"))
            return f"{outer.text} {word} (SELECT {two.text} FROM {start.text}{where})"
        if self.chance(0.15) and start.terms:
            keys = self._grouping(start.terms, None)
            if keys:
                by = ", ".join(key.text for key in keys)
                return f"{form} (SELECT 1 FROM {start.text}{where} GROUP BY {by} HAVING count(*) > 1)"
        return f"{form} (SELECT 1 FROM {start.text}{where})"

    def _gates(self, terms: Sequence[Term]) -> list[str]:
        """Conditions that one change makes true and another false, for all rows at once; often two of them."""
        return [self._gate(terms) for _ in range(self.random.choice((1, 2, 2)))]

    def _gate(self, terms: Sequence[Term]) -> str:
        start = self._from(self.relations, 1)
        where = f" WHERE {self.condition(start.terms)}" if self.chance(0.6) else ""
        number = self.pick(start.terms, ("int", "long"))
        counted = f"(SELECT count(*) FROM {start.text}{where})"
        forms = [
            f"{counted} % 2 = {self.random.choice((0, 1))}",
            f"{counted} {self.random.choice(('>', '<='))} {self.random.choice((1, 3, 6))}",
            f"{self.random.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {start.text}{where})",
        ]
        if number is not None:
            forms.append(
                f"(SELECT {self.random.choice(('min', 'max', 'sum'))}({number.text}) FROM {start.text}{where}) > 1"
            )
        gate = self.random.choice(forms)
        return f"({gate} OR {self.condition(terms)})" if self.chance(0.2) else gate

    def _scalar(self, terms: Sequence[Term], relations: Sequence[Relation], deep: int, kind: str | None) -> Term | None:
        found = self._correlated(terms, relations, deep)
        if found is None:
            return None
        start, condition = found
        aggregate = self._aggregate(start.terms, kind)
        if kind is not None and aggregate.kind != kind:
            return None
        return Term(f"(SELECT {aggregate.text} FROM {start.text} WHERE {condition})", aggregate.kind)

    # -- shapes

    def _items(self, items: Sequence[Term], kinds: Sequence[str] | None) -> tuple[str, tuple[Column, ...]]:
        names = self.names(len(items))
        parts: list[str] = []
        columns: list[Column] = []
        for item, name in zip(items, names, strict=True):
            own = item.text.split(".")[-1].strip("`")
            if item.plain and self.chance(0.45) and own.lower() not in {column.name.lower() for column in columns}:
                rest = {other.lower() for other in names}
                if own.lower() not in rest:
                    parts.append(item.text)
                    columns.append(Column(own, item.kind))
                    continue
            parts.append(f"{item.text} AS {name}")
            columns.append(Column(name, item.kind))
        return ", ".join(parts), tuple(columns)

    def _wanted(self, kinds: Sequence[str] | None, most: int = 4) -> list[str | None]:
        return list(kinds) if kinds else [None] * self.random.randint(1, most)

    def _plain(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        items = []
        unique = None
        for number, kind in enumerate(self._wanted(kinds)):
            share = 0.3 if self.subqueries else 0.08
            scalar = self._scalar(start.terms, relations, deep, kind) if deep > 1 and self.chance(share) else None
            if number == 0 and kinds is None and start.key is not None and self.chance(0.6):
                items.append(start.key)
                unique = 0
            else:
                items.append(scalar or self._any(start.terms, kind))
        text, columns = self._items(items, kinds)
        key = None if unique is None else (columns[unique].name,)
        return Query(f"SELECT {text} FROM {start.text}{where}", columns, key)

    def _distinct(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        terms = [term for term in start.terms if term.kind in (*PLAIN, "struct")] or [Term("1", "int")]
        items = [self._any(terms, kind) for kind in self._wanted(kinds, 3)]
        text, columns = self._items(items, kinds)
        return Query(f"SELECT DISTINCT {text} FROM {start.text}{where}", columns, tuple(c.name for c in columns))

    def _grouped(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        keys = self._grouping(start.terms, kinds)
        if not keys:
            return self._plain(start, where, relations, deep, kinds)
        if kinds is None:
            shown = [key for key in keys if not self.chance(0.12)]
            items = [*shown, *(self._aggregate(start.terms) for _ in range(self.random.choice((1, 1, 2))))]
            self.random.shuffle(items)
        else:
            shown = []
            items = []
            for kind in kinds:
                match = next((key for key in keys if key.kind == kind and key not in shown), None)
                if match is not None:
                    shown.append(match)
                items.append(match or self._aggregate_of(start.terms, kind))
        text, columns = self._items(items, kinds)
        unique = (
            tuple(column.name for column, item in zip(columns, items, strict=True) if item in keys)
            if len(shown) == len(keys)
            else None
        )
        by = self._by(keys, items)
        having = self._having(start.terms, keys, relations, deep) if self.chance(0.3) else ""
        return Query(f"SELECT {text} FROM {start.text}{where} GROUP BY {by}{having}", columns, unique)

    def _aggregate_of(self, terms: Sequence[Term], kind: str) -> Term:
        made = self._aggregate(terms, kind)
        if kind == "int":
            return Term(f"CAST({made.text} AS INT)", kind)
        return made

    def _by(self, keys: Sequence[Term], items: Sequence[Term]) -> str:
        """The keys as text, or some of them as places in the select list."""
        parts = []
        for key in keys:
            if key in items and self.chance(0.12):
                parts.append(str(items.index(key) + 1))
            else:
                parts.append(key.text)
        return ", ".join(parts)

    def _having(self, terms: Sequence[Term], keys: Sequence[Term], relations: Sequence[Relation], deep: int) -> str:
        if self.subqueries and self.chance(0.5):
            return f" HAVING {' AND '.join(self._gates(keys))}"
        form = self.random.choice(("count", "count", "key", "aggregate", "exists"))
        if form == "exists" and deep > 1:
            found = self._correlated([key for key in keys if key.plain], relations, deep)
            if found is not None:
                start, condition = found
                word = self.random.choice(("EXISTS", "NOT EXISTS"))
                return f" HAVING {word} (SELECT 1 FROM {start.text} WHERE {condition})"
        if form == "key":
            return f" HAVING {self.random.choice(keys).text} IS NOT NULL"
        if form == "aggregate":
            return f" HAVING {self._aggregate(terms, 'int').text} {self.random.choice(('>', '<', '='))} 2"
        if self.doubles and self.chance(0.5):
            summed = self._sum_of_doubles(terms)
            if summed is not None:
                return f" HAVING {self._on_sum(summed.text)}"
        return f" HAVING count(*) {self.random.choice(('> 1', '= 1', '<> 2'))}"

    def _sets(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        keys = [key for key in self._grouping(start.terms, kinds) if key.plain]
        if len(keys) < 2 or kinds is not None:
            return self._grouped(start, where, relations, deep, kinds)
        one, two = (key.text for key in keys)
        by = self.random.choice(
            (
                f"ROLLUP ({one}, {two})",
                f"CUBE ({one}, {two})",
                f"GROUPING SETS (({one}), ({two}))",
                f"GROUPING SETS (({one}, {two}), ({one}), ())",
                f"{one}, ROLLUP ({two})",
            )
        )
        items = [*keys, self._aggregate(start.terms)]
        if self.chance(0.2):
            items.pop(self.random.randint(0, 1))
        text, columns = self._items(items, kinds)
        having = " HAVING count(*) > 1" if self.chance(0.2) else ""
        return Query(f"SELECT {text} FROM {start.text}{where} GROUP BY {by}{having}", columns)

    def _window(self, terms: Sequence[Term], partition: Sequence[Term]) -> Term:
        """A window function that gives equal rows equal values."""
        ranged = self._frame(terms, partition) if self.intervals and self.chance(0.7) else None
        if ranged is not None:
            return ranged
        order = self.pick(terms, PLAIN) or terms[0]
        number = self.pick(terms, ("int", "long"))
        by = ", ".join(term.text for term in partition)
        ordered = f"PARTITION BY {by} ORDER BY {order.text}{self.random.choice(('', ' DESC'))}"
        forms = [
            Term(f"rank() OVER ({ordered})", "int"),
            Term(f"dense_rank() OVER ({ordered})", "int"),
            Term(f"count(*) OVER (PARTITION BY {by})", "long"),
            Term(f"count({order.text}) OVER ({ordered})", "long"),
            Term(f"max({order.text}) OVER (PARTITION BY {by})", order.kind),
        ]
        if number is not None:
            forms.append(Term(f"sum({number.text}) OVER (PARTITION BY {by})", "long"))
            forms.append(Term(f"sum({number.text}) OVER ({ordered})", "long"))
        double = self.pick(terms, ("double",)) if self.doubles else None
        if double is not None and self.chance(0.5):
            return Term(f"{self.random.choice(('sum', 'avg'))}({double.text}) OVER (PARTITION BY {by})", SUMMED)
        return self.random.choice(forms)

    def _frame(self, terms: Sequence[Term], partition: Sequence[Term]) -> Term | None:
        """A window function over the rows in an interval of time around each row."""
        time = self.pick(terms, ("time",), plain=True)
        if time is None:
            return None
        first, last = (f"INTERVAL '{self.random.choice(MINUTES)}' MINUTES" for _ in range(2))
        frame = self.random.choice(
            (
                f"{first} PRECEDING AND CURRENT ROW",
                f"{first} PRECEDING AND CURRENT ROW",
                f"CURRENT ROW AND {last} FOLLOWING",
                f"{first} PRECEDING AND {last} FOLLOWING",
            )
        )
        by = ", ".join(term.text for term in partition)
        down = " DESC" if self.chance(0.2) else ""
        over = f"OVER (PARTITION BY {by} ORDER BY {time.text}{down} RANGE BETWEEN {frame})"
        some, number = self.pick(terms, PLAIN) or time, self.pick(terms, ("int", "long"))
        forms = [Term(f"count(*) {over}", "long"), Term(f"count({some.text}) {over}", "long")]
        if number is not None:
            forms += [
                Term(f"sum({number.text}) {over}", "long"),
                Term(f"min({number.text}) {over}", number.kind),
                Term(f"max({number.text}) {over}", number.kind),
            ]
        return self.random.choice(forms)

    def _windowed(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        partitions = [self._grouping(start.terms, None) for _ in range(self.random.choice((1, 1, 2)))]
        if not all(partitions) or kinds is not None:
            return self._plain(start, where, relations, deep, kinds)
        shown = {term.text: term for partition in partitions for term in partition if not self.chance(0.12)}
        items = list(shown.values())
        items += [self._window(start.terms, partition) for partition in partitions]
        if self.chance(0.6):
            items.append(self._any(start.terms, None))
        self.random.shuffle(items)
        text, columns = self._items(items, kinds)
        return Query(f"SELECT {text} FROM {start.text}{where}", columns)

    def _qualified(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        partition = self._grouping(start.terms, kinds)
        if not partition:
            return self._plain(start, where, relations, deep, kinds)
        items = [self._any(start.terms, kind) for kind in self._wanted(kinds, 2)]
        if kinds is None:
            items += [term for term in partition if not self.chance(0.12)]
        text, columns = self._items(items, kinds)
        function = self._window(start.terms, partition)
        while function.kind not in ("int", "long"):
            function = self._window(start.terms, partition)
        asked = function.text
        if self.other_forms and kinds is None and self.chance(0.5):
            # A name that no input has.
            text, asked = f"{text}, {asked} AS place", "place"
            columns = (*columns, Column("place", function.kind))
        qualify = f"{asked} {self.random.choice(('= 1', '<= 2', '> 1', '<> 1'))}"
        return Query(f"SELECT {text} FROM {start.text}{where} QUALIFY {qualify}", columns)

    def _window_over_groups(
        self, start: _From, where: str, relations: Sequence[Relation], deep: int, kinds: Sequence[str] | None
    ) -> Query:
        keys = self._grouping(start.terms, kinds)
        if not keys or kinds is not None:
            return self._grouped(start, where, relations, deep, kinds)
        aggregate = self._aggregate(start.terms, "int")
        by = ", ".join(key.text for key in keys)
        window = Term(
            f"rank() OVER (PARTITION BY {keys[0].text} ORDER BY {aggregate.text} DESC)",
            "int",
        )
        text, columns = self._items([*keys, aggregate, window], kinds)
        return Query(f"SELECT {text} FROM {start.text}{where} GROUP BY {by}", columns)


def _meet(left: str, right: str) -> bool:
    """Whether values of two kinds are compared as they are."""
    numbers = ("int", "long")
    return left == right or (left in numbers and right in numbers)


def _wider(left: str, right: str) -> str:
    return "long" if {left, right} == {"int", "long"} else left


def _in_parentheses(text: str) -> str:
    return f"({text})" if text.startswith("WITH") else text


def _aliases(text: str) -> set[str]:
    """Words of a FROM that hide names of the outer query."""
    return {word.strip("`(),").lower() for word in text.split()} & set(ALIASES)

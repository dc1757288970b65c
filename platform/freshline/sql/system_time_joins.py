"""Joins that FOR SYSTEM_TIME follows: lookup joins, which read a dimension as it is, and as-of joins.

Both are read the same way: the table is joined by equalities with its columns. Only where the text itself is needed,
for the probe of a lookup and the places of an as-of join, its tokens are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sqlglot import exp

from freshline.sql.token_places import case_step, is_star_in_call, is_star_in_list
from freshline.sql.tokens import Text, Token, TokenKind
from freshline.values.as_of_joins import AsOfJoin
from freshline.values.query import LookupJoin, TableReference, TextSpan
from freshline.values.rules import nearest

# Reports a mistake: its rule, a sentence, and where in the text it stands.
Fail = Callable[[str, str, int], object]


@dataclass(frozen=True)
class AsOfTime:
    """`FOR SYSTEM_TIME AS OF alias.column`, and whether the table before it was found."""

    span: TextSpan
    time: tuple[str, str]


class SystemTimeJoins:
    """The joins of one query; what is wrong goes to `fail`."""

    def __init__(self, text: Text, tokens: Sequence[Token], fail: Fail) -> None:
        self.text = text
        self.tokens = tokens
        self._fail = fail

    def lookup_joins(self, tables: Sequence[exp.Table], references: Sequence[TableReference]) -> tuple[LookupJoin, ...]:
        """The lookup joins among the tables that a query reads, in the order of the text."""
        joins: list[LookupJoin] = []
        for reference, join in self._joins_of(tables, [each for each in references if each.lookup], "PROCTIME()"):
            found = self._lookup_join(join, reference)
            if found is not None:
                joins.append(found)
        return tuple(sorted(joins, key=lambda found: self._alias_start(found.alias, references)))

    def _joins_of(
        self, tables: Sequence[exp.Table], references: Sequence[TableReference], time: str
    ) -> Iterator[tuple[TableReference, exp.Join]]:
        """The joins of tables that FOR SYSTEM_TIME follows; one at the beginning of FROM is reported."""
        by_start = {reference.span.start: reference for reference in references}
        for table in tables:
            reference = by_start.get(int(table.parts[0].meta.get("start", -1)))
            if reference is None:
                continue
            join = table.parent
            if isinstance(join, exp.Join) and join.this is table:
                yield reference, join
                continue
            self._fail(
                "LOOKUP",
                f"{reference.name} FOR SYSTEM_TIME AS OF {time} stands at the beginning of FROM. A dimension is joined "
                f"to the rows that look it up: FROM rows LEFT JOIN {reference.name} FOR SYSTEM_TIME AS OF {time} AS d "
                "ON ..",
                reference.span.start,
            )

    def _alias_start(self, alias: str, references: Sequence[TableReference]) -> int:
        return next(r.span.start for r in references if r.alias == alias and r.lookup)

    def _lookup_join(self, join: exp.Join, reference: TableReference) -> LookupJoin | None:
        side, kind = join.side.upper(), join.kind.upper()
        start = reference.span.start
        if join.method or side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
            written = " ".join(word for word in (join.method.upper(), side, kind, "JOIN") if word)
            self._fail("LOOKUP", f"{written} cannot look up {reference.name}. Write JOIN or LEFT JOIN.", start)
            return None
        condition = join.args.get("on")
        alias = reference.alias
        if join.args.get("using"):
            self._fail(
                "LOOKUP",
                f"write ON {alias}.key = .. instead of USING: the key of {reference.name} is named there.",
                start,
            )
            return None
        if condition is None or isinstance(condition, exp.Boolean):
            self._fail("LOOKUP", f"the lookup of {reference.name} has no ON. Write ON {alias}.key = ..", start)
            return None
        written_pairs = self._written_equalities(condition, reference)
        keys: list[tuple[str, str]] = []
        for index, part in enumerate(_conjuncts(condition)):
            column = self._dimension_column(part, alias)
            if column is None:
                self._fail(
                    "LOOKUP",
                    f"{part.sql(dialect='spark')} is not an equality between a column of {alias} and the rows that "
                    f"look it up. Write ON {alias}.column = expression [AND ..], and other conditions into WHERE or "
                    "the select list.",
                    offset_of(part) or start,
                )
                return None
            name, left, probe = column
            if written_pairs is not None:
                text = written_pairs[index][1 if left else 0]
            else:
                text = probe.sql(dialect="spark", comments=False)
            keys.append((name, text))
        return LookupJoin(table=reference.name, alias=alias, keys=tuple(keys), outer=side == "LEFT")

    def _dimension_column(self, part: exp.Expr, alias: str) -> tuple[str, bool, exp.Expr] | None:
        """The dimension's column, whether it stands on the left, and the probe; None for anything else."""
        if not isinstance(part, (exp.EQ, exp.NullSafeEQ)):
            return None
        for left, ours, probe in ((True, part.this, part.expression), (False, part.expression, part.this)):
            ours, probe = ours.unnest(), probe.unnest()
            if not isinstance(ours, exp.Column) or ours.table.lower() != alias.lower() or ours.args.get("db"):
                continue
            if any(column.parts[0].name.lower() == alias.lower() for column in probe.find_all(exp.Column)):
                return None
            return ours.name, left, probe
        return None

    def as_of_joins(
        self, tables: Sequence[exp.Table], references: Sequence[TableReference], times: Sequence[AsOfTime]
    ) -> tuple[AsOfJoin, ...]:
        """The as-of joins among the tables that a query reads, in the order of the text."""
        by_end: dict[int, AsOfTime] = {}
        for time in times:
            before = [reference for reference in references if reference.span.end <= time.span.start]
            if before:
                by_end[before[-1].span.start] = time
        met = [reference for reference in references if reference.span.start in by_end]
        joins: list[AsOfJoin] = []
        for reference, join in self._joins_of(tables, met, "o.ts"):
            found = self._as_of_join(join, reference, by_end[reference.span.start], number=len(joins) + 1)
            if found is None:
                continue
            # Each leaves out its own column behind the star, and a star has one EXCEPT.
            left_out = {place for each in joins for place, excepting in each.stars if not excepting}
            if any(place in left_out for place, _ in found.stars):
                self._fail(
                    "LOOKUP",
                    f"* stands for the columns of {reference.alias} and of another as-of join. Write alias.* for each "
                    "of them.",
                    reference.span.start,
                )
            joins.append(found)
        return tuple(sorted(joins, key=lambda found: found.start))

    def _as_of_join(self, join: exp.Join, reference: TableReference, time: AsOfTime, *, number: int) -> AsOfJoin | None:
        start = reference.span.start
        met = self._lookup_join(join, reference)
        if met is None:
            return None
        if any(join.args["on"].find_all(exp.NullSafeEQ)):
            self._fail("LOOKUP", f"a row meets versions of {reference.name} by =. Write that instead of <=>.", start)
            return None
        select = join.parent
        stars = self._stars(reference, select)
        condition = self._condition(join.args["on"], reference)
        if stars is None or not condition:
            self._fail(
                "LOOKUP",
                f"{reference.name} FOR SYSTEM_TIME AS OF {'.'.join(time.time)} is read in FROM of a SELECT, outside of "
                "parentheses, with ON behind it. Write the join there.",
                start,
            )
            return None
        others = [] if select is None else [select.args.get("from_"), *(select.args.get("joins") or ())]
        # ON sees what stands before it.
        before = takewhile(lambda other: other is not join, others)
        known = {other.this.alias_or_name.lower() for other in before if other is not None}
        if time.time[0].lower() not in known:
            self._fail(
                "ASOF_TIME",
                f"FOR SYSTEM_TIME AS OF {'.'.join(time.time)}: {time.time[0]} is none of the rows that "
                f"{reference.name} is joined to.{nearest(time.time[0], known)} They are {', '.join(sorted(known))}.",
                time.span.start,
            )
            return None
        return AsOfJoin(
            table=reference.name,
            alias=reference.alias,
            keys=tuple(dict.fromkeys(column for column, _ in met.keys)),
            time=time.time,
            start=start,
            end=condition[-1].end,
            stars=tuple(stars),
            number=number,
            line=self.text.line(time.span.start),
        )

    def _stars(self, reference: TableReference, select: exp.Expr | None) -> list[tuple[int, bool]] | None:
        """The ends of `*` and `alias.*` of the SELECT that a table is read in; None where it is read in parentheses.

        One that leaves out columns ends behind the parenthesis of its EXCEPT. Those among the arguments of calls are a
        part of a value, which shall not have our column either. Where one cannot leave it out, that goes to `fail`.
        """
        words = [token.word for token in self.tokens]
        place = next(index for index, token in enumerate(self.tokens) if token.start == reference.span.start)
        depth, begin = 0, place
        while begin >= 0 and (depth or words[begin] != "SELECT"):
            depth += (words[begin] == ")") - (words[begin] == "(")
            if depth < 0:
                return None
            begin -= 1
        found: list[tuple[int, bool]] = []
        # For each parenthesis that is open, whether a query is in it.
        opened: list[bool] = []
        for index in range(begin + 1, len(words)):
            if words[index] == "(":
                opened.append(any(opened) or words[index + 1 : index + 2] in (["SELECT"], ["WITH"]))
            elif words[index] == ")" and opened:
                opened.pop()
            elif words[index] == ")" or (not opened and index > place and self._is_behind_select(index)):
                break
            is_star = is_star_in_call(self.tokens, index) if opened else is_star_in_list(self.tokens, index)
            if not is_star or not self._stands_for(index, reference):
                continue
            if any(opened) and (words[index - 1] != "." or _is_known_inside(self.tokens[index - 2], select)):
                continue
            if any(opened) or (words[index + 1 : index + 2] == [")"] and self._is_counted(index)):
                self._refuse_star(index, reference)
                continue
            excepting = words[index + 1 : index + 3] == ["EXCEPT", "("]
            found.append((self.tokens[index + 2 if excepting else index].end, excepting))
        return found

    def _refuse_star(self, index: int, reference: TableReference) -> None:
        alias = self.tokens[index - 2].raw
        self._fail(
            "LOOKUP",
            f"{alias}.* stands in count(..), or in a query in parentheses, and would have the column by which "
            f"{reference.name} is joined. Name the columns of {alias} there.",
            self.tokens[index - 2].start,
        )

    def _is_counted(self, index: int) -> bool:
        """Whether `alias.*` is all that a call of count has, which is no expression to Spark."""
        begin = index
        while self.tokens[begin - 1].word == ".":
            begin -= 2
        return [token.word for token in self.tokens[begin - 2 : begin]] == ["COUNT", "("]

    def _is_behind_select(self, index: int) -> bool:
        """Whether a SELECT ends before a token outside of parentheses."""
        word, before = self.tokens[index].word, self.tokens[index - 1].word
        return word in ("UNION", "INTERSECT", "MINUS", "EXCEPT", ";") and before not in (".", "*")

    def _stands_for(self, index: int, reference: TableReference) -> bool:
        """Whether a `*` that stands for columns has those of a table too."""
        if self.tokens[index - 1].word != ".":
            return True
        names = [self.tokens[index - 2].value.lower()]
        while self.tokens[index - 2 * len(names) - 1].word == ".":
            names.insert(0, self.tokens[index - 2 * len(names) - 2].value.lower())
        with_namespace = [] if reference.has_alias else str(reference.name).lower().split(".")
        return names in ([reference.alias.lower()], with_namespace)

    def _written_equalities(self, condition: exp.Expr, reference: TableReference) -> list[tuple[str, str]] | None:
        """The two sides of each equality as they were written; None where tokens and tree disagree."""
        written = self._condition(condition, reference)
        pairs = _token_equalities(written, self.text.text) if written else None
        return pairs if pairs is not None and len(pairs) == len(_conjuncts(condition)) else None

    def _condition(self, condition: exp.Expr, reference: TableReference) -> Sequence[Token]:
        """The tokens behind the ON of a table."""
        last = max((int(i.meta["end"]) for i in condition.find_all(exp.Identifier) if "end" in i.meta), default=0)
        depth, begin, end = 0, None, len(self.tokens)
        for index, token in enumerate(self.tokens):
            if token.start < reference.span.end:
                continue
            if begin is None:
                begin = index + 1 if token.word == "ON" else None
                continue
            if token.start > last and depth <= 0 and (token.word in _AFTER_ON or (token.word == ")" and depth == 0)):
                end = index
                break
            depth += (token.word == "(") - (token.word == ")")
        return [] if begin is None else self.tokens[begin:end]


_AFTER_ON = frozenset(
    "JOIN INNER LEFT RIGHT FULL CROSS SEMI ANTI NATURAL LATERAL WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT "
    "OFFSET WINDOW QUALIFY UNION EXCEPT INTERSECT MINUS PIVOT UNPIVOT TABLESAMPLE , ;".split()
)


def offset_of(node: exp.Expr) -> int:
    """The place of a node: its first identifier with a place, else the beginning of the query."""
    starts = [int(i.meta["start"]) for i in node.find_all(exp.Identifier) if "start" in i.meta]
    return min(starts, default=0)


def _is_known_inside(named: Token, select: exp.Expr | None) -> bool:
    """Whether the table before `.*` is one of a query inside of a SELECT, and not of that itself."""
    for star in () if select is None else select.find_all(exp.Column):
        table = star.args.get("table")
        if not isinstance(star.this, exp.Star) or table is None or table.meta.get("start") != named.start:
            continue
        inside = star.find_ancestor(exp.Select)
        while inside is not None and inside is not select:
            sources = [
                inside.args.get("from_"),
                *(inside.args.get("joins") or ()),
                *(inside.args.get("laterals") or ()),
            ]
            names = [source.alias_or_name or source.this.alias_or_name for source in sources if source is not None]
            if table.name.lower() in [name.lower() for name in names]:
                return True
            inside = inside.find_ancestor(exp.Select)
    return False


def is_name(token: Token) -> bool:
    """Whether a token is the name of something."""
    return token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and not token.raw[0].isdigit())


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.this), *_conjuncts(condition.expression)]
    return [condition]


def _token_equalities(tokens: Sequence[Token], text: str) -> list[tuple[str, str]] | None:
    tokens = _without_parentheses(tokens)
    parts = _split(tokens, ("AND",))
    if len(parts) > 1:
        found: list[tuple[str, str]] = []
        for part in parts:
            pairs = _token_equalities(part, text)
            if pairs is None:
                return None
            found.extend(pairs)
        return found
    sides = _split(tokens, ("=", "==", "<=>"))
    if len(sides) != 2 or not all(sides):
        return None
    left, right = (_without_parentheses(side) for side in sides)
    return [(text[left[0].start : left[-1].end], text[right[0].start : right[-1].end])]


def _without_parentheses(tokens: Sequence[Token]) -> Sequence[Token]:
    while len(tokens) > 2 and tokens[0].word == "(" and tokens[-1].word == ")":
        depth = 0
        for index, token in enumerate(tokens):
            depth += (token.word == "(") - (token.word == ")")
            if depth == 0 and index < len(tokens) - 1:
                return tokens
        tokens = tokens[1:-1]
    return tokens


def _split(tokens: Sequence[Token], words: tuple[str, ...]) -> list[Sequence[Token]]:
    """Cut at the words that stand outside of parentheses and CASE .. END."""
    parts: list[Sequence[Token]] = []
    depth, cases, begin = 0, 0, 0
    for index, token in enumerate(tokens):
        depth += (token.word == "(") - (token.word == ")")
        cases += case_step(tokens, index, cases)
        is_name = index > 0 and tokens[index - 1].word == "."
        if depth == 0 and cases == 0 and token.word in words and not is_name:
            parts.append(tokens[begin:index])
            begin = index + 1
    parts.append(tokens[begin:])
    return parts

"""The expressions of MATCH_RECOGNIZE in Spark's SQL: the conditions of DEFINE, and MEASURES.

A condition over the row and its neighbours is computed by Spark, row by row. One over the rows matched so far
is known only while a match is searched for: Spark computes its parts, and the matcher compares them. Measures are
aggregates over rows that are matched already, so Spark computes them whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from freshline.errors import DeclarationError
from freshline.sql.call_reader import TokenReader
from freshline.sql.tokens import Text, Token, TokenKind
from freshline.values.rules import declaration_error, nearest

_NAVIGATION = frozenset({"PREV", "NEXT", "FIRST", "LAST"})
# Whose value has the rows in their order.
_LISTS = frozenset({"ARRAY_AGG", "COLLECT_LIST"})
_AGGREGATES = _LISTS | frozenset(
    "ANY APPROX_COUNT_DISTINCT APPROX_PERCENTILE AVG BIT_AND BIT_OR BIT_XOR BOOL_AND BOOL_OR CORR COUNT COUNT_IF "
    "COVAR_POP COVAR_SAMP EVERY KURTOSIS MAX MEAN MEDIAN MIN PERCENTILE PERCENTILE_APPROX REGR_AVGX REGR_AVGY "
    "REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY SKEWNESS SOME STD STDDEV STDDEV_POP "
    "STDDEV_SAMP SUM TRY_AVG TRY_SUM VAR_POP VAR_SAMP VARIANCE".split()
)
# Aggregates that take another row, or order, each time they are computed.
_UNSTEADY = frozenset(
    "ANY_VALUE APPROX_TOP_K COLLECT_SET FIRST_VALUE HISTOGRAM_NUMERIC LAST_VALUE LISTAGG MAX_BY MIN_BY MODE STRING_AGG "
    "TRY_ANY_VALUE".split()
)
# Those that the matcher computes from the rows matched so far.
_OF_HISTORY = frozenset({"COUNT", "SUM", "MIN", "MAX"})
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.Add: "+", exp.Sub: "-",
    exp.And: "and", exp.Or: "or",
}  # fmt: skip
# A step aside is a neighbour, not a search through the table.
_MOST_OFFSET = 1_000
_HIDDEN = re.compile(r"freshline_call(\d+)\Z")


@dataclass(frozen=True)
class Variables:
    """The variables of PATTERN in their order, and those of SUBSET with their parts."""

    primary: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]

    @property
    def known(self) -> tuple[str, ...]:
        """All names."""
        return (*self.primary, *self.subsets)

    def parts(self, name: str) -> tuple[str, ...]:
        """The variables that a name stands for."""
        return self.subsets.get(name, (name,))


def quoted_text(text: str) -> str:
    """A text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(frozen=True)
class _Name:
    """A column in an expression: characters [start, end) of the text, which are replaced, and what is left of it."""

    start: int
    end: int
    variable: str | None


@dataclass
class _Expressions(TokenReader):
    """Reading expressions that stand among the tokens of a text."""

    text: Text
    tokens: Sequence[Token]
    variables: Variables

    def _refuse(self, rule: str, sentence: str, index: int) -> DeclarationError:
        at = self.tokens[min(index, len(self.tokens) - 1)]
        return declaration_error(rule, f"{sentence}.", self.text.at(at.start))

    def _raw(self, first: int, last: int) -> str:
        return self.text.text[self.tokens[first].start : self.tokens[last - 1].end]

    def _not_closed(self, opening: int) -> DeclarationError:
        return self._refuse("PATTERN_SYNTAX", "a parenthesis is not closed", opening)

    def _is_call(self, index: int, names: frozenset[str]) -> bool:
        return self.word(index) in names and self.word(index + 1) == "(" and self.word(index - 1) != "."

    def _names(self, first: int, last: int) -> dict[int, _Name]:
        """The columns among tokens, by the offset of their first character."""
        start = self.tokens[first].start
        text = self._raw(first, last)
        for index in range(first, last):
            token = self.tokens[index]
            if self._is_call(index, _UNSTEADY):
                raise self._refuse(
                    "PATTERN_EXPRESSION",
                    f"{token.raw}(..) takes any of several rows, and has no place in MATCH_RECOGNIZE. Write FIRST, "
                    "LAST or collect_list, or group the rows of ALL ROWS PER MATCH",
                    index,
                )
            before = self.word(index) in ("FINAL", "RUNNING") and index + 2 < last and self.word(index + 2) == "("
            if before:
                text = text[: token.start - start] + " " * len(token.raw) + text[token.end - start :]
        try:
            tree = parse_one(text, dialect="spark")
        except SqlglotError as error:
            raise self._refuse("PATTERN_EXPRESSION", f"{self._raw(first, last)} is not understood", first) from error
        if tree.find(exp.Query):
            raise self._refuse("PATTERN_EXPRESSION", "a subquery stands in MATCH_RECOGNIZE, where none can", first)
        found = {}
        for column in tree.find_all(exp.Column):
            name = self._name(column, start, first)
            if name is not None:
                found[name.start] = name
        return found

    def _name(self, column: exp.Column, start: int, at: int) -> _Name | None:
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        if not parts or "start" not in parts[0].meta or _is_parameter(column):
            return None
        begin = start + int(parts[0].meta["start"])
        if len(parts) == 1 and not isinstance(column.this, exp.Star):
            return _Name(begin, begin, None)
        named = parts[0].this if parts[0].args.get("quoted") else parts[0].this.upper()
        if named not in self.variables.known:
            known = self.variables.known
            raise self._refuse(
                "PATTERN_VARIABLE",
                f"{named} is no variable of PATTERN.{nearest(named, known)} Columns stand behind a variable or alone; "
                "for a field of a column, select it in a query in parentheses before MATCH_RECOGNIZE",
                at,
            )
        end = begin + len(named) if isinstance(column.this, exp.Star) else start + int(parts[1].meta["start"])
        return _Name(begin, end, named)

    def _offset(self, first: int, last: int, call: int) -> int:
        text = self._raw(first, last) if first < last else ""
        if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) > _MOST_OFFSET:
            raise self._refuse(
                "PATTERN_EXPRESSION", f"{self.word(call)}(.., n) takes a whole number up to {_MOST_OFFSET:,}", call
            )
        return int(text)

    def _arguments(self, call: int) -> tuple[tuple[int, int], int]:
        """The expression of a navigation, and its number of places; -1 for none."""
        items = self.items(call + 2, self.closing(call + 1))
        if not 1 <= len(items) <= 2:
            raise self._refuse("PATTERN_EXPRESSION", f"{self.word(call)} takes an expression and a number", call)
        return items[0], self._offset(*items[1], call) if len(items) == 2 else -1

    def _one_variable(self, names: Mapping[int, _Name], first: int, last: int, call: int) -> str | None:
        """The variable whose rows an expression is over; None for those of any. Raises for several."""
        inside = [name for name in names.values() if self._lies_in(name, first, last)]
        found = {name.variable for name in inside}
        for index in range(first, last):
            if self._is_variable_star(index):
                found.add(self._variable_at(index))
        if len(found) > 1:
            shown = " and ".join(sorted(str(name) if name else "all rows" for name in found))
            raise self._refuse("PATTERN_EXPRESSION", f"{self.word(call)}(..) is over rows of {shown}. Write one", call)
        return next(iter(found), None)

    def _lies_in(self, name: _Name, first: int, last: int) -> bool:
        return first < last and self.tokens[first].start <= name.start < self.tokens[last - 1].end

    def _variable_at(self, index: int) -> str:
        token = self.tokens[index]
        return token.value if token.kind is TokenKind.NAME else token.word

    def _is_variable_star(self, index: int) -> bool:
        return self.word(index + 1) == "." and self.word(index + 2) == "*" and self.word(index) != ")"

    def _on_row(self, names: Mapping[int, _Name], first: int, last: int, row: str) -> str:
        """An expression whose columns are those of one row, which is SQL for a struct."""
        parts, at = [], self.tokens[first].start
        for name in sorted(names.values(), key=lambda each: each.start):
            if self._lies_in(name, first, last):
                parts += [self.text.text[at : name.start], row, "."]
                at = name.end
        return "".join([*parts, self.text.text[at : self.tokens[last - 1].end]])

    def _require_plain(self, first: int, last: int, call: int) -> None:
        """Require that no navigation or aggregate stands among tokens."""
        for index in range(first, last):
            if self._is_call(index, _NAVIGATION | _AGGREGATES | frozenset({"CLASSIFIER", "MATCH_NUMBER"})):
                raise self._refuse(
                    "PATTERN_EXPRESSION",
                    f"{self.word(index)}(..) stands inside of {self.word(call)}(..). PREV and NEXT take FIRST or "
                    "LAST; others take columns",
                    index,
                )


def _is_parameter(column: exp.Column) -> bool:
    around = column.find_ancestor(exp.Lambda)
    return around is not None and any(each.name == column.parts[0].name for each in around.expressions)


@dataclass
class Conditions(_Expressions):
    """The conditions of DEFINE.

    `of_history` has for the name of a variable what the matcher asks of the rows matched so far, see
    `freshline.patterns.conditions`.
    """

    of_history: dict[str, object] = field(default_factory=dict)
    _of_row: dict[str, list[str]] = field(default_factory=dict)
    _values: list[str] = field(default_factory=list)

    def add(self, name: str, first: int, last: int) -> None:
        """The condition of one variable, which stands in tokens. Raises DeclarationError."""
        names = self._names(first, last)
        local: list[str] = []
        for begin, end in self._conjuncts(first, last):
            if self._looks_back(name, names, begin, end):
                history = _History(self, name, names)
                tree = history.tree(begin, end)
                before = self.of_history.get(name)
                self.of_history[name] = tree if before is None else ["and", before, tree]
            else:
                local.append(self._local(name, names, begin, end))
        self._of_row[name] = local

    def mask(self) -> str:
        """The number of a row, as SQL over `freshline_r`, its place `freshline_i` and `freshline_partition`."""
        always = sum(1 << number for number, name in enumerate(self.variables.primary) if not self._of_row.get(name))
        parts = [f"{always}L"]
        for number, name in enumerate(self.variables.primary):
            if self._of_row.get(name):
                condition = " AND ".join(f"({each})" for each in self._of_row[name])
                parts.append(f"CASE WHEN {condition} THEN {1 << number}L ELSE 0L END")
        return " + ".join(parts)

    def values(self) -> str:
        """The array of what conditions on the match so far compare, as SQL over `freshline_partition`."""
        if not self._values:
            return "CAST(NULL AS ARRAY<STRUCT<v0: INT>>)"
        fields = ", ".join(f"{value} AS v{number}" for number, value in enumerate(self._values))
        return f"transform(freshline_partition.freshline_array, freshline_r -> struct({fields}))"

    def value(self, text: str) -> int:
        """The number of an expression over the current row that the matcher is handed."""
        if text not in self._values:
            self._values.append(text)
        return self._values.index(text)

    def _conjuncts(self, first: int, last: int) -> list[tuple[int, int]]:
        found, depth, begin, between, cases = [], 0, first, False, 0
        for index in range(first, last):
            word = self.word(index)
            depth += (word == "(") - (word == ")")
            cases += (word == "CASE") - (word == "END")
            if depth or cases:
                continue
            if word == "OR":
                return [(first, last)]
            between = between or word == "BETWEEN"
            if word == "AND":
                if between:
                    between = False
                else:
                    found.append((begin, index))
                    begin = index + 1
        return [*found, (begin, last)]

    def _is_current(self, name: str, variable: str | None) -> bool:
        return variable is None or name in self.variables.parts(variable)

    def _looks_back(self, name: str, names: Mapping[int, _Name], first: int, last: int) -> bool:
        for index in range(first, last):
            if self._is_call(index, _AGGREGATES | frozenset({"FIRST", "MATCH_NUMBER"})):
                return True
            if self._is_call(index, frozenset({"LAST"})) and self._arguments(index)[1] > 0:
                return True
        inside = [each for each in names.values() if self._lies_in(each, first, last)]
        return not all(self._is_current(name, each.variable) for each in inside)

    def _local(self, name: str, names: Mapping[int, _Name], first: int, last: int, row: str = "freshline_r.row") -> str:
        """An expression over the current row and its neighbours, as SQL."""
        parts: list[str] = []
        at, index = self.tokens[first].start, first
        while index < last:
            token = self.tokens[index]
            replaced, end = "", index
            if self._is_call(index, _NAVIGATION):
                end = self.closing(index + 1)
                replaced = f"({self._navigated(name, names, index, row)})"
            elif self._is_call(index, frozenset({"CLASSIFIER"})):
                end = self.closing(index + 1)
                if index + 2 < end and not self._is_current(name, self._classified(index, end)):
                    raise self._refuse(
                        "PATTERN_EXPRESSION",
                        f"in DEFINE CLASSIFIER is of the row that is asked about, which is {name}. Write CLASSIFIER()",
                        index,
                    )
                replaced = quoted_text(name)
            elif token.start in names and self.word(index - 1) != ".":
                found = names[token.start]
                parts += [self.text.text[at : found.start], row, "."]
                at = found.end
            if replaced:
                parts += [self.text.text[at : token.start], replaced]
                at = self.tokens[end].end
            index = end + 1
        return "".join([*parts, self.text.text[at : self.tokens[last - 1].end]])

    def _classified(self, call: int, end: int) -> str:
        """The variable that CLASSIFIER is called with."""
        variable = self._variable_at(call + 2)
        if end != call + 3 or variable not in self.variables.known:
            raise self._refuse("PATTERN_VARIABLE", "CLASSIFIER takes one variable of PATTERN, or nothing", call)
        return variable

    def _navigated(self, name: str, names: Mapping[int, _Name], call: int, row: str) -> str:
        """PREV, NEXT and LAST of the current row."""
        (first, last), count = self._arguments(call)
        if self.word(call) == "LAST":
            return self._local(name, names, first, last, row)
        step = 1 if count < 0 else count
        inner = self._is_call(first, frozenset({"LAST"})) and self.closing(first + 1) == last - 1
        if inner:
            (first, last), _ = self._arguments(first)
        self._require_plain(first, last, call)
        sign = "-" if self.word(call) == "PREV" else "+"
        beside = f"get(freshline_partition.freshline_array, freshline_i {sign} {step}).row"
        return self._on_row(names, first, last, beside)


@dataclass
class _History:
    """A condition on the match so far as a tree for the matcher, see `freshline.patterns.conditions`."""

    conditions: Conditions
    name: str
    names: Mapping[int, _Name]
    calls: dict[int, int] = field(default_factory=dict)

    def tree(self, first: int, last: int) -> object:
        """The tree of the expression that stands in tokens. Raises PATTERN_EXPRESSION."""
        # Calls and columns are covered by names of the same kind, so that sqlglot sees operators only.
        text, index = "", first
        leaves: list[object] = []
        at = self.conditions.tokens[first].start
        whole = self.conditions.text.text
        while index < last:
            token = self.conditions.tokens[index]
            leaf, end = self._leaf(index)
            if leaf is not None:
                text += whole[at : token.start] + f"freshline_call{len(leaves)}"
                at = self.conditions.tokens[end].end
                leaves.append(leaf)
            index = end + 1
        text += whole[at : self.conditions.tokens[last - 1].end]
        try:
            return self._read(parse_one(text, dialect="spark"), leaves, first)
        except SqlglotError as error:
            raise self._wrong(first, whole[self.conditions.tokens[first].start : at]) from error

    def _wrong(self, index: int, what: str) -> DeclarationError:
        return self.conditions._refuse(
            "PATTERN_EXPRESSION",
            f"{what}: a condition on the rows matched so far compares, adds and subtracts, with AND, OR, NOT, BETWEEN "
            "and IS NULL, over columns, FIRST, LAST, PREV, NEXT, count, sum, min and max. Compute anything else in a "
            "query in parentheses before MATCH_RECOGNIZE",
            index,
        )

    def _leaf(self, index: int) -> tuple[object | None, int]:
        """A column, a navigation or an aggregate as a leaf, and its last token; None for another token."""
        conditions = self.conditions
        if conditions._is_call(index, _NAVIGATION):
            return self._navigation(index), conditions.closing(index + 1)
        if conditions._is_call(index, _AGGREGATES | frozenset({"MATCH_NUMBER", "CLASSIFIER"})):
            return self._aggregate(index), conditions.closing(index + 1)
        name = self.names.get(conditions.tokens[index].start)
        if name is None or conditions.word(index - 1) == ".":
            return None, index
        end = conditions.name_end(index) - 1
        if conditions._is_current(self.name, name.variable):
            text = conditions._on_row(self.names, index, end + 1, "freshline_r.row")
            return ["value", conditions.value(text)], end
        return self._of_rows("last", name.variable, 0, 0, (index, end + 1)), end

    def _numbers(self, variable: str | None) -> list[int] | None:
        variables = self.conditions.variables
        return None if variable is None else [variables.primary.index(part) for part in variables.parts(variable)]

    def _of_rows(self, which: str, variable: str | None, count: int, step: int, inner: tuple[int, int]) -> object:
        text = self.conditions._on_row(self.names, *inner, "freshline_r.row")
        return [which, self._numbers(variable), count, step, self.conditions.value(text)]

    def _navigation(self, call: int) -> object:
        conditions = self.conditions
        word = conditions.word(call)
        (first, last), count = conditions._arguments(call)
        step = 0
        if word in ("PREV", "NEXT"):
            step = (1 if count < 0 else count) * (-1 if word == "PREV" else 1)
            inner = conditions._is_call(first, frozenset({"FIRST", "LAST"}))
            inner = inner and conditions.closing(first + 1) == last - 1
            word, count = "LAST", 0
            if inner:
                word = conditions.word(first)
                (first, last), count = conditions._arguments(first)
        conditions._require_plain(first, last, call)
        variable = conditions._one_variable(self.names, first, last, call)
        return self._of_rows(word.lower(), variable, max(count, 0), step, (first, last))

    def _aggregate(self, call: int) -> object:
        conditions = self.conditions
        word = conditions.word(call)
        items = conditions.items(call + 2, conditions.closing(call + 1))
        if word not in _OF_HISTORY or len(items) != 1 or conditions.word(items[0][0]) == "DISTINCT":
            raise self._wrong(call, f"{word}(..)")
        first, last = items[0]
        conditions._require_plain(first, last, call)
        variable = conditions._one_variable(self.names, first, last, call)
        if conditions.word(last - 1) == "*" and word == "COUNT":
            return ["count", self._numbers(variable), None]
        text = conditions._on_row(self.names, first, last, "freshline_r.row")
        return [word.lower(), self._numbers(variable), conditions.value(text)]

    def _read(self, node: exp.Expr, leaves: Sequence[object], at: int) -> object:
        if isinstance(node, exp.Paren):
            return self._read(node.this, leaves, at)
        if isinstance(node, exp.Column) and (hidden := _HIDDEN.match(node.name)):
            return leaves[int(hidden[1])]
        sign = _COMPARISONS.get(type(node))
        if sign is not None:
            return [sign, self._read(node.this, leaves, at), self._read(node.expression, leaves, at)]
        if isinstance(node, exp.Not):
            return ["not", self._read(node.this, leaves, at)]
        if isinstance(node, exp.Between):
            value = self._read(node.this, leaves, at)
            low, high = (self._read(node.args[bound], leaves, at) for bound in ("low", "high"))
            return ["and", [">=", value, low], ["<=", value, high]]
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return ["null", self._read(node.this, leaves, at)]
        if isinstance(node, exp.Neg):
            return ["-", ["value", self.conditions.value("0")], self._read(node.this, leaves, at)]
        interval = node.find(exp.Interval)
        if interval is not None and re.search("MONTH|YEAR|QUARTER", interval.sql(dialect="spark"), re.IGNORECASE):
            # Python has no time that such an interval is.
            raise self._wrong(at, node.sql(dialect="spark"))
        if isinstance(node, exp.Literal | exp.Interval | exp.Boolean | exp.Null | exp.Cast) and not list(
            node.find_all(exp.Column)
        ):
            return ["value", self.conditions.value(node.sql(dialect="spark"))]
        raise self._wrong(at, node.sql(dialect="spark"))


@dataclass
class Measures(_Expressions):
    """MEASURES, and the select list of the whole.

    `show` is `one` for ONE ROW PER MATCH; of ALL ROWS it is `all`, `omit` or `unmatched`. `keys` are SQL. `offsets` are
    the places beside a matched row whose rows are needed with it.
    """

    show: str = "one"
    keys: tuple[str, ...] = ()
    _items_of: list[tuple[str, str]] = field(default_factory=list)
    _offsets: list[int] = field(default_factory=list)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The places beside a row, each once."""
        return tuple(self._offsets)

    def add(self, name: str, first: int, last: int) -> None:
        """The measure of this name, SQL, which stands in tokens. Raises DeclarationError."""
        text = self._measure(self._names(first, last), first, last)
        if self.show == "unmatched":
            text = f"CASE WHEN freshline_m.freshline_match IS NOT NULL THEN {text} END"
        self._items_of.append((name, text))

    def by_match(self, rows: str) -> str:
        """ONE ROW PER MATCH over matched rows: the keys, and the measures."""
        keys = [f"freshline_m.{key}" for key in self.keys]
        items = [*keys, *(f"{text} AS {name}" for name, text in self._items_of)]
        if not items:
            items = ["freshline_m.freshline_match AS match_number"]
        group = ", ".join([*keys, "freshline_m.freshline_match"])
        return f"(SELECT {', '.join(items)} FROM {rows} AS freshline_m GROUP BY {group})"

    def by_row(self, rows: str, *, excluding: bool) -> str:
        """ALL ROWS PER MATCH: the columns of the input, and the measures; rows in {- -} only measured."""
        items = ["freshline_m.freshline_row.*", *(f"{text} AS {name}" for name, text in self._items_of)]
        if not excluding:
            return f"(SELECT {', '.join(items)} FROM {rows} AS freshline_m)"
        items.append("freshline_m.freshline_excluded")
        every = f"(SELECT {', '.join(items)} FROM {rows} AS freshline_m)"
        return (
            f"(SELECT freshline_all.* EXCEPT (freshline_excluded) FROM {every} "
            "AS freshline_all WHERE NOT freshline_all.freshline_excluded)"
        )

    # -- one measure

    def _measure(self, names: Mapping[int, _Name], first: int, last: int) -> str:
        parts: list[str] = []
        at, index = self.tokens[first].start, first
        while index < last:
            begin, final = index, self.show == "one"
            if self.word(index) in ("FINAL", "RUNNING") and self._is_call(index + 1, _NAVIGATION | _AGGREGATES):
                final = final or self.word(index) == "FINAL"
                index += 1
            replaced, end = self._replaced(names, index, final)
            if replaced:
                parts += [self.text.text[at : self.tokens[begin].start], replaced]
                at = self.tokens[end].end
            index = end + 1
        return "".join([*parts, self.text.text[at : self.tokens[last - 1].end]])

    def _replaced(self, names: Mapping[int, _Name], index: int, final: bool) -> tuple[str, int]:
        """The SQL in place of a call or a column, and its last token; empty for another token."""
        if self._is_call(index, _NAVIGATION):
            return self._navigated(names, index, final), self.closing(index + 1)
        if self._is_call(index, _AGGREGATES):
            return self._aggregated(names, index, final), self.closing(index + 1)
        if self._is_call(index, frozenset({"MATCH_NUMBER"})):
            return self._number(), self.closing(index + 1)
        if self._is_call(index, frozenset({"CLASSIFIER"})):
            return self._classified(index, final), self.closing(index + 1)
        name = names.get(self.tokens[index].start)
        if name is None or self.word(index - 1) == ".":
            return "", index
        end = self.name_end(index) - 1
        return self._picked("LAST", name.variable, 0, self._value(names, index, end + 1, 0), final), end

    def _value(self, names: Mapping[int, _Name], first: int, last: int, step: int) -> str:
        if not step:
            return self._on_row(names, first, last, "freshline_m.freshline_row")
        if step not in self._offsets:
            self._offsets.append(step)
        beside = f"freshline_{'behind' if step > 0 else 'before'}{abs(step)}"
        return self._on_row(names, first, last, f"freshline_m.{beside}")

    def _taken(self, variable: str | None) -> str:
        """Whether a row was taken as a variable."""
        if variable is None:
            return "freshline_m.freshline_label IS NOT NULL"
        parts = ", ".join(quoted_text(part) for part in self.variables.parts(variable))
        return f"freshline_m.freshline_label IN ({parts})"

    def _over(self, final: bool) -> str:
        """The window of an aggregate over a match; empty where each match is one group."""
        if self.show == "one":
            return ""
        # As the select list has them, so that they are seen to be keys of the result.
        keys = ", ".join([*(f"freshline_m.freshline_row.{key}" for key in self.keys), "freshline_m.freshline_match"])
        end = "UNBOUNDED FOLLOWING" if final else "CURRENT ROW"
        frame = f"ROWS BETWEEN UNBOUNDED PRECEDING AND {end}"
        return f" OVER (PARTITION BY {keys} ORDER BY freshline_m.freshline_place {frame})"

    def _picked(self, which: str, variable: str | None, count: int, value: str, final: bool) -> str:
        """The value at one of a match's rows: the first or last of a variable, or so many before or after."""
        taken, over = self._taken(variable), self._over(final)
        # By its place a row is the only one, so the greatest and the least are the same whenever they are computed.
        pair = f"CASE WHEN {taken} THEN struct(freshline_m.freshline_place AS p, {value} AS v) END"
        if count:
            listed = f"array_sort(collect_list({pair}){over})"
            ordered = listed if which == "FIRST" else f"reverse({listed})"
            return f"get({ordered}, {count}).v"
        picked = f"{'min' if which == 'FIRST' else 'max'}({pair}){over}"
        return f"({picked}).v" if over else f"{picked}.v"

    def _navigated(self, names: Mapping[int, _Name], call: int, final: bool) -> str:
        word, step = self.word(call), 0
        (first, last), count = self._arguments(call)
        if word in ("PREV", "NEXT"):
            step = (1 if count < 0 else count) * (-1 if word == "PREV" else 1)
            word, count = "LAST", 0
            inner = first + (self.word(first) in ("FINAL", "RUNNING"))
            if self._is_call(inner, frozenset({"FIRST", "LAST"})) and self.closing(inner + 1) == last - 1:
                final = final or self.word(first) == "FINAL"
                word = self.word(inner)
                (first, last), count = self._arguments(inner)
        self._require_plain(first, last, call)
        variable = self._one_variable(names, first, last, call)
        return self._picked(word, variable, max(count, 0), self._value(names, first, last, step), final)

    def _aggregated(self, names: Mapping[int, _Name], call: int, final: bool) -> str:
        items = self.items(call + 2, self.closing(call + 1))
        word = self.tokens[call].raw
        if not items:
            raise self._refuse("PATTERN_EXPRESSION", f"{word}() has no argument. Write {word}(B.v)", call)
        first, last = items[0][0], items[-1][1]
        self._require_plain(first, last, call)
        variable = self._one_variable(names, first, last, call)
        taken, over = self._taken(variable), self._over(final)
        distinct = "DISTINCT " if self.word(first) == "DISTINCT" else ""
        if self.word(last - 1) == "*":
            return f"count(CASE WHEN {taken} THEN 1 END){over}"
        kind = self.word(call)
        if over and (distinct or kind == "MEDIAN"):
            called = f"{word}(DISTINCT ..)" if distinct else f"{word}(..)"
            raise self._refuse(
                "PATTERN_EXPRESSION", f"{called} is for ONE ROW PER MATCH; Spark has none for rows", call
            )
        if kind in _LISTS:
            if distinct or len(items) != 1:
                raise self._refuse("PATTERN_EXPRESSION", f"{word} takes one expression, without DISTINCT", call)
            value = self._value(names, first, last, 0)
            placed = f"struct(freshline_m.freshline_place AS p, {value} AS v)"
            pair = f"CASE WHEN {taken} AND {value} IS NOT NULL THEN {placed} END"
            return f"transform(array_sort(collect_list({pair}){over}), freshline_x -> freshline_x.v)"
        values = [
            # An argument without values of rows, as an approximation's accuracy, is a constant for Spark as it stands.
            self._raw(begin, end)
            if place and not any(self._lies_in(name, begin, end) for name in names.values())
            else f"CASE WHEN {taken} THEN {self._value(names, begin + (place == 0 and bool(distinct)), end, 0)} END"
            for place, (begin, end) in enumerate(items)
        ]
        return f"{word}({distinct}{', '.join(values)}){over}"

    def _number(self) -> str:
        return "freshline_m.freshline_match"

    def _classified(self, call: int, final: bool) -> str:
        items = self.items(call + 2, self.closing(call + 1))
        variable = None
        if items:
            variable = self._variable_at(items[0][0])
            if len(items) != 1 or items[0][1] - items[0][0] != 1 or variable not in self.variables.known:
                raise self._refuse("PATTERN_VARIABLE", "CLASSIFIER takes one variable of PATTERN, or nothing", call)
        if self.show != "one" and variable is None and not final:
            return "freshline_m.freshline_label"
        return self._picked("LAST", variable, 0, "freshline_m.freshline_label", final)

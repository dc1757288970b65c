"""Graph functions in FROM: CONNECTED_COMPONENTS, PAGERANK and COMMUNITIES.

They are iterations, which no query of Spark is. So a query that reads one is kept in three parts: the query of the
edges, the function, and the query over the rows that the function gives, which is one SELECT with WHERE. In the text
that everybody else reads, a query in parentheses stands for the function. It has the function's columns with their
types, and window functions over all rows, because a row of it may depend on every edge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from freshline.errors import DeclarationError
from freshline.sql.call_reader import CallReader, Refuse
from freshline.sql.tokens import Text, TokenKind
from freshline.values.names import TableName, quoted
from freshline.values.query import GraphCall, GraphFunction, SqlQuery, TextSpan
from freshline.values.rules import declaration_error

# The view of the rows that a function gives, and the alias of the edges.
GRAPH_VIEW = "freshline_graph"
EDGES = "freshline_edges"
SOURCE, TARGET = "freshline_source", "freshline_target"
DEFAULT_TOLERANCE = 1e-6
LEAST_TOLERANCE, GREATEST_TOLERANCE = 1e-9, 0.1
DEFAULT_ROUNDS, MOST_ROUNDS = 10, 1_000
_PARAMETERS = {
    "CONNECTED_COMPONENTS": ("DATA", "EDGES"),
    "PAGERANK": ("DATA", "EDGES", "TOLERANCE"),
    "COMMUNITIES": ("DATA", "EDGES", "ROUNDS"),
}
_SHAPES = {
    "CONNECTED_COMPONENTS": "CONNECTED_COMPONENTS(TABLE edge, DESCRIPTOR(src, dst))",
    "PAGERANK": "PAGERANK(TABLE edge, DESCRIPTOR(src, dst), TOLERANCE => 1e-6)",
    "COMMUNITIES": "COMMUNITIES(TABLE edge, DESCRIPTOR(src, dst), ROUNDS => 10)",
}
_INSTEAD = "Declare the graph function as a table of its own, and read that"
_PLAIN = frozenset(("expressions", "from_", "where", "hint"))


@dataclass(frozen=True)
class LoweredGraph:
    """A query with a graph function: as text that Spark reads, and in its parts; see `GraphCall`.

    `edges` is the query of the edges, which begins on the line `line` of the file. `offset` is where the call stands,
    and `stands` the place in `text` of what stands for it.
    """

    text: str
    function: GraphFunction
    table: TableName | None
    ends: tuple[str, str]
    edges: str
    stands: TextSpan
    line: int
    offset: int
    tolerance: float
    rounds: int


def lower_graph(text: Text) -> LoweredGraph | None:
    """The graph function that a query calls, None for a query without one.

    Raises DeclarationError: QUERY_SYNTAX for a call that is not one of the documented forms, GRAPH for numbers that no
    function has, and for a second call.
    """
    if not re.search(rf"\b({'|'.join(_PARAMETERS)})\b", text.text, re.IGNORECASE):
        return None
    return _Lowering(text, text.tokens()).lower()


class _Lowering(CallReader):
    def lower(self) -> LoweredGraph | None:
        calls = [index for index in range(len(self.tokens)) if self._begins(index)]
        if not calls:
            return None
        if len(calls) > 1:
            raise self._refuse("GRAPH", calls[1], f"a query has one graph function. {_INSTEAD}")
        (index,) = calls
        closing = self.closing(index + 1)
        wrapped = index >= 2 and self.word(index - 2) == "TABLE" and self.word(index - 1) == "("
        begin = index - 2 if wrapped else index
        if wrapped and self.word(closing + 1) != ")":
            raise self._refuse("QUERY_SYNTAX", index, f"TABLE({self.word(index)}(..) is not closed by )")
        start, end = self.tokens[begin].start, self.tokens[closing + wrapped].end
        return self._lowered(index, closing, start, end)

    def _lowered(self, index: int, closing: int, start: int, end: int) -> LoweredGraph:
        name = self.word(index)
        function = GraphFunction[name]

        def refuse(rule: str, sentence: str) -> DeclarationError:
            return self._refuse(rule, index, f"{name}: {sentence}")

        given = self._named(name, index, self.items(index + 2, closing), _PARAMETERS[name], _SHAPES[name])
        missing = [each for each in ("DATA", "EDGES") if each not in given]
        if missing:
            raise refuse("QUERY_SYNTAX", f"{', '.join(missing)} is missing. Write {_SHAPES[name]}")
        table, source = self._input(*given["DATA"], refuse)
        ends = self._ends(*given["EDGES"], refuse)
        rows, value = f"{EDGES}.{quoted(ends[0])}", f"min({EDGES}.{quoted(ends[1])}) OVER ()"
        if function is GraphFunction.PAGERANK:
            value = f"CAST(count({EDGES}.{quoted(ends[1])}) OVER () AS DOUBLE)"
        stands = f"(SELECT {rows} AS node, {value} AS {function.value} FROM {source} AS {EDGES})"
        written = self.text.text[start:end]
        stands += "\n" * (written.count("\n") - stands.count("\n"))
        before, after = self.text.text[:start], self.text.text[end:]
        first, second = (f"{EDGES}.{quoted(column)}" for column in ends)
        return LoweredGraph(
            text=before + stands + after,
            function=function,
            table=table,
            ends=ends,
            edges=f"SELECT {first} AS {SOURCE}, {second} AS {TARGET} FROM {source} AS {EDGES}",
            stands=TextSpan(start, start + len(stands)),
            line=self.text.line(start),
            offset=start,
            tolerance=self._tolerance(given, refuse),
            rounds=self._rounds(given, refuse),
        )

    def _begins(self, index: int) -> bool:
        if self.word(index) not in _PARAMETERS or self.word(index + 1) != "(":
            return False
        # A function of that name is called by nobody: Spark has none.
        return self.word(index + 2) in ("TABLE", "DATA", "EDGES", "(") or self.word(index - 1) in ("FROM", "JOIN")

    def _input(self, first: int, last: int, refuse: Refuse) -> tuple[TableName | None, str]:
        if self.word(first) == "TABLE":
            first += 1
        source = self.text.text[self.tokens[first].start : self.tokens[last - 1].end]
        if self.word(first) == "(" and first < last - 1 and self.closing(first) == last - 1:
            return None, source
        return self._table(first, last, refuse), source

    def _ends(self, first: int, last: int, refuse: Refuse) -> tuple[str, str]:
        words = [self.word(index) for index in range(first, last)]
        named = len(words) == 6 and (words[0], words[1], words[3], words[5]) == ("DESCRIPTOR", "(", ",", ")")
        tokens = [self.tokens[first + place] for place in (2, 4)] if named else []
        if not tokens or any(token.kind not in (TokenKind.WORD, TokenKind.NAME) for token in tokens):
            raise refuse("QUERY_SYNTAX", "the ends of an edge are two columns. Write DESCRIPTOR(src, dst)")
        return tokens[0].value, tokens[1].value

    def _number(self, given: Mapping[str, tuple[int, int]], name: str) -> str | None:
        return None if name not in given else "".join(token.raw for token in self.tokens[slice(*given[name])])

    def _tolerance(self, given: Mapping[str, tuple[int, int]], refuse: Refuse) -> float:
        text = self._number(given, "TOLERANCE")
        if text is None:
            return DEFAULT_TOLERANCE
        plain = re.fullmatch(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", text)
        if plain is None or not LEAST_TOLERANCE <= float(text) <= GREATEST_TOLERANCE:
            raise refuse(
                "GRAPH",
                f"TOLERANCE {text} is no number between {LEAST_TOLERANCE:g} and {GREATEST_TOLERANCE:g}. Write one such "
                "as 1e-6",
            )
        return float(text)

    def _rounds(self, given: Mapping[str, tuple[int, int]], refuse: Refuse) -> int:
        text = self._number(given, "ROUNDS")
        if text is None:
            return DEFAULT_ROUNDS
        if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_ROUNDS:
            raise refuse(
                "GRAPH", f"ROUNDS {text} is no whole number between 1 and {MOST_ROUNDS:,}. Write one such as 10"
            )
        return int(text)


def find_graph_call(lowered: LoweredGraph, tree: exp.Expr, edges: SqlQuery, text: Text) -> GraphCall:
    """The graph function of a query, whose tree is that of `lowered.text`; raises DeclarationError (GRAPH)."""
    value = lowered.function.value

    def refuse(sentence: str) -> DeclarationError:
        return declaration_error("GRAPH", f"{lowered.function.name}: {sentence}.", text.at(lowered.offset))

    select = _plain_select(tree, refuse)
    if edges.lookup_joins or edges.as_of_joins:
        raise refuse("the edges are rows of tables as they are, and this query has FOR SYSTEM_TIME AS OF. Declare the "
                     "edges as a table of their own, and name that")  # fmt: skip
    names = {"node": "", value: ""}
    for item in select.expressions:
        plain = item.unalias()
        if isinstance(plain, exp.Column) and plain.name.lower() in names:
            names[plain.name.lower()] = names[plain.name.lower()] or item.alias_or_name
        elif _is_star(plain):
            names = {name: found or name for name, found in names.items()}
    if not names["node"]:
        raise refuse("a table of a graph has the column node, by which its rows are found. Add it to the select list")
    if lowered.function is GraphFunction.PAGERANK:
        _check_ranks(select, refuse)
    return GraphCall(
        function=lowered.function,
        table=lowered.table,
        ends=lowered.ends,
        edges=edges,
        stands=lowered.stands,
        node=names["node"],
        value=names[value] or None,
        filtered=select.args.get("where") is not None,
        tolerance=lowered.tolerance,
        rounds=lowered.rounds,
        line=text.line(lowered.offset),
    )


def _plain_select(tree: exp.Expr, refuse: Callable[[str], DeclarationError]) -> exp.Select:
    """The query as one SELECT with WHERE over the function alone."""
    found: list[str] = []
    if not isinstance(tree, exp.Select):
        found.append("a set operation or parentheses around the query")
    else:
        found += [key.rstrip("_").upper() for key, value in tree.args.items() if value and key not in _PLAIN]
        found += [_name_of(node) for node in _not_by_row(tree)]
        source = tree.args.get("from_")
        inside = None if source is None else source.this
        if not isinstance(inside, exp.Subquery) or not _reads_edges(inside):
            found.append("another input, a subquery or a SIDE OUTPUT around the function")
        else:
            found += [key.rstrip("_").upper() for key, value in inside.args.items() if value and key not in _OF_SOURCE]
            alias = inside.args.get("alias")
            found += ["names of columns behind the alias"] if alias is not None and alias.args.get("columns") else []
    if found or not isinstance(tree, exp.Select):
        raise refuse(
            "a graph function is read by one SELECT of columns and expressions, with WHERE, and by nothing else; this "
            f"query has {', '.join(dict.fromkeys(found))}. {_INSTEAD}"
        )
    return tree


_OF_SOURCE = frozenset(("this", "alias"))


def _reads_edges(source: exp.Subquery) -> bool:
    inner = source.this
    start = inner.args.get("from_") if isinstance(inner, exp.Select) else None
    return start is not None and start.this.alias == EDGES


def _not_by_row(select: exp.Select) -> Iterator[exp.Expr]:
    """The parts of the query's expressions that do not follow from one row of the function."""
    for item in (*select.expressions, select.args.get("where")):
        if item is not None:
            yield from item.find_all(exp.Query, exp.AggFunc, exp.Window, exp.UDTF, exp.Explode)


def _name_of(node: exp.Expr) -> str:
    return "a subquery" if isinstance(node, exp.Query) else "OVER" if isinstance(node, exp.Window) else node.key.upper()


def _is_star(item: exp.Expr) -> bool:
    star = item.this if isinstance(item, exp.Column) else item
    return isinstance(star, exp.Star) and not any(star.args.values())


def _check_ranks(select: exp.Select, refuse: Callable[[str], DeclarationError]) -> None:
    """Require that ranks, right within a tolerance only, are shown once and decide nothing in this query."""
    shown = [item for item in select.expressions if _is_star(item.unalias()) or _is_rank(item.unalias())]
    # Spark lets later items of the list name earlier ones.
    names = {GraphFunction.PAGERANK.value, *(item.alias_or_name.lower() for item in shown if _is_rank(item.unalias()))}
    for item in (*select.expressions, select.args.get("where")):
        if item is None or item in shown:
            continue
        if any(column.name.lower() in names for column in item.find_all(exp.Column)) or item.find(exp.Star):
            raise refuse(
                "a rank is right within TOLERANCE, so an expression or condition over it could differ from one refresh "
                "to the next. Select rank as it is, or *, and compute with it in a table that reads this one"
            )
    if len(shown) > 1:
        raise refuse("the select list has rank twice. Select it once")


def _is_rank(item: exp.Expr) -> bool:
    return isinstance(item, exp.Column) and item.name.lower() == GraphFunction.PAGERANK.value

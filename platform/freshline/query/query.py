"""A query as it is run, parsed once: its tree, the text at each place of the tree, and the inputs that it reads.

Everyone who asks for a tree gets the same one, so nobody may change it: a copy is made for another tree. The parser's
tree is not Spark's: the text that it prints may be another expression (`to_char(ts, 'yyyy-MM')` becomes a CAST, and the
format is lost). So an expression that is taken out of a query is taken as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sqlglot import exp

from freshline.query.tree import NotDerivedError, unsupported
from freshline.sql.query_parser import WRITTEN, parse_sql, span_of
from freshline.sql.tokens import Text, TokenKind
from freshline.sql.volatile import find_volatile
from freshline.values.names import TableName
from freshline.values.query import SqlQuery, TextSpan
from freshline.values.reason import Reason

# Trees are large, and a refresh asks for that of one query several times within moments.
KEPT_TREES = 128
KEPT_EXPANDED = 8
# Each name that is read twice doubles what it stands for: beyond this a query is not analysed.
MOST_NODES = 50_000


@dataclass(frozen=True)
class Query:
    """One query of Spark SQL over views.

    `views` are pairs of a view that it reads, in lower case, and the declared table behind it. `lookups` are those that
    are read only as dimensions of lookup joins.
    """

    text: str
    views: tuple[tuple[str, TableName], ...] = ()
    lookups: frozenset[TableName] = frozenset()

    @property
    def tree(self) -> exp.Query:
        """The tree of the text; it is shared. Raises sqlglot's errors for a text that cannot be parsed."""
        return _tree(self.text)

    @property
    def expanded(self) -> exp.Expr:
        """The tree without WITH, see `inline_common_tables`; it is shared. Raises NotDerivedError."""
        found = _expanded(self.text)
        if isinstance(found, Reason):
            raise NotDerivedError(found)
        return found

    @property
    def volatile(self) -> str | None:
        """The first part of the query that gives another value each time, None where there is none."""
        return _volatile(self.text)

    @cached_property
    def inputs(self) -> Mapping[str, TableName]:
        """The declared tables that are read, by the name of their view in lower case."""
        return dict(self.views)

    def may_name(self, columns: Collection[str]) -> bool:
        """Whether columns of these names may be read: one of them is named, or a star or NATURAL stands for all."""
        names = {column.lower() for column in columns}
        for node in self.tree.walk():
            match node:
                case exp.Star() if not isinstance(node.parent, exp.Count):
                    return True
                case exp.Join() if str(node.method).upper() == "NATURAL":
                    return True
                case exp.Identifier() if node.name.lower() in names:
                    return True
        return False

    def input_of(self, source: exp.Expr) -> TableName | None:
        """The declared table that is read at a place of the tree, None where it is something else."""
        return self.inputs.get(source.name.lower()) if isinstance(source, exp.Table) else None

    def inputs_in(self, node: exp.Expr) -> frozenset[TableName]:
        """The declared tables that are read below a node of the tree."""
        found = (self.input_of(table) for table in node.find_all(exp.Table))
        return frozenset(name for name in found if name is not None)

    def span(self, node: exp.Expr) -> TextSpan | None:
        """The place of an expression in the text, None where the parser did not note it."""
        written = node.meta.get(WRITTEN)
        return None if written is None else TextSpan(*written)

    def written(self, node: exp.Expr, name_of: Callable[[exp.Column], str]) -> str | None:
        """The text of an expression as it was written, each column replaced by what `name_of` gives for it.

        None where its place is not known.
        """
        span = self.span(node)
        if span is None:
            return None
        parts: list[str] = []
        start = span.start
        for place, column in sorted(_column_spans(node), key=lambda found: found[0].start):
            if place.start < start or place.end > span.end:
                return None
            parts += [self.text[start : place.start], name_of(column)]
            start = place.end
        known = len(parts) // 2 == sum(1 for _ in node.find_all(exp.Column))
        return "".join([*parts, self.text[start : span.end]]) if known else None

    def is_same(self, left: exp.Expr, right: exp.Expr) -> bool:
        """Whether two expressions of the tree are one: columns of one name, or the same words.

        Letter case counts in texts only. Of two spellings of one thing it says no.
        """
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            return [part.name.lower() for part in left.parts] == [part.name.lower() for part in right.parts]
        words, others = self._words(left), self._words(right)
        return words is not None and words == others

    def _words(self, node: exp.Expr) -> list[tuple[bool, str]] | None:
        span = self.span(node)
        if span is None:
            return None
        tokens = Text(self.text[span.start : span.end], "").tokens()
        return [
            (token.kind is TokenKind.STRING, token.value if token.kind is TokenKind.STRING else token.value.lower())
            for token in tokens
        ]


@lru_cache(maxsize=2048)
def read_query(query: SqlQuery) -> Query:
    """A declared query as Spark runs it: over the views of what it reads."""
    return Query(query.render(analysed=True), tuple((name.view.lower(), name) for name in query.reads), query.lookups)


def _column_spans(expression: exp.Expr) -> list[tuple[TextSpan, exp.Column]]:
    """The columns of an expression that have their place in the text."""
    found = []
    for column in expression.find_all(exp.Column):
        places = [part for part in column.parts if isinstance(part, exp.Identifier) and "start" in part.meta]
        if places and len(places) == len(column.parts):
            found.append((span_of(places[0], places[-1]), column))
    return found


@lru_cache(maxsize=KEPT_TREES)
def _tree(text: str) -> exp.Query:
    return parse_sql(text)


@lru_cache(maxsize=2048)
def _volatile(text: str) -> str | None:
    return find_volatile(_tree(text))


@lru_cache(maxsize=KEPT_EXPANDED)
def _expanded(text: str) -> exp.Expr | Reason:
    try:
        return inline_common_tables(_tree(text))
    except NotDerivedError as error:
        return error.reason


# -- common tables -------------------------------------------------------------------------------------------------


def inline_common_tables(tree: exp.Expr) -> exp.Expr:
    """A copy of a parsed query without WITH: each reference is a subquery, with the alias and clauses it was read by.

    Names are resolved as Spark does: a body sees those before it and around it, not itself nor those after it. Raises
    NotDerivedError for WITH RECURSIVE, and for a tree that would have more than MOST_NODES nodes.
    """
    return _Inlining().resolve(tree, {})


class _Inlining:
    def __init__(self) -> None:
        self._nodes = 0

    def resolve(self, node: exp.Expr, known: Mapping[str, exp.Subquery]) -> exp.Expr:
        """A copy of the node; `known` are the bodies of what is in scope, by lower-case name."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise unsupported("common table expressions nested too often")
        if isinstance(node, exp.Hint):
            return node.copy()
        clause = node.args.get("with_")
        if clause is not None:
            if clause.args.get("recursive"):
                raise unsupported("WITH RECURSIVE")
            known = dict(known)
            for common in clause.expressions:
                body = self.resolve(common.this, known)
                known[common.alias.lower()] = exp.Subquery(this=body, alias=common.args.get("alias").copy())
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and node.args.get("db") is None:
            common_table = known.get(node.name.lower())
            if common_table is not None:
                return self._reference(node, common_table, known)
        copy = node.__class__()
        copy.meta.update(node.meta)
        for name, value in node.args.items():
            if name == "with_":
                continue
            if isinstance(value, list):
                copy.set(name, [self.resolve(each, known) if isinstance(each, exp.Expr) else each for each in value])
            else:
                copy.set(name, self.resolve(value, known) if isinstance(value, exp.Expr) else value)
        return copy

    def _reference(self, table: exp.Table, body: exp.Subquery, known: Mapping[str, exp.Subquery]) -> exp.Expr:
        self._nodes += sum(1 for _ in body.walk())
        if self._nodes > MOST_NODES:
            raise unsupported("common table expressions nested too often")
        found = body.copy()
        own = table.args.get("alias")
        if own is not None:
            columns = own.args.get("columns") or found.args["alias"].args.get("columns")
            found.set("alias", exp.TableAlias(this=own.this.copy(), columns=[each.copy() for each in columns or []]))
        for name, value in table.args.items():
            if name in ("this", "alias") or not value:
                continue
            values = value if isinstance(value, list) else [value]
            resolved = [self.resolve(each, known) if isinstance(each, exp.Expr) else each for each in values]
            found.set(name, resolved if isinstance(value, list) else resolved[0])
        return found

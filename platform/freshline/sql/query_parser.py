"""From the text of a query to the places in it that freshline works on.

sqlglot is asked for structure only, and every place it gives is compared with the text that stands there. The
text itself is never printed back from the tree: what Spark runs is what was written.

Text that Spark would not understand (`FOR SYSTEM_TIME AS OF PROCTIME()`, `version_of(d)`) is covered by text of the
same length before sqlglot sees it, so that offsets in the tree are offsets in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import cast

import sqlglot
from sqlglot import Token as SparkToken
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser

from freshline.errors import DeclarationError
from freshline.sql.final_rows import lower_final_rows
from freshline.sql.functions import REFUSED_FUNCTIONS, TABLE_FUNCTIONS
from freshline.sql.graph_functions import find_graph_call, lower_graph
from freshline.sql.mistaken_words import TABLE_FUNCTIONS_OF_OURS, mistaken_words
from freshline.sql.system_time_joins import AsOfTime, SystemTimeJoins, is_name, offset_of
from freshline.sql.temporal_filters import find_clock_calls
from freshline.sql.tokens import Text, Token, TokenKind, parse_name
from freshline.sql.window_functions import WINDOWED, Columns, LoweredQuery, lower_windows
from freshline.values.closing import AFTER, NOW, READ, UNTIL, Final, written_moment
from freshline.values.location import Location
from freshline.values.names import PART, TableName
from freshline.values.query import (
    FIRST_SORTED_ROWS,
    MATCH_FUNCTION,
    MATCHED_ROWS,
    PREDICT_FUNCTION,
    SORTED_ROWS,
    GraphCall,
    ModelCall,
    SqlQuery,
    TableReference,
    TextSpan,
    WindowTime,
    cover_models,
)
from freshline.values.registry import ExtensionError, optional_part
from freshline.values.rules import Problems, declaration_error, nearest

# Trees are large, and a declaration asks for that of its query several times within moments.
KEPT_TREES = 64
FILE_FORMATS = frozenset("delta parquet json csv text orc avro xml binaryfile iceberg hudi".split())

_NOT_A_QUERY = (exp.Command, exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Into, exp.Block)
_MODEL_FUNCTIONS = ("ML_PREDICT", "MODEL_VERSION_OF")
_AS_OF = ("FOR", "SYSTEM_TIME", "AS", "OF")
_PROCTIME = (*_AS_OF, "PROCTIME", "(", ")")
_KEYWORDS = frozenset(Spark.Tokenizer.KEYWORDS)


# Under this name an expression's node has where it stands in the text: its first character, and that after its last.
WRITTEN = "freshline_written"


class SparkSql(Spark):
    """Spark's SQL as Spark reads it, with the place of each expression: sqlglot has those of names only.

    A comma in FROM stays one: sqlglot takes it for a CROSS JOIN, which Spark plans in another way. `window(..)` is a
    function wherever it is called: sqlglot takes it for the clause WINDOW w AS (..) in GROUP BY.
    """

    class Parser(SparkParser):
        JOINS_HAVE_EQUAL_PRECEDENCE = False

        def parse(self, raw_tokens: list[SparkToken], sql: str) -> list[exp.Expr | None]:
            tokens = list(raw_tokens)
            for place, (token, following) in enumerate(pairwise(raw_tokens)):
                if token.token_type is TokenType.WINDOW and following.token_type is TokenType.L_PAREN:
                    tokens[place] = SparkToken(
                        TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments
                    )
            return super().parse(tokens, sql)

        def _parse_disjunction(self) -> exp.Expr | None:
            start = None if self._curr is None else self._curr.start
            node = super()._parse_disjunction()
            if node is not None and start is not None and self._prev is not None:
                node.meta[WRITTEN] = (start, self._prev.end + 1)
            return node


def parse_query(
    text: str,
    path: str,
    line: int,
    final: Final | None = None,
    moved: tuple[tuple[int, int], ...] = (),
    columns: Columns | None = None,
) -> SqlQuery:
    """Read one SELECT; `line` is the line of the file on which the text begins. With `final` its rows are final.

    `columns` are those of tables, for windows over tables that have columns of the names that windows give.

    With a condition of WHEN the text has it already (`freshline.sql.triggers.rows_when`). `moved` has the parts
    that stand elsewhere, see `Text`.

    Raises DeclarationErrors with everything that can be reported at once.
    """
    try:
        return _Parser(Text(text, path, line, moved), final, columns).parse()
    except RecursionError as error:
        raise too_deep(Location(path, line)) from error


def parse_late_rows(text: str, path: str, line: int, final: Final, columns: Columns | None = None) -> SqlQuery | None:
    """The query of the rows that come too late for the windows of a FINAL query; None where that has no windows.

    Of a query that `parse_query` has read.
    """
    late = _lower(Text(text, path, line), final, columns).late
    if late is None:
        return None
    whole = parse_query(text, path, line, final, columns=columns)
    query = parse_query(late, path, line)
    times = tuple(whole.window_times)
    read = {reference.alias.lower(): reference.span.start for reference in query.references}
    versions = tuple(replace(join, start=read[join.alias.lower()], late=True) for join in whole.as_of_joins)
    meaning = f"late {final.lateness} {whole.meaning}"
    return replace(query, meaning=meaning, window_times=times, as_of_joins=versions, arrived=True)


def parse_structure(query: SqlQuery) -> exp.Query:
    """The tree of a query that was read before; `version_of(d)` stands in it as the number 0, and `ml_predict(m, a)`
    without its model.

    It is the one that `parse_query` read, as long as that is kept, so nobody may change it.
    """
    return cast(exp.Query, _kept_trees(_covered(query.text, query.removed, query.covered))[0])


def parse_sql(text: str) -> exp.Query:
    """The tree of SQL that Spark would run, such as a rendered query; raises sqlglot's ParseError.

    Expressions have where they stand in the text, see WRITTEN.
    """
    [tree] = parse_trees(text)
    return cast(exp.Query, tree)


def parse_trees(text: str) -> list[exp.Expr]:
    """The trees of the statements in a text of Spark's SQL, as sqlglot reads it; raises sqlglot's errors.

    Calls with too few arguments, such as `map(a)`, make sqlglot fail with Python's errors instead.
    """
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=SparkSql) if tree is not None]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SqlglotError("a call in it has not the arguments that its function takes") from error
    for tree in trees:
        _keep_together(tree)
    return trees


def _keep_together(tree: exp.Expr) -> None:
    """Put the units of `INTERVAL 1 HOUR 30 MINUTES` into parentheses.

    sqlglot makes a sum of them, and would write `ts - INTERVAL 1 HOUR + INTERVAL 30 MINUTES` for what is taken away.
    """
    for node in list(tree.find_all(exp.Add)):
        if _is_of_units(node) and not isinstance(node.parent, exp.Paren):
            if node.parent is None or _is_of_units(node.parent):
                continue
            around = exp.Paren()
            node.replace(around)
            around.set("this", node)


def _is_of_units(node: exp.Expr) -> bool:
    sides = (node.this, node.expression) if isinstance(node, exp.Add) else ()
    return bool(sides) and all(isinstance(side, exp.Interval) or _is_of_units(side) for side in sides)


@lru_cache(maxsize=KEPT_TREES)
def _kept_trees(text: str) -> tuple[exp.Expr, ...]:
    """The trees of a declared text, of which places, columns and options are checked one after another."""
    return tuple(parse_trees(text))


def _tree_or_none(text: str) -> exp.Expr | None:
    try:
        [tree] = _kept_trees(text)
    except (SqlglotError, ValueError):
        return None
    return tree


def is_refused_call(token: Token, following: Sequence[str]) -> bool:
    """Whether a token, with the words that follow it, calls a function that no query may call."""
    named = token.kind in (TokenKind.WORD, TokenKind.NAME) and token.value.lower() in REFUSED_FUNCTIONS
    return named and tuple(following[:1]) == ("(",)


def too_deep(at: Location) -> DeclarationError:
    """The error for a query that Python's stack is too small for."""
    return declaration_error(
        "QUERY_SYNTAX",
        "the query is nested too deeply, or has too many set operations in a row, to be read. Split it into several "
        "tables.",
        at,
    )


def is_common_table(table: exp.Table) -> bool:
    """Whether the name stands for a common table expression rather than for a declared table."""
    if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
        return False
    name = table.name.lower()
    node: exp.Expr = table
    while node.parent is not None:
        parent = node.parent
        if isinstance(parent, exp.With):
            # Within WITH, a name is visible to those after it; to itself only if recursive.
            for common in parent.expressions:
                if common is node and not parent.args.get("recursive"):
                    break
                if common.alias.lower() == name:
                    return True
                if common is node:
                    break
        else:
            with_ = parent.args.get("with_")
            if with_ is not None and with_ is not node and any(c.alias.lower() == name for c in with_.expressions):
                return True
        node = parent
    return False


def declared_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Every place of the tree that reads a table: no common table expressions, functions or hints."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not table.find_ancestor(exp.Hint) and not is_common_table(table):
            yield table


def span_of(first: exp.Expr, last: exp.Expr | None = None) -> TextSpan:
    """The characters from one identifier to another, as sqlglot recorded them."""
    return TextSpan(int(first.meta["start"]), int((last or first).meta["end"]) + 1)


def _covered(text: str, removed: Sequence[TextSpan], instead: Sequence[tuple[TextSpan, str]]) -> str:
    """The text for sqlglot: text that it would not understand is covered by as many characters."""
    covers = [(span.start, " " * (span.end - span.start)) for span in removed]
    covers += [(span.start, cover.ljust(span.end - span.start)) for span, cover in instead]
    for start, cover in covers:
        text = text[:start] + cover + text[start + len(cover) :]
    return text


def _lower(text: Text, final: Final | None, columns: Columns | None = None) -> LoweredQuery:
    """The query in Spark's SQL; with `final`, of rows that are final."""
    patterns = _lower_patterns(text, final)
    lowered = lower_windows(text.lowered(patterns.text), final, columns)
    if patterns.late is not None:
        if lowered.late is not None:
            raise declaration_error(
                "FINAL_INPUT",
                "EMIT FINAL is for a query with one window function, or one MATCH_RECOGNIZE. Declare one of them as a "
                "FINAL table of its own, and read that.",
                text.at(0),
            )
        return patterns
    lowered = replace(lowered, spans=patterns.spans)
    if final is None or lowered.late is not None:
        return lowered
    return lower_final_rows(text.lowered(lowered.text), final) or lowered


def _lower_patterns(text: Text, final: Final | None) -> LoweredQuery:
    """Loads the grammar of patterns only where there is one: an installation may lack it."""
    found = re.search(rf"\b(MATCH_RECOGNIZE|{MATCH_FUNCTION})\b", text.text, re.IGNORECASE)
    if found is None:
        return LoweredQuery(text.text)
    try:
        with optional_part("MATCH_RECOGNIZE"):
            from freshline.sql.match_recognize import lower_patterns
    except ExtensionError as error:
        raise declaration_error("EXTENSION", str(error), text.at(found.start())) from error
    return lower_patterns(text, final)


@dataclass(frozen=True)
class _VersionCall:
    span: TextSpan
    alias: str


class _Parser:
    def __init__(self, written: Text, final: Final | None = None, columns: Columns | None = None) -> None:
        self.written = written
        self.is_triggered = final is not None and final.condition is not None
        closing = None if self.is_triggered else final
        self.lateness = 0 if final is None else final.lateness
        self.lowered = _lower(written, closing, columns)
        self.text = written.lowered(self.lowered.text)
        self.graph = lower_graph(self.text)
        if self.graph is not None:
            if final is not None:
                raise declaration_error(
                    "GRAPH",
                    f"{self.graph.function.name}: a new edge changes rows of nodes that were there, and rows of EMIT "
                    "FINAL never change. Remove EMIT FINAL.",
                    self.text.at(self.graph.offset),
                )
            self.text = written.lowered(self.graph.text)
        self.problems = Problems()
        self.tokens: list[Token] = []

    def parse(self) -> SqlQuery:
        self.tokens = self.text.tokens()
        self._check_words()
        proctimes, times = self._system_times()
        removed = [*proctimes, *(time.span for time in times)]
        calls, moments, model_calls = self._version_calls(), self._moments(), self._model_calls()
        covered = [(span, "0") for span in (*(call.span for call in calls), *(span for span, _, _ in moments))]
        covered += cover_models(model_calls)
        tree = self._tree(_covered(self.text.text, removed, covered))
        self._check_kind(tree)
        references = self._references(tree, proctimes, [time.span for time in times])
        joins = SystemTimeJoins(self.text, self.tokens, self._fail)
        tables = list(declared_tables(tree))
        lookup_joins = joins.lookup_joins(tables, references)
        as_of_joins = joins.as_of_joins(tables, references, times)
        if self.lowered.timed is not None:
            as_of_joins = tuple(replace(join, lateness=self.lateness) for join in as_of_joins)
        self._check_version_calls(calls, references)
        self._check_aliases(tree)
        self._check_samples(tree)
        self.problems.raise_all()
        return SqlQuery(
            text=self.text.text,
            line=self.text.first_line,
            moved=self.text.moved,
            references=references,
            lookup_joins=lookup_joins,
            removed=tuple(removed),
            version_calls=tuple((call.span, call.alias) for call in calls),
            qualifiers=self._qualifiers(tree, references),
            select_end=self._select_end(tree),
            meaning=self._meaning(),
            written=self.written.text,
            window_times=self._times(self.lowered.times, references, WINDOWED),
            pattern_times=self._times(self.lowered.spans, references, MATCHED_ROWS),
            as_of_joins=as_of_joins,
            moments=moments,
            model_calls=model_calls,
            arrived=self.lowered.late is not None,
            ends=self.lowered.ends,
            reach=self.lowered.reach,
            timed=self.lowered.timed,
            graph=self._graph_call(tree),
            # A row of a lookup join keeps the dimension that it was joined with, and a graph is read as a whole.
            clock_calls=()
            if lookup_joins or self.graph is not None
            else find_clock_calls(_covered(self.text.text, removed, covered), self.tokens, _tree_or_none),
        )

    def _graph_call(self, tree: exp.Expr) -> GraphCall | None:
        """The graph function, whose edges are a query of their own."""
        if self.graph is None:
            return None
        edges = parse_query(self.graph.edges, self.text.path, self.graph.line)
        if edges.model_calls:
            raise declaration_error(
                "MODEL",
                "the edges of a graph function ask a model. Declare them as a table, and read that.",
                Location(self.text.path, edges.model_calls[0].line),
            )
        return find_graph_call(self.graph, tree, edges, self.text)

    def _moments(self) -> tuple[tuple[TextSpan, str, int], ...]:
        """The places of the bounds of FINAL windows, or of the watermark of WHEN; lowering has written them."""
        if self.lowered.late is None and not self.is_triggered:
            return ()
        names = NOW if self.is_triggered else f"{AFTER}|{UNTIL}|{READ}"
        found = re.finditer(rf"\b(?:{names})\(-?\d+\)", self.text.text)
        return tuple((TextSpan(*match.span()), *written_moment(match[0])) for match in found)

    def _fail(self, rule: str, message: str, offset: int) -> DeclarationError:
        self.problems.add(rule, message, self.text.at(offset))
        return self.problems.errors[0]

    def _words(self, index: int, count: int) -> tuple[str, ...]:
        return tuple(token.word for token in self.tokens[index : index + count])

    # -- before the tree

    def _check_words(self) -> None:
        if not self.tokens:
            raise declaration_error("QUERY_SYNTAX", "the query is empty. Write one SELECT.", self.text.at(0))
        for rule, sentence, offset in mistaken_words(self.tokens):
            raise declaration_error(rule, sentence, self.text.at(offset))
        for index, token in enumerate(self.tokens):
            if token.word == ";" and index + 1 < len(self.tokens):
                raise declaration_error(
                    "TWO_DECLARATIONS",
                    "a second statement begins behind the semicolon. A declaration has one query.",
                    self.text.at(self.tokens[index + 1].start),
                )
            following = self._words(index + 1, 1)
            if token.word == "," and (not following or following[0] in _AFTER_LIST):
                # sqlglot forgives this comma, Spark does not.
                raise declaration_error(
                    "QUERY_SYNTAX", "the list ends with a comma. Remove it, or add an item.", self.text.at(token.start)
                )
            if is_refused_call(token, following):
                raise declaration_error(
                    "QUERY_FUNCTION",
                    f"{token.value}(..) {REFUSED_FUNCTIONS[token.value.lower()]}. A query computes with functions of "
                    "its rows: remove the call, or write the table in Python.",
                    self.text.at(token.start),
                )
            if token.word == "|>":
                raise declaration_error(
                    "QUERY_KIND", "|> is not read by freshline. Write the query as a SELECT.", self.text.at(token.start)
                )

    def _system_times(self) -> tuple[list[TextSpan], list[AsOfTime]]:
        """The places of FOR SYSTEM_TIME AS OF PROCTIME(), and those that name the time of rows."""
        found: list[TextSpan] = []
        times: list[AsOfTime] = []
        for index, token in enumerate(self.tokens):
            if self._words(index, 2) != _AS_OF[:2]:
                continue
            if self._words(index, len(_PROCTIME)) == _PROCTIME:
                found.append(TextSpan(token.start, self.tokens[index + len(_PROCTIME) - 1].end))
                continue
            named = self.tokens[index + len(_AS_OF) : index + len(_AS_OF) + 3]
            is_column = len(named) == 3 and named[1].word == "." and all(is_name(named[place]) for place in (0, 2))
            if self._words(index, len(_AS_OF)) != _AS_OF or not is_column:
                raise declaration_error(
                    "ASOF_TIME",
                    "FOR SYSTEM_TIME AS OF takes the time of the rows that are joined, as alias.column, or PROCTIME() "
                    "for a lookup of what is there when the table is refreshed. Write one of them, such as "
                    "FOR SYSTEM_TIME AS OF o.ts.",
                    self.text.at(token.start),
                )
            times.append(AsOfTime(TextSpan(token.start, named[2].end), (named[0].value, named[2].value)))
        return found, times

    def _version_calls(self) -> list[_VersionCall]:
        calls: list[_VersionCall] = []
        for index, token in enumerate(self.tokens):
            if token.word != "VERSION_OF" or self._words(index + 1, 1) != ("(",):
                continue
            argument = self.tokens[index + 2] if index + 2 < len(self.tokens) else None
            closed = self._words(index + 3, 1) == (")",)
            if argument is None or not closed or argument.kind not in (TokenKind.WORD, TokenKind.NAME):
                raise declaration_error(
                    "VERSION_OF",
                    "version_of(..) takes the alias of one lookup join, such as version_of(d).",
                    self.text.at(token.start),
                )
            calls.append(_VersionCall(TextSpan(token.start, self.tokens[index + 3].end), argument.value))
        return calls

    def _model_calls(self) -> tuple[ModelCall, ...]:
        """The calls of models: ml_predict(m, a, b) and model_version_of(m)."""
        calls: list[ModelCall] = []
        for index, token in enumerate(self.tokens):
            if token.value.lower().startswith(PREDICT_FUNCTION) and self._words(index + 1, 1) == ("(",):
                raise declaration_error(
                    "QUERY_FUNCTION",
                    f"{token.value}(..) is for freshline alone. Write ml_predict(model, ..).",
                    self.text.at(token.start),
                )
            if token.word in _MODEL_FUNCTIONS and self._words(index + 1, 1) == ("(",):
                calls.append(self._model_call(index))
        return tuple(calls)

    def _model_call(self, index: int) -> ModelCall:
        token, name, place = self.tokens[index], list[str](), index + 2
        while place < len(self.tokens) and is_name(self.tokens[place]):
            name.append(self.tokens[place].value)
            place += 1
            if self._words(place, 1) != (".",):
                break
            place += 1
        after = self._words(place, 1)
        expected = (",", ")") if token.word == "ML_PREDICT" else (")",)
        last = self._closing(index + 1)
        if not 1 <= len(name) <= 2 or not after or after[0] not in expected or last is None:
            example = "ml_predict(model, a, b)" if token.word == "ML_PREDICT" else "model_version_of(model)"
            raise declaration_error(
                "MODEL",
                f"{token.value}(..) begins with the name of a declared model, without quotes. Write it as {example}.",
                self.text.at(token.start),
            )
        commas = self._commas(index + 1, last)
        end = self.tokens[place].end if after[0] == "," else self.tokens[place].start
        return ModelCall(
            function=token.word.lower(),
            model=self._model_name(name, token),
            name=TextSpan(token.start, token.end),
            argument=TextSpan(self.tokens[index + 2].start, end),
            whole=TextSpan(token.start, self.tokens[last].end),
            arguments=commas,
            line=self.text.line(token.start),
        )

    def _model_name(self, parts: Sequence[str], token: Token) -> TableName:
        return parse_name(".".join(parts), self.text.at(token.start))

    def _closing(self, opening: int) -> int | None:
        """The place of the parenthesis that closes one; None where there is none."""
        depth = 0
        for index in range(opening, len(self.tokens)):
            depth += (self.tokens[index].word == "(") - (self.tokens[index].word == ")")
            if depth == 0:
                return index
        return None

    def _commas(self, opening: int, closing: int) -> int:
        """The number of commas between the arguments of a call."""
        depth, found = 0, 0
        for token in self.tokens[opening + 1 : closing]:
            depth += (token.word in ("(", "[")) - (token.word in (")", "]"))
            found += depth == 0 and token.word == ","
        return found

    def _tree(self, text: str) -> exp.Expr:
        try:
            found = _kept_trees(text)
        except ParseError as error:
            facts = error.errors[0] if error.errors else {}
            line = self.text.line_of_file(int(facts.get("line") or 1) - 1)
            near = str(facts.get("highlight") or "").strip()
            what = str(facts.get("description") or error)
            what = re.sub(r" for <class '[\w.]*?(\w+)'>", lambda match: f" in {match[1].upper()}", what)
            what = re.sub(r" but got <Token.*", "", what, flags=re.DOTALL)
            raise declaration_error(
                "QUERY_SYNTAX",
                f"the query cannot be read{f' at {near!r}' if near else ''}: {what[:1].lower()}{what[1:].rstrip('.')}. "
                "Correct the SQL.",
                Location(self.text.path, line),
            ) from error
        except SqlglotError as error:
            raise declaration_error(
                "QUERY_SYNTAX", f"the query cannot be read: {error}. Correct it.", self.text.at(0)
            ) from error
        if len(found) != 1:
            raise declaration_error(
                "QUERY_KIND", f"the query is {len(found)} statements. Write one SELECT.", self.text.at(0)
            )
        return found[0]

    def _check_kind(self, tree: exp.Expr) -> None:
        first = self.tokens[0]
        inner = tree.unnest() if isinstance(tree, exp.Subquery) else tree
        if not isinstance(inner, (exp.Select, exp.SetOperation)) or first.word not in ("SELECT", "WITH", "("):
            raise declaration_error(
                "QUERY_KIND",
                f"the query begins with {first.raw} and is not a SELECT that freshline understands. "
                "Write one SELECT, or WITH .. SELECT.",
                self.text.at(0),
            )
        if any(tree.find_all(exp.QueryTransform)):
            raise declaration_error(
                "QUERY_KIND",
                "the query has TRANSFORM .. USING, which runs a program. Write the table in Python.",
                self.text.at(self._word_offset("TRANSFORM")),
            )
        for node in tree.find_all(*_NOT_A_QUERY):
            raise declaration_error(
                "QUERY_KIND",
                f"the query contains {node.key.upper()}, which is not part of a SELECT. A table is declared by a query "
                "that only reads.",
                self.text.at(offset_of(node)),
            )

    # -- what is read

    def _references(
        self, tree: exp.Expr, proctimes: Sequence[TextSpan], times: Sequence[TextSpan]
    ) -> tuple[TableReference, ...]:
        found: list[TableReference] = []
        used: set[int] = set()
        for table in tree.find_all(exp.Table):
            if table.find_ancestor(exp.Hint):
                continue
            if not isinstance(table.this, (exp.Identifier, exp.Dot)):
                self._check_table_function(table)
                continue
            reference = self._reference(table, proctimes, times, used)
            if reference is not None:
                found.append(reference)
        ends = {reference.span.end for reference in found}
        for before, token in pairwise(self.tokens):
            if before.end in ends and token.word == "*":
                # sqlglot takes it for the sign of Postgres for a table and all that inherit from it.
                self._fail("QUERY_SYNTAX", f"{before.value} * is no table of Spark's SQL. Remove the *.", token.start)
        for span in (*proctimes, *times):
            if span.start not in used:
                self._fail(
                    "LOOKUP",
                    f"{self.text.text[span.start : span.end]} follows the name of a declared table, before its alias.",
                    span.start,
                )
        return tuple(sorted(found, key=lambda reference: reference.span.start))

    def _check_table_function(self, table: exp.Table) -> None:
        function = table.this
        name = function.name if isinstance(function, exp.Anonymous) else function.key
        if str(name).lower() not in TABLE_FUNCTIONS:
            self._fail(
                "QUERY_INPUT",
                f"{str(name).lower()}(..) cannot be read in FROM: a query reads declared tables and sources."
                f"{nearest(str(name).upper(), TABLE_FUNCTIONS_OF_OURS) or ' Declare a source for what lies outside.'}",
                offset_of(table) or self._word_offset(str(name)),
            )

    def _word_offset(self, word: str) -> int:
        return next((token.start for token in self.tokens if token.word == word.upper()), 0)

    def _reference(
        self, table: exp.Table, proctimes: Sequence[TextSpan], times: Sequence[TextSpan], used: set[int]
    ) -> TableReference | None:
        parts = table.parts
        places = [part for part in parts if isinstance(part, exp.Identifier) and "start" in part.meta]
        if len(places) != len(parts) or not places:
            self._fail("QUERY_INPUT", f"{table.name} is not the name of a table.", offset_of(table))
            return None
        span = span_of(places[0], places[-1])
        written = self.text.text[span.start : span.end]
        if "'" in written or '"' in written:
            self._fail(
                "QUERY_INPUT", f"{written} is a text, not the name of a table. Write it without quotes.", span.start
            )
            return None
        if self._is_file(parts):
            self._fail(
                "QUERY_INPUT",
                f"{written} reads a path. Declare a source for it (CREATE SOURCE .. WITH ('connector' = ..)) and read "
                "that by name.",
                span.start,
            )
            return None
        if len(parts) > 2:
            self._fail(
                "QUERY_INPUT",
                f"{written} has {len(parts)} parts. A name is `name` or `namespace.name`.",
                span.start,
            )
            return None
        following = next(
            (s for s in (*proctimes, *times) if s.start >= span.end and not self._tokens_between(span.end, s.start)),
            None,
        )
        if following is not None:
            used.add(following.start)
        if is_common_table(table):
            if following is not None:
                self._fail(
                    "LOOKUP",
                    f"{written} is a common table expression. A lookup join meets a declared table.",
                    span.start,
                )
            return None
        name = self._name(places, written, span)
        if name is None:
            return None
        self._check_table_clauses(table, written, span)
        alias = table.args.get("alias")
        given = alias.this if isinstance(alias, exp.TableAlias) else None
        return TableReference(
            name=name,
            span=span,
            alias=given.name if isinstance(given, exp.Identifier) else name.name,
            has_alias=isinstance(given, exp.Identifier),
            lookup=following in proctimes,
        )

    def _name(self, places: Sequence[exp.Identifier], written: str, span: TextSpan) -> TableName | None:
        try:
            return TableName.parse(".".join(place.name for place in places))
        except ValueError as error:
            self._fail("NAME", str(error), span.start)
            return None

    def _is_file(self, parts: Sequence[exp.Expr]) -> bool:
        last = parts[-1]
        if not isinstance(last, exp.Identifier) or not last.args.get("quoted"):
            return False
        return not PART.match(last.name) or (len(parts) == 2 and parts[0].name.lower() in FILE_FORMATS)

    def _check_table_clauses(self, table: exp.Table, written: str, span: TextSpan) -> None:
        alias = table.args.get("alias")
        version_mark = isinstance(alias, exp.TableAlias) and isinstance(alias.this, exp.Parameter)
        if table.args.get("version") or table.args.get("when") or version_mark:
            self._fail(
                "QUERY_INPUT",
                f"{written} is read at a version of the query's choice. Versions are pinned by the refresh: "
                "read the table by its name.",
                span.start,
            )

    def _check_samples(self, tree: exp.Expr) -> None:
        for sample in tree.find_all(exp.TableSample):
            read = sample.parent.alias_or_name if sample.parent is not None else ""
            self._fail(
                "QUERY_INPUT",
                f"{read or 'a query'} is read with TABLESAMPLE, which gives other rows each time. Write a condition "
                "instead, such as pmod(hash(key), 10) = 0.",
                self._word_offset("TABLESAMPLE"),
            )

    def _tokens_between(self, start: int, end: int) -> bool:
        return any(start <= token.start < end for token in self.tokens)

    def _check_aliases(self, tree: exp.Expr) -> None:
        """Refuse two inputs that share an alias: they are read under other names, where only aliases differ."""
        for select in tree.find_all(exp.Select):
            seen: dict[str, str] = {}
            inputs = [select.args.get("from_"), *(select.args.get("joins") or ())]
            for item in inputs:
                table = item.this if item is not None else None
                if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
                    continue
                alias = (table.alias or table.name).lower()
                shown = ".".join(part.name for part in table.parts)
                if alias in seen:
                    self._fail(
                        "DUPLICATE_ALIAS",
                        f"{seen[alias]} and {shown} are both called {alias} in one FROM. Give each its own alias.",
                        offset_of(table),
                    )
                seen.setdefault(alias, shown)

    def _check_version_calls(self, calls: Sequence[_VersionCall], references: Sequence[TableReference]) -> None:
        known = {reference.alias.lower() for reference in references if reference.lookup}
        for call in calls:
            if call.alias.lower() not in known:
                there = f"Lookups are {', '.join(sorted(known))}." if known else "The query has no lookup join."
                self._fail(
                    "VERSION_OF", f"version_of({call.alias}) does not name a lookup join. {there}", call.span.start
                )

    # -- places

    def _qualifiers(
        self, tree: exp.Expr, references: Sequence[TableReference]
    ) -> tuple[tuple[TextSpan, TableName], ...]:
        """`namespace.table` in front of a column: the view that is read has no namespace."""
        names = {reference.name: reference for reference in references if reference.name.namespace}
        aliases = {reference.alias.lower() for reference in references}
        found: dict[int, tuple[TextSpan, TableName]] = {}
        for column in tree.find_all(exp.Column):
            parts = column.parts
            if len(parts) < 3 or parts[0].name.lower() in aliases:
                continue
            if not all(PART.match(part.name) and "start" in part.meta for part in parts[:2]):
                continue
            name = TableName(parts[0].name, parts[1].name)
            if name in names:
                span = span_of(parts[0], parts[1])
                found[span.start] = (span, names[name].name)
        return tuple(found[start] for start in sorted(found))

    def _select_end(self, tree: exp.Expr) -> int | None:
        if not isinstance(tree, exp.Select) or tree.args.get("from_") is None or self.tokens[0].word == "(":
            return None
        depth, in_select = 0, False
        for index, token in enumerate(self.tokens):
            depth += (token.word == "(") - (token.word == ")")
            if depth:
                continue
            if token.word == "SELECT":
                in_select = True
            elif token.word == "FROM" and in_select:
                # IS [NOT] DISTINCT FROM is part of an expression.
                before = self._words(index - 2, 2) if index >= 2 else ()
                if len(before) == 2 and before[1] == "DISTINCT" and before[0] in ("IS", "NOT"):
                    continue
                return token.start
        return None

    def _meaning(self) -> str:
        tokens = self.written.tokens() if self.lowered.times or self.graph is not None else self.tokens
        text = " ".join(_token_meaning(token) for token in tokens if token.word != ";")
        return text.replace(SORTED_ROWS, FIRST_SORTED_ROWS)

    def _times(
        self, times: Sequence[WindowTime], references: Sequence[TableReference], alias: str
    ) -> tuple[WindowTime, ...]:
        """The times of windows or matches, of inputs that are read under an alias.

        A common table has the types of its own query, whatever else has its name.
        """
        read = {reference.name for reference in references if reference.alias == alias}
        return tuple(time if time.table in read else replace(time, table=None) for time in times)


_AFTER_LIST = frozenset(("FROM", "WHERE", "GROUP", ")", ";"))


def _token_meaning(token: Token) -> str:
    if token.kind is TokenKind.WORD:
        return token.raw.lower()
    if token.kind is TokenKind.NAME and PART.match(token.value) and token.value.upper() not in _KEYWORDS:
        return token.value.lower()
    return token.raw

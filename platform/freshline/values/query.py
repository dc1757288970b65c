"""The query of a table, kept as it was written.

Spark runs the text of the declaration. freshline only cuts and inserts at places that the parser found: it names the
view to read for each table, takes out `FOR SYSTEM_TIME AS OF ..`, puts the pinned version in the place of
`version_of(d)` and the time of the next version beside each in an as-of join, and adds columns of its own to the
outermost select list. Nothing is printed back from a syntax tree, so nothing of the user's SQL can change on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from freshline.errors import DeclarationError
from freshline.values.as_of_joins import AsOfJoin
from freshline.values.clock import ClockCall
from freshline.values.closing import Closing, TimedRows, moment
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.onnx_file import Signature
from freshline.values.process import Process
from freshline.values.rules import declaration_error

# The functions that Spark calls for `ml_predict`: one for each model, by the SHA-256 of its file.
PREDICT_FUNCTION = "freshline_predict_"
PREDICT_CALL = re.compile(rf"\b{PREDICT_FUNCTION}([0-9a-f]{{64}})\b", re.IGNORECASE)


@dataclass(frozen=True)
class TextSpan:
    """The characters [start, end) of the query's text."""

    start: int
    end: int


@dataclass(frozen=True)
class TableReference:
    """One place where the query reads a table.

    `span` covers the name as written. `alias` is what columns are qualified by: the alias, or the name's last part.
    `has_alias` says whether the query itself gives one. `lookup` says that FOR SYSTEM_TIME AS OF PROCTIME() follows.
    """

    name: TableName
    span: TextSpan
    alias: str
    has_alias: bool
    lookup: bool


@dataclass(frozen=True)
class LookupJoin:
    """A dimension that rows are joined with at a pinned version.

    `keys` are pairs (column of the dimension, SQL of the probe's expression), from the equalities of the ON clause.
    `outer` is True for LEFT JOIN.
    """

    table: TableName
    alias: str
    keys: tuple[tuple[str, str], ...]
    outer: bool


@dataclass(frozen=True)
class KnownModel:
    """A declared model as a query uses it: the file at `path`, and what it takes and gives.

    `keeps_rows` says that rows keep the prediction of the file that was there when they were computed.
    """

    name: TableName
    sha256: str
    path: str
    signature: Signature
    keeps_rows: bool

    @property
    def function(self) -> str:
        """The function that Spark calls for it."""
        return PREDICT_FUNCTION + self.sha256


@dataclass(frozen=True)
class ModelCall:
    """`ml_predict(m, a, b)` or `model_version_of(m)`.

    `name` is the place of the function's name, and `argument` that of the model's, with the comma behind it. `whole` is
    the call from its first character to its last.
    """

    function: str
    model: TableName
    name: TextSpan
    argument: TextSpan
    whole: TextSpan
    arguments: int
    line: int

    @property
    def predicts(self) -> bool:
        return self.function == "ml_predict"

    def edits(self, sha256: str) -> list[tuple[int, int, str]]:
        """The edits of the text, each with start, end and the new part."""
        if not self.predicts:
            return [(self.whole.start, self.whole.end, f"'{sha256}'")]
        return [
            (self.name.start, self.name.end, PREDICT_FUNCTION + sha256),
            (self.argument.start, self.argument.end, " "),
        ]


# The function of Spark's SQL that finds matches, and the text before the code of its errors.
MATCH_FUNCTION = "freshline_match"
MATCH_ERROR = "freshline:"
# The rows that MATCH_RECOGNIZE reads, and the column by which those of a partition are ordered where an array cannot.
MATCHED_ROWS, RANK = "freshline_rows", "freshline_rank"
# How the rows of a partition are put in their order, as in the meaning of a query. The fingerprints of tables that are
# there already have the first way, which gives the same order.
SORTED_ROWS, FIRST_SORTED_ROWS = (
    f"{name} ( collect_list ( struct ( {MATCHED_ROWS} ." for name in ("sort_array", "array_sort")
)
# The measure of the time between the rows of a match, which may be of days alone.
WITHIN = "MATCH_RECOGNIZE with WITHIN"
# The columns that windows give beside those of their input; the last one COUNT_WINDOW alone.
WINDOW_BOUNDS = ("window_start", "window_end", "window_time", "window_number")
_WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION", "COUNT_WINDOW")


@dataclass(frozen=True)
class WindowTime:
    """A column by which rows are put into windows, or are final.

    It is one of `table`, None where that is a query in parentheses. Where rows are counted, `order` has the columns
    that make them distinct: those of the key and of the order.
    """

    function: str
    table: TableName | None
    column: str
    line: int
    order: tuple[str, ...] | None = None

    def check(self, inputs: Mapping[TableName, WindowInput], path: str) -> DeclarationError | None:
        """The error for a column that is no time, and for an order in which rows may be equal; `path` is the file."""
        known = WindowInput() if self.table is None else inputs.get(self.table, WindowInput())
        found = known.types.get(self.column.lower())
        if found is None or found.startswith("TIMESTAMP") or (found == "DATE" and self.function == WITHIN):
            return self._check_order(known, path)
        does = "puts rows into windows by" if self.function in _WINDOW_FUNCTIONS else "takes for the time"
        return declaration_error(
            "WINDOW_TIME",
            f"{self.function} {does} {self.column}, which is {found} and no TIMESTAMP. Name another "
            f"column, or read {self.table} in a query in parentheses that makes one of it, such as "
            f"(SELECT *, CAST({self.column} AS TIMESTAMP) AS at FROM {self.table}).",
            Location(path, self.line),
        )

    def _check_order(self, known: WindowInput, path: str) -> DeclarationError | None:
        if self.order is None:
            return None
        named = {name.lower() for name in self.order}
        if known.primary_key and named.issuperset(name.lower() for name in known.primary_key):
            return None
        if known.primary_key:
            said = f"Add the PRIMARY KEY of {self.table} to ORDER BY: {', '.join(known.primary_key)}."
        elif self.table is not None:
            said = f"{self.table} has no PRIMARY KEY. Declare one, and add it to ORDER BY."
        else:
            said = "Of a query that is not known. Declare it as a table with a PRIMARY KEY, and name that."
        return declaration_error(
            "COUNT_ORDER",
            f"{self.function} counts rows in an order in which two may be equal, so that each refresh could count "
            f"others. {said}",
            Location(path, self.line),
        )


@dataclass(frozen=True)
class WindowInput:
    """The facts known of a table whose rows are put into windows.

    `types` are Spark's in upper case, of columns in lower case: of those whose type is known.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    primary_key: Sequence[str] = ()


class GraphFunction(Enum):
    """A graph function; the value is the name of the column that it gives beside `node`."""

    CONNECTED_COMPONENTS = "component"
    PAGERANK = "rank"
    COMMUNITIES = "community"


# Types whose values have one order and one spelling, in Spark and outside of it.
_NODES = re.compile(
    r"TINYINT|SMALLINT|INT|BIGINT|DECIMAL(\(.*\))?|STRING|BINARY|BOOLEAN|DATE|TIMESTAMP(_NTZ|_LTZ)?|(VAR)?CHAR\(.*\)"
)


@dataclass(frozen=True)
class GraphCall:
    """A graph function that a query reads, and nothing else beside it.

    `ends` are the columns of the edges in `table` (None for a query in parentheses). `edges` is the query of these two
    columns. `stands` is the place in the query's text of what stands for the function. Of the table, `node` is the
    column that has the node, and `value` the one that has what the function gives for it, None where none has just
    that. `filtered` says that the query leaves nodes out. `tolerance` is of PAGERANK, `rounds` of COMMUNITIES.
    """

    function: GraphFunction
    table: TableName | None
    ends: tuple[str, str]
    edges: SqlQuery
    stands: TextSpan
    node: str
    value: str | None
    filtered: bool
    tolerance: float
    rounds: int
    line: int

    def check(self, types: Mapping[TableName, Mapping[str, str]], path: str) -> DeclarationError | None:
        """The error for ends of edges that are no nodes of one kind; `types` are in upper case, `path` is the file."""
        known = {} if self.table is None else types.get(self.table, {})
        found = [known.get(column.lower()) for column in self.ends]
        first, second = (None if kind is None else _as_text(kind.upper()) for kind in found)
        said = node_types_problem(self.function, self.ends, first, second)
        return None if said is None else declaration_error("GRAPH", said, Location(path, self.line))


def node_types_problem(
    function: GraphFunction, ends: tuple[str, str], first: str | None, second: str | None
) -> str | None:
    """The reason why ends of edges are no nodes, by Spark's types of them (None: not known); None where they are."""
    for column, kind in zip(ends, (first, second), strict=True):
        if kind is not None and not _NODES.fullmatch(kind):
            return (
                f"{function.name}: the end {column} is {kind}, and nodes are integers, decimals, texts, bytes, "
                "booleans, dates or timestamps. Read the edges in a query in parentheses that casts it, such as to "
                "STRING."
            )
    if first is not None and second is not None and first != second:
        return (
            f"{function.name}: the ends {ends[0]} and {ends[1]} are {first} and {second}, and both are nodes of one "
            "type. Read the edges in a query in parentheses that casts one of them."
        )
    return None


def _as_text(kind: str) -> str:
    return "STRING" if kind.startswith(("VARCHAR", "CHAR")) else kind


@dataclass(frozen=True)
class SqlQuery:
    """One SELECT in Spark SQL, and the places in it that freshline works on.

    `line` is the line of the file on which `text` begins. `select_end` is where further select items can be
    added to the outermost SELECT (the place of its FROM), None for a set operation or a query without FROM.
    `meaning` is the query without comments and layout: two queries with equal meaning are the same query.
    `written` is the query of the file: `text` differs from it where window table functions are written out, line by
    line the same. `window_times` are the columns by which these put rows into windows, `pattern_times` those by which
    WITHIN measures matches. `as_of_joins` are in the order of the text. `moments` are the places of the bounds of FINAL
    windows, with the name of each and what it is less; `closing` has them for one refresh, None for all windows;
    `ends`, `reach` and `timed` are as in `LoweredQuery`, `moved` as in `Text`. `graph` is the graph function that it
    reads, in whose place `text` has another query. With `arrived`, logs are read with what their rows have beside the
    declared columns (`freshline.values.closing`).
    `models` are those of `model_calls`, once the project is read. `clock_calls` are the functions of the time in a
    query that has them in temporal filters only, and `clock` is the instant of one refresh, in microseconds since 1970.
    """

    text: str
    line: int
    references: tuple[TableReference, ...]
    lookup_joins: tuple[LookupJoin, ...]
    removed: tuple[TextSpan, ...]
    version_calls: tuple[tuple[TextSpan, str], ...]
    qualifiers: tuple[tuple[TextSpan, TableName], ...]
    select_end: int | None
    meaning: str
    written: str
    window_times: tuple[WindowTime, ...] = ()
    pattern_times: tuple[WindowTime, ...] = ()
    as_of_joins: tuple[AsOfJoin, ...] = ()
    moments: tuple[tuple[TextSpan, str, int], ...] = ()
    closing: Closing | None = None
    timed: TimedRows | None = None
    arrived: bool = False
    ends: tuple[int, int] | None = None
    reach: int | None = None
    moved: tuple[tuple[int, int], ...] = ()
    graph: GraphCall | None = None
    model_calls: tuple[ModelCall, ...] = ()
    models: tuple[KnownModel, ...] = ()
    clock_calls: tuple[ClockCall, ...] = ()
    clock: int | None = None

    @property
    def reads(self) -> tuple[TableName, ...]:
        """Every table that is read, each once, in the order of the query."""
        return tuple(dict.fromkeys(reference.name for reference in self.references))

    @property
    def kept_models(self) -> tuple[KnownModel, ...]:
        """The models whose predictions rows keep when the file changes."""
        return tuple(model for model in self.models if model.keeps_rows)

    @property
    def covered(self) -> tuple[tuple[TextSpan, str], ...]:
        """Places that only freshline understands, with the text that stands there for a parser."""
        return (
            *((span, "0") for span, _ in self.version_calls),
            *((span, "0") for span, _, _ in self.moments),
            *cover_models(self.model_calls),
        )

    @property
    def lookups(self) -> frozenset[TableName]:
        """Tables read only as dimensions of lookup joins."""
        probed = {reference.name for reference in self.references if not reference.lookup}
        return frozenset(reference.name for reference in self.references if reference.lookup) - probed

    def render(
        self,
        *,
        views: Mapping[TableName, str] | None = None,
        versions: Mapping[str, int] | None = None,
        select_also: Sequence[str] = (),
        analysed: bool = False,
    ) -> str:
        """The text for Spark.

        `views` names the view to read for a table (default: `TableName.view`), `versions` gives the pinned version for
        each lookup alias that `version_of` names, `select_also` are select items to add at the end of the outermost
        list. Without a clock the functions of the time stay as they were written; where the text is `analysed`, the
        call that rules know takes their place.
        """
        views = views or {}
        edits: list[tuple[int, int, str]] = [(span.start, span.end, " ") for span in self.removed]
        met_as_of = {join.start: join for join in self.as_of_joins}
        for reference in self.references:
            read = views.get(reference.name, reference.name.view)
            join = met_as_of.get(reference.span.start)
            view = f"`{read}`" if join is None else join.rows(read)
            if not reference.has_alias:
                view += f" AS `{reference.alias}`"
            edits.append((reference.span.start, reference.span.end, view))
        for join in self.as_of_joins:
            edits += join.edits()
        for span, name in self.qualifiers:
            edits.append((span.start, span.end, f"`{name.name}`"))
        for span, alias in self.version_calls:
            version = (versions or {}).get(alias.lower(), 0)
            edits.append((span.start, span.end, f"CAST({version} AS BIGINT)"))
        edits += self._model_edits()
        for span, bound, less in self.moments:
            edits.append((span.start, span.end, moment(self.closing, bound, less)))
        if analysed or self.clock is not None:
            edits += [(call.start, call.end, call.value(self.clock)) for call in self.clock_calls]
        if select_also:
            if self.select_end is None:
                raise ValueError("columns can only be added to a query that is one SELECT with a FROM")
            edits.append((self.select_end, self.select_end, ", " + ", ".join(select_also) + " "))
        return self._edited(edits)

    def render_over(self, view: str) -> str:
        """The text for Spark of a query with a graph function, over a view of what the function gives."""
        assert self.graph is not None
        stands = self.graph.stands
        # No model is asked below the function, so no place is within another.
        return self._edited([(stands.start, stands.end, f"(SELECT * FROM {view})"), *self._model_edits()])

    def _model_edits(self) -> list[tuple[int, int, str]]:
        versions_of = {model.name: model.sha256 for model in self.models}
        return [edit for call in self.model_calls for edit in call.edits(versions_of.get(call.model, "0" * 64))]

    def _edited(self, edits: Iterable[tuple[int, int, str]]) -> str:
        text = self.text
        for start, end, replacement in sorted(edits, reverse=True):
            text = text[:start] + replacement + text[end:]
        return text


def cover_models(calls: Sequence[ModelCall]) -> list[tuple[TextSpan, str]]:
    """The names of models, which are no columns, and calls that stand for a text."""
    return [(call.argument, "") if call.predicts else (call.whole, "''") for call in calls]


@dataclass(frozen=True)
class PythonInput:
    """A parameter of a Python table: what it reads, and whether as a lookup dimension."""

    parameter: str
    name: TableName
    lookup: bool = False


@dataclass(frozen=True)
class PythonQuery:
    """A table computed by a Python function of DataFrames.

    `path` is the file, relative to the project's root, and `function` the function's name in it. `code_hash` covers
    the file and the project's own modules that it imports. `keys` are promised by the declaration: pairs of an input
    and its columns, such that rows of the result follow from the rows of inputs with the same values, and from nothing
    else; the result has the columns of the first pair. `append` is the input of which each row gives rows by itself.
    `process` says how a class is given the rows of its one input, None for a function of DataFrames.
    """

    path: str
    function: str
    inputs: tuple[PythonInput, ...]
    code_hash: str
    keys: tuple[tuple[TableName, tuple[str, ...]], ...] = ()
    append: TableName | None = None
    process: Process | None = None

    # A function has none of what a text may have, so whoever asks for it need not know which of the two a query is.
    as_of_joins: ClassVar[tuple[AsOfJoin, ...]] = ()
    arrived: ClassVar[bool] = False
    clock_calls: ClassVar[tuple[ClockCall, ...]] = ()
    ends: ClassVar[None] = None
    graph: ClassVar[None] = None
    lookup_joins: ClassVar[tuple[LookupJoin, ...]] = ()
    model_calls: ClassVar[tuple[ModelCall, ...]] = ()
    models: ClassVar[tuple[KnownModel, ...]] = ()
    moments: ClassVar[tuple[tuple[TextSpan, str, int], ...]] = ()
    pattern_times: ClassVar[tuple[WindowTime, ...]] = ()
    timed: ClassVar[None] = None
    version_calls: ClassVar[tuple[tuple[TextSpan, str], ...]] = ()
    window_times: ClassVar[tuple[WindowTime, ...]] = ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the result that the promise is about; none without one by keys."""
        return self.keys[0][1] if self.keys else ()

    @property
    def promise(self) -> str:
        """The declared way in which rows of the result follow from rows of inputs, as a text; empty for none.

        It is no part of the meaning: the rows are the same with and without it.
        """
        keys = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in self.keys)
        return (f"keys {keys}" if keys else "" if self.append is None else f"append {self.append}").lower()

    @property
    def reads(self) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys(item.name for item in self.inputs))

    @property
    def lookups(self) -> frozenset[TableName]:
        probed = {item.name for item in self.inputs if not item.lookup}
        return frozenset(item.name for item in self.inputs if item.lookup) - probed

    @property
    def meaning(self) -> object:
        meaning = [self.function, [(i.parameter, str(i.name).lower(), i.lookup) for i in self.inputs], self.code_hash]
        return meaning if self.process is None else [*meaning, self.process.meaning]

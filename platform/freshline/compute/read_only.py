"""Queries and expressions of users, judged as Spark reads them before anything of them is analyzed or run.

Parsers disagree: on where a comment ends, on quotes, on what a name is. So what is judged is Spark's own logical plan,
node by node against a list of what is allowed, and what runs is that very plan. A query reads views that were made for
it and computes with Spark's own functions. Commands, scripts, programs, reflection, paths, versions of its own choice
and names that it computes are refused with ForbiddenQueryError, and so is whatever a later Spark adds and nobody has
inspected.

Parsing evaluates nothing. Analysis does: it reads the files of a path and computes arguments of table functions. So
the judgement comes before it; the relations of the analyzed plan are inspected once more after it.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.core.context import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.compute.predicting import is_predicting, provide_predicting
from freshline.errors import ForbiddenQueryError
from freshline.sql.functions import (
    ALLOWED_FUNCTIONS,
    ASKED_TABLE_FUNCTIONS,
    FILE_OPTIONS,
    OPTION_FUNCTIONS,
    REFUSED_FUNCTIONS,
)
from freshline.values.query import MATCH_FUNCTION
from freshline.values.rules import nearest

_CATALYST = "org.apache.spark.sql.catalyst."
# The plan nodes that the parser makes of a query, by the last part of their class. Under a name stand its fields that
# Spark leaves out when it prints the plan; each has no plan and no expression. Another field that is left out is
# refused unread.
_NODES: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        # plans
        "Aggregate Distinct Except Filter Generate GlobalLimit Intersect LateralJoin LocalLimit Offset OneRowRelation "
        "Pivot Project RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot UnresolvedHint UnresolvedWith "
        "UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedSubqueryColumnAliases "
        "UnresolvedTVFAliases UnresolvedTableValuedFunction LimitAll PipeOperator "
        # names and calls
        "UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator "
        "UnresolvedOrdinal UnresolvedRegex UnresolvedStar UnresolvedStarExceptOrReplace MultiAlias "
        "UnresolvedNamedLambdaVariable UnresolvedCollation UnresolvedPipeAggregateOrdinal NamedArgumentExpression "
        "SemiStructuredExtract LambdaFunction PipeExpression "
        # subqueries
        "Exists InSubquery LateralSubquery ListQuery ScalarSubquery "
        # operators, and what has a grammar of its own
        "Alias And AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Coalesce Collate Concat "
        "CreateNamedStruct CreateStruct CurrentDate CurrentPath CurrentTime CurrentTimestamp CurrentUser EqualNullSafe "
        "EqualTo GreaterThan GreaterThanOrEqual In IsNotNull IsNotUnknown IsNull IsUnknown LessThan LessThanOrEqual "
        "LikeAll LikeAny Lower Not NotLikeAll NotLikeAny Or Overlay RLike ShiftLeft ShiftRight ShiftRightUnsigned "
        "SortOrder StringLocate StringTrim StringTrimLeft StringTrimRight Substring TimestampAdd TimestampDiff "
        "UnaryMinus UnaryPositive AggregateExpression AnyValue First Last "
        # windows
        "CurrentRow NamePlaceholder SpecifiedWindowFrame UnboundedFollowing UnboundedPreceding UnspecifiedFrame "
        "WindowExpression WindowSpecDefinition".split(),
        frozenset(),
    ),
    **dict.fromkeys("Add Divide IntegralDivide Multiply Remainder Subtract".split(), frozenset({"evalContext"})),
    "Cast": frozenset({"evalMode"}),
    **dict.fromkeys("Cube GroupingSets Rollup".split(), frozenset({"groupingSetIndexes"})),
    **dict.fromkeys("ILike Like".split(), frozenset({"escapeChar"})),
    "Join": frozenset({"hint"}),
    "Literal": frozenset({"value"}),
    "LocalRelation": frozenset({"data"}),
    "UnresolvedRelation": frozenset({"options"}),
    # The name of a window, or its definition, which is a node itself.
    "UnresolvedWindowExpression": frozenset({"windowSpec"}),
    # The definitions are read from the plan: see `_definitions`.
    "WithWindowDefinition": frozenset({"windowDefinitions"}),
}
# Why others are refused.
_MEANT = {
    "ScriptTransformation": "it runs a program (TRANSFORM, MAP or REDUCE .. USING)",
    "RelationTimeTravel": "it reads a table at a version of its own choice; read_as_of('t', 5) is for that",
    "RelationChanges": "it reads the changes of a table; read_changes('t', 5) is for that",
    "PlanWithUnresolvedIdentifier": "IDENTIFIER(..) computes the name of what is read; write the name",
    "ExpressionWithUnresolvedIdentifier": "IDENTIFIER(..) computes a name; write the name",
    "NamedStreamingRelation": "it reads a stream; read the table by its name",
    "NamedParameter": "it has a parameter, and no value comes with it",
    "PosParameter": "it has a parameter, and no value comes with it",
    "FunctionTableSubqueryArgumentExpression": "it gives rows to a table function of a user",
    "CompoundBody": "it is a script",
    "UnresolvedExecuteImmediate": "it runs a text that it computes",
}
# Of the analyzed plan: where rows may come from, beside the views that were made for the query.
_LEAVES = frozenset(
    "CTERelationRef LocalRelation OneRowRelation Range ResolvedInlineTable SQLKeywords UnionLoopRef".split()
)
_RUNS_CODE = re.compile(r"Python|UD[AT]?F|ScalaAggregator|V2Aggregator|Reflect|ScriptTransformation|ApplyFunction")
_ADVICE = "A query reads declared tables and sources by name, and computes with Spark's own functions."
_MOST_KNOWN = 4096
# The functions that a declared query calls when it is written out; nobody writes them, see `lower_patterns`.
LOWERED_FUNCTIONS = ALLOWED_FUNCTIONS | {MATCH_FUNCTION}


@dataclass(frozen=True)
class ReadNames:
    """Of a query that was judged: the names that it reads, and those that it defines by WITH, in lower case."""

    relations: frozenset[str]
    common: frozenset[str]


@dataclass(frozen=True)
class PlanNode:
    """A plan or expression, as Spark prints it: its class, its fields and its children."""

    name: str
    facts: Mapping[str, Any]
    children: tuple[PlanNode, ...]

    @property
    def kind(self) -> str:
        """The class without its package."""
        return self.name.rpartition(".")[2].rstrip("$")

    @property
    def words(self) -> str:
        """The class as a person would read it: `DeleteFromTable` is delete from table."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", self.kind).lower()


@dataclass
class _Known:
    """Texts that were judged in this process; a refresh runs the same ones each time.

    All sessions parse alike (see `Sessions`), so that a text stands for the plan that was judged.
    """

    readings: dict[str, ReadNames] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, text: str) -> ReadNames | None:
        with self.lock:
            return self.readings.get(text)

    def note(self, text: str, reading: ReadNames) -> None:
        with self.lock:
            while len(self.readings) >= _MOST_KNOWN:
                self.readings.pop(next(iter(self.readings)))
            self.readings[text] = reading


_QUERIES = _Known()
_DECLARED = _Known()
_EXPRESSIONS = _Known()


def read_only(spark: SparkSession, text: str) -> DataFrame:
    """The rows of a query that was made of a declared one, over views of the session.

    Raises ForbiddenQueryError, and Spark's own errors for what it cannot parse or analyze.
    """
    _provide(spark, text)
    if _QUERIES.get(text) is not None:
        return spark.sql(text)
    plan = _parse(spark, text)
    _QUERIES.note(text, judge(plan, LOWERED_FUNCTIONS))
    return _rows(spark, plan)


def read_declared(spark: SparkSession, text: str, views: Collection[str]) -> DataFrame:
    """The rows of a declared query, which reads exactly these views.

    Raises ForbiddenQueryError too where Spark reads other tables in it than the declaration was found to read.
    """
    _provide(spark, text)
    reading = _DECLARED.get(text)
    if reading is not None:
        _require_reads(reading, views)
        return spark.sql(text)
    plan = _parse(spark, text)
    reading = judge(plan, LOWERED_FUNCTIONS)
    _require_reads(reading, views)
    rows = _rows(spark, plan)
    inspect(rows, {view.lower() for view in views})
    _DECLARED.note(text, reading)
    return rows


def _provide(spark: SparkSession, text: str) -> None:
    """Make freshline's own functions that a query calls known to the session."""
    # The analysis renders functions in upper case.
    if MATCH_FUNCTION in text.lower():
        # An installation may lack the folder of patterns.
        from freshline.compute.matching import provide_matching

        provide_matching(spark)
    provide_predicting(spark, text)


def _require_reads(reading: ReadNames, views: Collection[str]) -> None:
    wanted = {view.lower() for view in views}
    others = sorted(reading.relations - reading.common - wanted)
    missing = sorted(wanted - reading.relations)
    if others or missing:
        named = ", ".join(others or missing)
        raise ForbiddenQueryError(
            f"Spark {'also reads' if others else 'does not read'} {named} in the query, unlike the plan. Its comments, "
            "quotes or names are taken otherwise by Spark. Write them in a simpler way."
        )


@dataclass(frozen=True)
class TypedStatement:
    """A statement that a person or program typed, as Spark parsed it, judged to read only these views."""

    plan: Any
    views: frozenset[str]

    def rows(self, spark: SparkSession) -> DataFrame:
        """Its rows, over the views of the session. Raises AnalysisException."""
        rows = _rows(spark, self.plan)
        inspect(rows, self.views)
        return rows


def judge_asked(spark: SparkSession, text: str, views: Collection[str], declared: Mapping[str, str]) -> TypedStatement:
    """Judge a statement over views that need not be there yet.

    `declared` are the names of all tables by those of their views, in lower case. Raises ForbiddenQueryError.
    """
    plan = _parse(spark, text)
    reading = judge(plan)
    allowed = frozenset(view.lower() for view in views)
    for name in sorted(reading.relations - reading.common - allowed):
        if name in declared:
            raise ForbiddenQueryError(f"{declared[name]} has no version yet. Refresh it first.")
        raise ForbiddenQueryError(f"there is no table or source {name}.{nearest(name, declared.values())} {_ADVICE}")
    return TypedStatement(plan, allowed)


def literals_of(spark: SparkSession, text: str) -> Counter[str]:
    """The literals of a statement as Spark reads it."""
    trees = _printed(_parse(spark, text))
    return Counter(_literal(node) for node in _nodes(trees) if node.kind == "Literal")


def read_expression(text: str) -> Column:
    """A declared expression over a row, as a column. Raises ForbiddenQueryError."""
    if _EXPRESSIONS.get(text) is None:
        context = SparkContext._active_spark_context
        assert context is not None
        # The parser of no session: those of freshline's sessions differ from it in nothing that a text can show.
        parsers = context._jvm.org.apache.spark.sql.catalyst.parser  # type: ignore[union-attr]
        # The object of Scala, by the name it has in the JVM.
        parser = getattr(getattr(parsers, "CatalystSqlParser$"), "MODULE$")
        reading = _judge_trees(_printed(parser.parseExpression(text)))
        if reading.relations:
            raise ForbiddenQueryError(f"({text}) has a subquery; it is computed from one row.")
        _EXPRESSIONS.note(text, reading)
    return F.expr(text)


def _parse(spark: SparkSession, text: str) -> Any:
    """Spark's logical plan of a text, under the settings of the session. Raises ParseException."""
    jvm = spark._jvm
    assert jvm is not None
    before = jvm.SparkSession.getActiveSession()
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    try:
        with _deep():
            return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    finally:
        if before.isDefined():
            jvm.SparkSession.setActiveSession(before.get())
        else:
            jvm.SparkSession.clearActiveSession()


def _rows(spark: SparkSession, plan: Any) -> DataFrame:
    """The rows of a plan that was judged. Raises AnalysisException."""
    jvm = spark._jvm
    assert jvm is not None
    return DataFrame(jvm.Dataset.ofRows(spark._jsparkSession, plan), spark)


def judge(plan: Any, functions: Collection[str] = ALLOWED_FUNCTIONS) -> ReadNames:
    """Judge a logical plan as it was parsed, which may call these functions. Raises ForbiddenQueryError."""
    trees = _printed(plan)
    definitions = [_printed(each) for each in _definitions(plan, _count(trees, "WithWindowDefinition"))]
    if any(_count(each, "WithWindowDefinition") for each in definitions):
        raise ForbiddenQueryError("a window is defined inside the definition of a window. Write OVER (..) in full.")
    return _judge_trees([trees, *definitions], functions)


def _judge_trees(trees: Any, functions: Collection[str] = ALLOWED_FUNCTIONS) -> ReadNames:
    relations: set[str] = set()
    common: set[str] = set()
    for node in _nodes(trees):
        _check_node(node)
        match node.kind:
            case "UnresolvedRelation":
                relations.add(_relation(node))
            case "UnresolvedWith":
                common.update(str(each["_1"]).lower() for each in node.facts["cteRelations"])
            case "UnresolvedFunction":
                _check_function(_joined(node.facts["nameParts"]), functions)
                _check_options(node)
            case "UnresolvedGenerator":
                name = node.facts["name"]
                parts = [name[part] for part in ("catalog", "database", "funcName") if name.get(part)]
                _check_function(".".join(parts), ALLOWED_FUNCTIONS)
            case "UnresolvedTableValuedFunction":
                _check_function(_joined(node.facts["name"]), ASKED_TABLE_FUNCTIONS)
            case _:
                pass
    return ReadNames(frozenset(relations), frozenset(common))


def _check_node(node: PlanNode) -> None:
    left_out = _NODES.get(node.kind)
    if left_out is None or not node.name.startswith(_CATALYST):
        meant = _MEANT.get(node.kind) or f"Spark takes it for {node.words}"
        raise ForbiddenQueryError(f"only queries over declared tables run here: {meant}. {_ADVICE}")
    hidden = [name for name, value in node.facts.items() if value is None and name not in left_out]
    if hidden:
        raise ForbiddenQueryError(f"the {hidden[0]} of {node.words} cannot be inspected. Write it in another way.")


def _relation(node: PlanNode) -> str:
    """The name that is read, in lower case."""
    if node.facts.get("isStreaming"):
        raise ForbiddenQueryError(f"{_joined(node.facts['multipartIdentifier'])} is read as a stream. {_ADVICE}")
    name = _joined(node.facts["multipartIdentifier"])
    if "." in name:
        raise ForbiddenQueryError(
            f"{name} is no declared table. {_ADVICE} Declare a source (CREATE SOURCE .. WITH ('connector' = ..)) for "
            "what lies at a path."
        )
    return name.lower()


def _joined(printed: str) -> str:
    """A name of several parts, which Spark prints as [a, b].

    >>> _joined("[text, /etc/passwd]"), _joined("[orders]")
    ('text./etc/passwd', 'orders')
    """
    return printed[1:-1].replace(", ", ".")


def _check_function(name: str, allowed: Collection[str]) -> None:
    lowered = name.lower()
    if lowered in allowed or (allowed is LOWERED_FUNCTIONS and is_predicting(lowered)):
        return
    why = REFUSED_FUNCTIONS.get(lowered)
    if why is not None:
        raise ForbiddenQueryError(f"{name}(..) {why}. {_ADVICE}")
    raise ForbiddenQueryError(
        f"{name}(..) is none of the functions that a query may call.{nearest(name, allowed)} {_ADVICE}"
    )


def _check_options(node: PlanNode) -> None:
    """Options are a map of plain texts, so that it is seen that none of them names a file."""
    name = _joined(node.facts["nameParts"])
    if name.lower() not in OPTION_FUNCTIONS:
        return
    for argument in node.children[1:]:
        if argument.kind == "Literal":
            continue
        is_map = argument.kind == "UnresolvedFunction" and _joined(argument.facts["nameParts"]).lower() == "map"
        if not is_map or any(option.kind != "Literal" for option in argument.children):
            raise ForbiddenQueryError(f"what {name}(..) takes beside its value are plain texts, and a map(..) of them.")
        for option in argument.children:
            if str(option.facts.get("value")).strip().lower() in FILE_OPTIONS:
                raise ForbiddenQueryError(f"the option {option.facts['value']} of {name}(..) reads a file. {_ADVICE}")


def inspect(rows: DataFrame, views: Collection[str]) -> None:
    """Raise ForbiddenQueryError unless the analyzed plan reads nothing but these views, and runs no code of others."""
    trees = _printed(rows._jdf.queryExecution().analyzed())
    for node in _nodes(trees, stop=lambda node: _is_view(node, views)):
        is_leaf = not node.children and not node.name.startswith(f"{_CATALYST}expressions.")
        if is_leaf and node.kind not in _LEAVES and not _is_view(node, views):
            raise ForbiddenQueryError(f"Spark reads {node.words}, which is no declared table. {_ADVICE}")
        if _RUNS_CODE.search(node.kind) and not _is_ours(str(node.facts.get("name"))):
            raise ForbiddenQueryError(f"Spark finds {node.words} in it, which runs code. {_ADVICE}")


def _is_ours(function: str) -> bool:
    return function == MATCH_FUNCTION or is_predicting(function)


def _is_view(node: PlanNode, views: Collection[str]) -> bool:
    if node.kind != "View" or node.facts.get("isTempView") is not True:
        return False
    return str(node.facts["desc"]["identifier"]["table"]).lower() in views


def _definitions(plan: Any, expected: int) -> list[Any]:
    """The definitions of WINDOW clauses, which Spark leaves out of a printed plan."""
    found: list[Any] = []
    seen = 0
    waiting = [plan] if expected else []
    while waiting:
        node = waiting.pop()
        if node.getClass().getSimpleName() == "WithWindowDefinition":
            seen += 1
            found.extend(_listed(node.windowDefinitions().values().toSeq()))
        is_with = node.getClass().getSimpleName() == "UnresolvedWith"
        # Inside of others are their subqueries, which would be counted twice.
        for inner in (node.children(), node.subqueries(), *([node.innerChildren()] if is_with else [])):
            waiting.extend(_listed(inner))
    if seen != expected:
        raise ForbiddenQueryError("a WINDOW clause stands where it cannot be inspected. Write OVER (..) in full.")
    return found


def _printed(node: Any) -> Any:
    """A plan or expression as Spark prints it, in one call: walking it node by node takes hundreds."""
    with _deep():
        return json.loads(node.toJSON())


@contextmanager
def _deep() -> Iterator[None]:
    """Refuse what the stack of Python or of Java is too small for."""
    try:
        yield
    except (RecursionError, Py4JJavaError) as error:
        if isinstance(error, Py4JJavaError) and "StackOverflowError" not in str(error.java_exception):
            raise
        raise ForbiddenQueryError("the query is nested too deeply to be judged. Split it.") from error


def _listed(several: Any) -> list[Any]:
    return [several.apply(number) for number in range(several.size())]


def _literal(node: PlanNode) -> str:
    return f"{node.facts.get('value')} {node.facts['dataType']}"


def _count(trees: Any, kind: str) -> int:
    return sum(node.kind == kind for node in _nodes(trees))


def _nodes(printed: Any, *, stop: Callable[[PlanNode], bool] = lambda node: False) -> Iterator[PlanNode]:
    """Every node of a printed plan, those in fields of others too; nothing below one at which to stop."""
    waiting = [printed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, PlanNode):
            yield value
            if not stop(value):
                waiting += [*reversed(value.children), *value.facts.values()]
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            is_tree = bool(value) and all(isinstance(each, dict) and "num-children" in each for each in value)
            waiting += [_tree(value)] if is_tree else reversed(value)


def _tree(flat: Sequence[dict[str, Any]]) -> PlanNode:
    """The root of a tree whose nodes Spark prints from the top, each with the number of its children."""
    done: list[PlanNode] = []
    for facts in reversed(flat):
        children = tuple(done.pop() for _ in range(facts["num-children"]))
        done.append(PlanNode(facts["class"], facts, children))
    (root,) = done
    return root

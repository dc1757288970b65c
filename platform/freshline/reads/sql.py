"""`freshline sql`: a query over the newest versions of all tables and sources, and of their rejected rows, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from freshline.commit.delta_log import newest_version, position_of
from freshline.commit.refresh_log import NAME as REFRESH_LOG_NAME
from freshline.commit.snapshot import newest_snapshot
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned, drop_views, read_whole, shadow_inputs
from freshline.compute.read_only import judge_asked, literals_of
from freshline.declare.graph import QUARANTINE, REJECTED
from freshline.errors import ForbiddenQueryError, ForbiddenStatementError, RequestError
from freshline.plan.request import MANUAL
from freshline.plan.union import UnionToken
from freshline.reads.table_functions import Call, read_call, take_out_calls
from freshline.reads.union import read_union
from freshline.refresh.failure import translate_statement
from freshline.refresh.quarantine import has_quarantine, read_quarantine
from freshline.refresh.runtime import Runtime
from freshline.run.savepoint import finish_restore
from freshline.values.names import TableName, quoted
from freshline.values.position import TablePosition
from freshline.values.spec import Spec, TableSpec

ROW_LIMIT = 10_000
# The table that queries read beside the declared ones.
REFRESH_LOG = TableName.parse(REFRESH_LOG_NAME)
# The tokens before a table that is read, and those that begin its alias.
READS = frozenset({TokenType.FROM, TokenType.JOIN, TokenType.COMMA, TokenType.USING, TokenType.UPDATE})
ALIASES = frozenset({TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER})


@dataclass(frozen=True)
class QueryResult:
    """`columns` are pairs of name and Spark type; each of `rows` is one JSON object, decimals with all their digits.

    `tokens` are those of the union reads in the statement, in order. `truncated` says that the query has more rows
    than the limit.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[str, ...]
    truncated: bool = False
    tokens: tuple[UnionToken, ...] = ()


@dataclass(frozen=True)
class UnionCall:
    """`union_read('table')` or `union_read('table', 'token')` in a statement, and the view that takes its place."""

    table: str
    token: str | None
    view: str


def query(
    runtime: Runtime,
    statement: str,
    *,
    limit: int | None = None,
    cancellation: Cancellation | None = None,
    snapshot: bool = False,
    left_out: Sequence[TableName] = (),
) -> QueryResult:
    """Run one SELECT (or WITH, VALUES) over the tables' newest versions, and over what `union_read` adds to them.

    With `snapshot` the versions are the newest that agree. `left_out` are tables whose declaration has a mistake: they
    stay readable as they are stored.

    The statement is judged as Spark reads it, and nothing else of it is run: see `freshline.compute.read_only`.

    Raises ForbiddenStatementError for anything but a query over declared tables, RequestError for what Spark refuses,
    EngineError where Spark has ended.
    """
    finish_restore(runtime)
    try:
        positions = _snapshot_positions(runtime) if snapshot else {}
        most = ROW_LIMIT if limit is None else limit
        return _answer(runtime, statement, most, cancellation or Cancellation(), positions, left_out)
    except (ForbiddenQueryError, PySparkException, Py4JError, ConnectionError) as error:
        raise translate_statement(error) from error


def _snapshot_positions(runtime: Runtime) -> Mapping[TableName, TablePosition]:
    return newest_snapshot(runtime.graph, runtime.warehouse, runtime.control.checks()).positions


def _answer(
    runtime: Runtime,
    written: str,
    most: int,
    cancellation: Cancellation,
    positions: Mapping[TableName, TablePosition],
    left_out: Sequence[TableName],
) -> QueryResult:
    statement, unions = resolve_unions(written)
    statement, calls = take_out_calls(statement)
    declared = [*runtime.graph.order, *(name for name in left_out if name not in runtime.graph)]
    asks_rejected = any(suffix in statement.lower() for suffix in (QUARANTINE, REJECTED))
    beside = _quarantines(runtime) if asks_rejected else {}
    text, used = resolve_names(statement, [*declared, *beside, REFRESH_LOG])
    for name in used:
        if name in runtime.graph:
            runtime.graph.require_rows(name)
    kept_here = {REFRESH_LOG, *beside}
    there = {name: newest_version(_location(runtime, name)) for name in used if name not in kept_here}
    read = [name for name in used if name in kept_here or there[name] is not None]
    with runtime.working(cancellation, pool=MANUAL, what="sql") as spark, ExitStack() as held:
        # Before a file is read for it.
        made: list[UnionCall | Call] = [*unions, *calls]
        _require_same_texts(spark, written, text, sum(_arguments_of(call) for call in made))
        views = [*(name.view for name in read), *(call.view for call in made)]
        asked = judge_asked(spark, text, views, {name.view.lower(): str(name) for name in (*declared, *beside)})
        tokens = [_read_union(runtime, spark, call, held, cancellation) for call in unions]
        frames = {}
        for name in read:
            if name == REFRESH_LOG:
                runtime.refresh_log.flush()
                frames[name] = spark.read.format("delta").load(str(runtime.refresh_log.path))
                continue
            if name in beside:
                frames[name] = read_quarantine(runtime, spark, beside[name])
                continue
            path, version = _location(runtime, name), there[name]
            assert version is not None
            if name not in runtime.graph:
                frames[name] = spark.read.format("delta").option("versionAsOf", version).load(str(path))
                continue
            position = positions.get(name) or position_of(path, version)
            frames[name] = read_whole(spark, Pinned(runtime.graph.spec(name), path, position))
        for call in calls:
            frames[TableName(None, call.view)] = read_call(runtime, spark, call)
        shadow_inputs(frames)
        try:
            rows = asked.rows(spark)
            columns = tuple((field.name, field.dataType.simpleString()) for field in rows.schema.fields)
            safe = rows.toDF(*[f"c{number}" for number in range(len(columns))])
            pieces = [
                F.concat(
                    F.lit(_key(name)),
                    F.substr(F.to_json(F.struct(F.col(f"c{n}").alias("v")), {"ignoreNullFields": "false"}), F.lit(5)),
                )
                for n, (name, _) in enumerate(columns)
            ]
            # Each value is printed by Spark inside {"v":..}; the braces go, the column's own name comes.
            texts = safe.select(F.array(*pieces).alias("t")).limit(most + 1).collect()
        finally:
            drop_views(spark, list(frames))
    objects = tuple("{" + ",".join(piece[:-1] for piece in row["t"]) + "}" for row in texts[:most])
    return QueryResult(columns, objects, len(texts) > most, tuple(tokens))


def _quarantines(runtime: Runtime) -> dict[TableName, Spec]:
    """The tables of rejected rows that stand beside declared ones, by their names; a declared one has its own name."""
    found: dict[TableName, Spec] = {}
    for spec in runtime.graph.specs.values():
        suffix = REJECTED if isinstance(spec, TableSpec) and spec.sink is not None else QUARANTINE
        name = TableName(spec.name.namespace, f"{spec.name.name}{suffix}")
        if has_quarantine(spec) and name not in runtime.graph:
            found[name] = spec
    return found


def _read_union(
    runtime: Runtime, spark: SparkSession, call: UnionCall, held: ExitStack, cancellation: Cancellation
) -> UnionToken:
    """Make the view of one union read; it goes when the statement is answered."""
    try:
        name = TableName.parse(call.table)
    except ValueError as error:
        raise RequestError(str(error)) from error
    if name not in runtime.graph:
        raise RequestError(f"union_read: {runtime.graph.unknown(name)}")
    token = None if call.token is None else UnionToken.parse(call.token)
    read = read_union(runtime, spark, runtime.graph.spec(name).name, token, cancellation=cancellation)
    read.rows.createOrReplaceTempView(call.view)
    held.callback(spark.catalog.dropTempView, call.view)
    return read.token


def resolve_unions(statement: str) -> tuple[str, list[UnionCall]]:
    """The statement with each `union_read(..)` in it replaced by a view, which is called as the table is.

    >>> resolve_unions("SELECT * FROM union_read('b.t')")[0]
    'SELECT * FROM `freshline_union_0` AS `t`'
    """
    try:
        tokens = Spark().tokenize(statement)
    except SqlglotError as error:
        raise RequestError(f"the statement cannot be parsed: {_first_line(str(error))}") from error
    calls: list[UnionCall] = []
    edits: list[tuple[int, int, str]] = []
    for place, word in enumerate(tokens):
        following = tokens[place + 1 : place + 6]
        if word.text.lower() != "union_read" or not following or following[0].token_type is not TokenType.L_PAREN:
            continue
        kinds = [token.token_type for token in following]
        texts = [token.text for token in following]
        if kinds[:3] == [TokenType.L_PAREN, TokenType.STRING, TokenType.R_PAREN]:
            call, end = UnionCall(texts[1], None, f"freshline_union_{len(calls)}"), place + 3
        elif kinds[:5] == [TokenType.L_PAREN, TokenType.STRING, TokenType.COMMA, TokenType.STRING, TokenType.R_PAREN]:
            call, end = UnionCall(texts[1], texts[3], f"freshline_union_{len(calls)}"), place + 5
        else:
            raise RequestError("union_read takes a table's name as a text, and then the text of a token or nothing")
        after = tokens[end + 1].token_type if end + 1 < len(tokens) else None
        alias = "" if after in ALIASES else f" AS {quoted(call.table.rpartition('.')[2])}"
        edits.append((word.start, tokens[end].end + 1, quoted(call.view) + alias))
        calls.append(call)
    text = reduce(lambda out, edit: out[: edit[0]] + edit[2] + out[edit[1] :], sorted(edits, reverse=True), statement)
    return text, calls


def _key(name: str) -> str:
    return json.dumps(name)


def _first_line(text: str) -> str:
    return next((line for line in text.split("\n") if line.strip()), "no message")


def _location(runtime: Runtime, name: TableName) -> Path:
    if name not in runtime.graph:
        return runtime.warehouse.path(name)
    return runtime.warehouse.location(runtime.graph.spec(name))


def _arguments_of(call: UnionCall | Call) -> int:
    return 1 + (len(call.places) if isinstance(call, Call) else call.token is not None)


def _require_same_texts(spark: SparkSession, written: str, text: str, arguments: int) -> None:
    """Refuse a statement in which a name was replaced inside of what Spark takes for a text.

    `arguments` are the literals of table functions, which views take the place of.
    """
    if written == text:
        return
    before, after = literals_of(spark, written), literals_of(spark, text)
    if after - before or (before - after).total() != arguments:
        raise ForbiddenStatementError(
            "Spark finds the ends of texts or comments in the statement elsewhere than freshline does. Write its "
            "quotes and comments in a simpler way."
        )


def resolve_names(statement: str, names: Sequence[TableName]) -> tuple[str, list[TableName]]:
    """The statement with namespaced names replaced by their views, and the tables it may read.

    >>> resolve_names("SELECT t.id FROM b.t", [TableName("b", "t")])[0]
    'SELECT t.id FROM `freshline_1_b_t` AS `t`'
    """
    by_parts = {tuple(part.lower() for part in name.parts): name for name in names}
    tokens = Spark().tokenize(statement)
    used: dict[TableName, None] = {}
    edits: list[tuple[int, int, str]] = []
    for place, token in enumerate(tokens):
        following = tokens[place + 1 : place + 3]
        if len(following) == 2 and following[0].token_type is TokenType.DOT:
            name = by_parts.get((token.text.lower(), following[1].text.lower()))
            if name is not None:
                used[name] = None
                after = tokens[place + 3].token_type if place + 3 < len(tokens) else None
                if after is TokenType.DOT:
                    # b.t.id is a column of what FROM calls t.
                    edits.append((token.start, following[1].end + 1, quoted(name.name)))
                else:
                    reads = place > 0 and tokens[place - 1].token_type in READS
                    alias = f" AS {quoted(name.name)}" if reads and after not in ALIASES else ""
                    edits.append((token.start, following[1].end + 1, quoted(name.view) + alias))
        name = by_parts.get((token.text.lower(),))
        if name is not None:
            used[name] = None
    text = reduce(lambda out, edit: out[: edit[0]] + edit[2] + out[edit[1] :], sorted(edits, reverse=True), statement)
    return text.rstrip().rstrip(";"), list(used)

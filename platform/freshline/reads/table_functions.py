"""The functions of `freshline sql` beside the newest rows: rows as of a place, and changes.

```sql
SELECT * FROM read_as_of('t', 5)                 -- a version, a time or a savepoint
SELECT * FROM read_changes('t', 5, 9)            -- what versions 6 to 9 changed; without 9 up to the newest
SELECT * FROM read_net_changes('t', 'calm')      -- without what was undone
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

from freshline.commit.delta_log import position_of, receipt_at, table_id
from freshline.commit.savepoints import read_savepoint
from freshline.compute.inputs import Pinned, read_at, read_feed
from freshline.errors import ReadError, RequestError
from freshline.plan.read import LogHistory
from freshline.plan.savepoint import LOST
from freshline.reads.rows import read_history
from freshline.refresh.runtime import Runtime
from freshline.values.names import TableName
from freshline.values.position import TablePosition

AS_OF, CHANGES, NET_CHANGES = "read_as_of", "read_changes", "read_net_changes"
FUNCTIONS = {AS_OF: (2, 2), CHANGES: (2, 3), NET_CHANGES: (2, 3)}


@dataclass(frozen=True)
class Call:
    """One call of a table function; `view` stands in its place. Numbers are versions, texts times or savepoints."""

    function: str
    table: str
    places: tuple[int | str, ...]
    view: str


def take_out_calls(statement: str) -> tuple[str, list[Call]]:
    """The statement with the calls of table functions replaced by views. Raises RequestError for a wrong call.

    >>> text, (call,) = take_out_calls("SELECT * FROM read_changes('a.t', 3, 'calm') AS c")
    >>> text, call.table, call.places
    ('SELECT * FROM freshline_read_0 AS c', 'a.t', (3, 'calm'))
    >>> take_out_calls("SELECT read_changes FROM t")
    ('SELECT read_changes FROM t', [])
    """
    if not any(name in statement.lower() for name in FUNCTIONS):
        return statement, []
    tokens = Spark().tokenize(statement)
    calls: list[Call] = []
    edits: list[tuple[int, int, str]] = []
    for place, token in enumerate(tokens[:-1]):
        name = token.text.lower()
        if name in FUNCTIONS and tokens[place + 1].token_type is TokenType.L_PAREN:
            end, arguments = _arguments(tokens, place + 2, name)
            view = f"freshline_read_{len(calls)}"
            calls.append(_call(name, arguments, view))
            edits.append((token.start, tokens[end].end + 1, view))
    text = reduce(lambda out, edit: out[: edit[0]] + edit[2] + out[edit[1] :], sorted(edits, reverse=True), statement)
    return text, calls


def _arguments(tokens: Sequence[Token], place: int, name: str) -> tuple[int, list[int | str]]:
    """The place of the closing parenthesis, and the arguments before it."""
    found: list[int | str] = []
    while place < len(tokens):
        token = tokens[place]
        if token.token_type is TokenType.R_PAREN:
            return place, found
        if token.token_type is TokenType.NUMBER and token.text.isdigit():
            found.append(int(token.text))
        elif token.token_type is TokenType.STRING:
            found.append(token.text)
        elif token.token_type is not TokenType.COMMA:
            break
        place += 1
    raise RequestError(f"{name} takes texts and versions, such as {name}('t', 5): {_where(tokens, place)}.")


def _where(tokens: Sequence[Token], place: int) -> str:
    return f"not {tokens[place].text}" if place < len(tokens) else "the statement ends in it"


def _call(name: str, arguments: Sequence[int | str], view: str) -> Call:
    least, most = FUNCTIONS[name]
    if not least <= len(arguments) <= most or not isinstance(arguments[0], str):
        said = f"{least}" if least == most else f"{least} or {most}"
        raise RequestError(f"{name} takes {said} arguments: the name of a table as a text, then versions or times.")
    return Call(name, arguments[0], tuple(arguments[1:]), view)


def read_call(runtime: Runtime, spark: SparkSession, call: Call) -> DataFrame:
    """The rows that a call stands for. Raises RequestError for an unknown table, ReadError for what is not there."""
    try:
        name = TableName.parse(call.table)
    except ValueError as error:
        raise RequestError(str(error)) from error
    spec = runtime.graph.require_rows(name)
    path = runtime.warehouse.location(spec)
    history = read_history(path, str(name))
    places = [_version(runtime, name, history, place) for place in call.places]
    if call.function == AS_OF:
        version = history.require_rows(places[0])
        return read_at(spark, Pinned(spec, path, position_of(path, version)))
    after, to = places[0], places[1] if len(places) > 1 else history.newest
    history.require_changes(after, to)
    pinned = Pinned(spec, path, position_of(path, to))
    return read_feed(spark, pinned, TablePosition(table_id(path), after), net=call.function == NET_CHANGES)


def _version(runtime: Runtime, name: TableName, history: LogHistory, place: int | str) -> int:
    if isinstance(place, int):
        return place
    try:
        moment = datetime.fromisoformat(place)
    except ValueError:
        savepoint = read_savepoint(runtime.warehouse, place) if place.replace("_", "").isalnum() else None
        saved = None if savepoint is None else savepoint.saved(name)
        if saved is None:
            raise ReadError(
                f"{place!r} is no version, no time, and no savepoint with this table.", where=str(name)
            ) from None
        if saved.version.is_another(receipt_at(runtime.warehouse.path(name), saved.version.version)):
            raise ReadError(LOST.format(name=place), where=str(name)) from None
        return saved.version.version
    return history.version_at(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))

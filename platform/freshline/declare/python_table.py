"""Declarations in Python: the decorators `freshline.table` and `freshline.process`, and `freshline.source`.

A call only notes what it was given. The notes are read, and judged by the same rules as SQL, when the file is
read as a declaration; a file that is imported by anything else declares nothing and changes nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from types import FrameType, FunctionType
from typing import Any, TypedDict, TypeVar, Unpack, overload

from freshline.errors import DeclarationError
from freshline.sql.clauses import ProcessOutput, QueryText, SinkClauses, SourceClauses, TableClauses
from freshline.values.freshness import Freshness, parse_seconds
from freshline.values.location import Location, Written
from freshline.values.names import PART, TableName, column_mistake
from freshline.values.process import Process, clock_calls, named_outputs
from freshline.values.query import PythonInput, PythonQuery
from freshline.values.registry import ExtensionError, optional_part
from freshline.values.rules import Problems, declaration_error
from freshline.values.spec import Constraint, Downstream, OnViolation, Watermark

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class ReadParameter:
    """The default of a parameter that reads a table: by `freshline.read` or `freshline.lookup`."""

    name: str
    is_lookup: bool


@dataclass(frozen=True)
class Note:
    """The arguments of one call of `table`, `process`, `source` or `sink` of `freshline`, and its line."""

    kind: str
    line: int
    given: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None


class TableArguments(TypedDict, total=False):
    """The arguments that `freshline.table` takes with a function and with a query."""

    name: str | None
    freshness: timedelta | str | None
    primary_key: str | Sequence[str]
    partitioned_by: str | Sequence[str]
    cluster_by: str | Sequence[str]
    watermark: tuple[str, timedelta | str] | None
    constraints: Mapping[str, str | tuple[str, str]] | None
    comment: str | None
    mode: str | None
    options: Mapping[str, Any] | None


_notes: ContextVar[tuple[str, list[Note]] | None] = ContextVar("freshline_notes", default=None)


def read(name: str) -> ReadParameter:
    """The default of a parameter that reads the table `name`, for names with a namespace."""
    return ReadParameter(name, is_lookup=False)


def lookup(name: str) -> ReadParameter:
    """The default of a parameter that reads the table `name` as a dimension, at a version pinned by the refresh."""
    return ReadParameter(name, is_lookup=True)


@overload
def table(function: F, /) -> F: ...


@overload
def table(
    *,
    query: None = None,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    append: str | None = None,
    **others: Unpack[TableArguments],
) -> Callable[[F], F]: ...


@overload
def table(*, query: str, **others: Unpack[TableArguments]) -> None: ...


def table(
    function: F | None = None,
    /,
    *,
    query: str | None = None,
    name: str | None = None,
    freshness: timedelta | str | None = None,
    primary_key: str | Sequence[str] = (),
    partitioned_by: str | Sequence[str] = (),
    cluster_by: str | Sequence[str] = (),
    watermark: tuple[str, timedelta | str] | None = None,
    constraints: Mapping[str, str | tuple[str, str]] | None = None,
    comment: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    keys: Mapping[str, str | Sequence[str]] | None = None,
    append: str | None = None,
) -> F | Callable[[F], F] | None:
    """Declare a materialized table.

    As a decorator: the function takes a DataFrame for each parameter and returns the table's rows as one. A parameter
    is named after the table that it reads, or has `freshline.read(..)` or `freshline.lookup(..)` as its default.
    With `query`, the table is that SELECT and there is no function.

    `freshness` is a timedelta, a text such as "30 seconds" or "PT5M", or "DOWNSTREAM"; without it the project's default
    applies. `name` is by default the function's name, in the namespace of the file's folder. `mode` is "auto",
    "continuous", "incremental" or "batch"; `watermark` is a column and how much older than the newest a row may be;
    `constraints` are conditions by name, each alone or with the treatment of a row that violates it, such as
    {"positive": ("amount > 0", "DROP ROW")};
    `options` are those of WITH.

    With `keys`, such as {"orders": "customer", "visit": "customer_id"}, changes of these inputs are followed: the
    function is called with the rows of the affected keys only. That promises that the rows of a key follow from the
    rows of this key alone. The result has the column, or columns, that the first input names. With `append`, each row
    of that input gives rows of the result by itself. Both promises are tried out when the table is computed in full.
    """
    # The arguments by their names, before there are other variables.
    given = dict(locals())
    line = _calling_line()
    if function is not None:
        _note(Note("table", line, given, function))
        return function
    if query is not None:
        _note(Note("table", line, given))
        return None

    def decorate(decorated: F) -> F:
        _note(Note("table", line, given, decorated))
        return decorated

    return decorate


def process(
    *,
    reads: str,
    keys: str | Sequence[str],
    order: str | Sequence[str],
    columns: str,
    outputs: Mapping[str, str] | None = None,
    name: str | None = None,
    freshness: timedelta | str | None = None,
    primary_key: str | Sequence[str] = (),
    partitioned_by: str | Sequence[str] = (),
    cluster_by: str | Sequence[str] = (),
    watermark: tuple[str, timedelta | str] | None = None,
    constraints: Mapping[str, str | tuple[str, str]] | None = None,
    comment: str | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[[C], C]:
    """Declare a materialized table by a class that is given the rows of one key after the other, in an order.

    An instance is made for each key. Its method `row(self, row, out)` is called for each row of `reads` with the key,
    sorted by the columns in `order`, and `out.emit(..)` puts out a row of the table. With a method
    `timer(self, at, out)`, `out.timer(at)` has it called at a time of events: behind the rows of that time, once the
    watermark of the input has come to it.

    `columns` are those of the table, as "customer STRING, at TIMESTAMP". `outputs` are further tables with their
    columns, by name: `out.emit(.., to="refused")` puts a row out there. `name` is by default that of the file. The
    other arguments are those of `freshline.table`.
    """
    # The arguments by their names, before there are other variables.
    given = dict(locals())
    line = _calling_line()

    def decorate(decorated: C) -> C:
        _note(Note("process", line, given, decorated))
        return decorated

    return decorate


def source(
    *,
    columns: str,
    connector: str,
    path: str | None = None,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the name of the option in WITH
    freshness: timedelta | str | None = None,
    primary_key: str | Sequence[str] = (),
    comment: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Declare a source.

    `columns` are written as in CREATE SOURCE: "id BIGINT, at TIMESTAMP METADATA FROM 'ingested_at'". `name` is by
    default that of the file; `options` are the others of WITH.
    """
    given = {
        "name": name,
        "columns": columns,
        "freshness": freshness,
        "primary_key": primary_key,
        "comment": comment,
        "options": {
            **({} if format is None else {"format": format}),
            "connector": connector,
            **({} if path is None else {"path": path}),
            **(options or {}),
        },
    }
    _note(Note("source", _calling_line(), given))


def sink(
    *,
    table: str,
    connector: str,
    name: str | None = None,
    freshness: timedelta | str | None = None,
    comment: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Declare a sink, which sends the rows of `table` to another system.

    `name` is by default that of the file; `options` are the others of WITH.
    """
    given = {
        "name": name,
        "table": table,
        "freshness": freshness,
        "comment": comment,
        "options": {"connector": connector, **(options or {})},
    }
    _note(Note("sink", _calling_line(), given))


@contextmanager
def taking_notes(file: str) -> Iterator[list[Note]]:
    """Collect the notes of the calls made while the file is loaded."""
    notes: list[Note] = []
    token = _notes.set((file, notes))
    try:
        yield notes
    finally:
        _notes.reset(token)


def read_note(
    note: Note, text: str, path: str, default_name: TableName, code_hash: str
) -> TableClauses | SourceClauses | SinkClauses:
    """The clauses of one declaration; raises DeclarationErrors for arguments that cannot be read.

    `text` is that of the file, in which the lines of SQL are found.
    """
    reader = _NoteReader(note, text, path)
    clauses: TableClauses | SourceClauses | SinkClauses | None
    if note.kind == "source":
        clauses = reader.source(default_name)
    elif note.kind == "sink":
        clauses = reader.sink(default_name)
    else:
        clauses = reader.table(default_name, code_hash)
    reader.problems.raise_all()
    assert clauses is not None, "clauses that cannot be read have raised"
    return clauses


class _NoteReader:
    def __init__(self, note: Note, text: str, path: str) -> None:
        self.note = note
        self.text = text
        self.at = Location(path, note.line)
        self.problems = Problems()

    def refuse(self, message: str) -> None:
        self.problems.add("PYTHON_DECLARATION", message, self.at)

    def table(self, default_name: TableName, code_hash: str) -> TableClauses | None:
        given = self.note.given
        query: QueryText | PythonQuery | None
        outputs: tuple[ProcessOutput, ...] = ()
        if self.note.kind == "process":
            query, outputs = self.process(code_hash)
        elif self.note.function is None:
            query = self.query_text(given["query"])
        elif given["query"] is not None:
            self.refuse("freshline.table takes a query or decorates a function, not both.")
            query = None
        else:
            query = self.function(self.note.function, code_hash)
        name = self.name(default_name)
        mode = given["mode"]
        if query is None or name is None:
            return None
        return TableClauses(
            name=name,
            written_at=self.at,
            query=query,
            primary_key=self.names("primary_key"),
            partitioned_by=self.names("partitioned_by"),
            cluster_by=self.names("cluster_by"),
            comment=self.comment(),
            freshness=self.freshness(),
            mode=None if mode is None else Written(str(getattr(mode, "value", mode)).upper(), self.note.line),
            watermark=self.watermark(),
            constraints=self.constraints(),
            options=self.options(),
            process_outputs=outputs,
        )

    def source(self, default_name: TableName) -> SourceClauses | None:
        from freshline.sql.statement import read_columns
        from freshline.sql.tokens import Text

        name = self.name(default_name)
        columns = self.query_text(self.note.given["columns"], "columns")
        if columns is None or name is None:
            return None
        try:
            found = read_columns(Text(columns.text, self.at.path, columns.line))
        except DeclarationError as error:
            self.problems.extend(error)
            return None
        return SourceClauses(
            name=name,
            written_at=self.at,
            columns=found.columns,
            primary_key=self.names("primary_key") or found.primary_key,
            comment=self.comment(),
            freshness=self.freshness(),
            watermark=found.watermark,
            constraints=found.constraints,
            options=self.options(),
        )

    def sink(self, default_name: TableName) -> SinkClauses | None:
        name = self.name(default_name)
        try:
            table = TableName.parse(str(self.note.given["table"]))
        except ValueError as error:
            self.problems.add("NAME", f"table: {error}", self.at)
            return None
        if name is None:
            return None
        return SinkClauses(
            name=name,
            written_at=self.at,
            table=Written(table, self.note.line),
            comment=self.comment(),
            freshness=self.freshness(),
            options=self.options(),
        )

    def watermark(self) -> Written[Watermark] | None:
        given = self.note.given["watermark"]
        if given is None:
            return None
        try:
            column, delay = given
            return Written(Watermark(str(column), parse_seconds(delay, "delay", least=0)), self.note.line)
        except (TypeError, ValueError) as error:
            self.problems.add(
                "WATERMARK", f'watermark is a column and a delay, as ("at", "5 minutes"): {error}', self.at
            )
            return None

    def constraints(self) -> tuple[Written[Constraint], ...]:
        given = self.note.given["constraints"] or {}
        if not isinstance(given, Mapping):
            self.refuse(f"constraints is {given!r}. It is a mapping of names to conditions.")
            return ()
        found = []
        for name, said in given.items():
            condition, on_violation = said if isinstance(said, tuple) and len(said) == 2 else (said, "WARN")
            words = " ".join(str(getattr(on_violation, "value", on_violation)).upper().split())
            if not isinstance(condition, str) or words not in set(OnViolation) or not PART.match(str(name)):
                self.refuse(
                    f"constraint {name!r} is {said!r}. It is a condition, or a condition and one of "
                    f"{', '.join(OnViolation)}, under a name of letters, digits and underscores."
                )
            else:
                found.append(Written(Constraint(str(name), condition, OnViolation(words)), self.note.line))
        return tuple(found)

    def name(self, default_name: TableName) -> TableName | None:
        given, function = self.note.given["name"], self.note.function
        if given is None:
            is_function = function is not None and self.note.kind == "table"
            return TableName(default_name.namespace, function.__name__) if is_function and function else default_name
        return self.table_name(given)

    def table_name(self, given: object, of: str = "", rule: str = "NAME") -> TableName | None:
        try:
            return TableName.parse(str(given))
        except ValueError as error:
            self.problems.add(rule, f"{of}{error}", self.at)
            return None

    def query_text(self, text: object, what: str = "query") -> QueryText | None:
        if not isinstance(text, str) or not text.strip():
            self.refuse(f"{what} is {text!r}. It is a text of SQL.")
            return None
        written = self.written_line(text)
        before = text[: len(text) - len(text.lstrip())]
        return QueryText(text.strip().rstrip(";").rstrip(), written + before.count("\n"))

    def written_line(self, text: str) -> int:
        """The line of the constant in the file; where it is put together, the line of the call."""
        import ast

        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.Constant) and node.value == text:
                return node.lineno
        return self.note.line

    def process(self, code_hash: str) -> tuple[PythonQuery | None, tuple[ProcessOutput, ...]]:
        """The way in which the class makes the rows of the table, and of each of its outputs."""
        made, given = self.note.function, self.note.given
        if not isinstance(made, type) or made.__qualname__ != made.__name__ or not callable(getattr(made, "row", None)):
            self.refuse(
                "freshline.process decorates a class at the top level of its file, with a method `row(self, row, out)`."
            )
            return None, ()
        try:
            with optional_part("freshline.process"):
                import_module("freshline.keyed")
        except ExtensionError as error:
            self.problems.add("EXTENSION", str(error), self.at)
            return None, ()
        for method in ("row", "timer"):
            if _is_lazy(getattr(made, method, None)):
                self.refuse(
                    f"the method `{method}` is a coroutine or generator, of which nothing runs. Put rows out with "
                    "`out.emit(..)`, without `yield` or `async`."
                )
                return None, ()
        self.check_code(made.__name__)
        state = self.state(made)
        keys, order = self.names("keys"), self.names("order")
        read = self.table_name(given["reads"], "reads: ")
        if read is None:
            return None, ()
        if keys is None:
            self.refuse("keys names no column. Name those by which rows belong together.")
        if order is None:
            self.problems.add("PROCESS_ORDER", "order names no column. Name those by which rows are sorted.", self.at)
        columns = self.columns_of("columns", given["columns"])
        outputs = self.outputs()
        if keys is None or order is None or columns is None:
            return None, ()
        if any(name == "to" for some in (columns, *(own for _, own in outputs.values())) for name, _ in some):
            self.refuse("a column is called `to`, by which `out.emit(.., to=..)` names an output. Call it otherwise.")
            return None, ()
        for name, called in named_outputs(self.text, made.__name__):
            if called.lower() not in {each.lower() for each in outputs}:
                known = ", ".join(outputs) or "none"
                self.problems.add(
                    "SIDE_OUTPUT",
                    f"a row is put out to {called!r}. Outputs are: {known}. Declare it in `outputs`.",
                    Location(self.at.path, name),
                )
        has_timer = callable(getattr(made, "timer", None))
        whole = Process(keys.value, order.value, columns, tuple(outputs), has_timer=has_timer, state=state)
        query = PythonQuery(
            self.at.path, made.__name__, (PythonInput("rows", read),), code_hash, ((read, whole.keys),), process=whole
        )
        beside = tuple(
            ProcessOutput(table, replace(query, process=replace(whole, columns=own, output=name)))
            for name, (table, own) in outputs.items()
        )
        return query, beside

    def check_code(self, name: str) -> None:
        """Check that the class asks no clock and no chance."""
        for line, called in clock_calls(self.text, name):
            self.problems.add(
                "PROCESS_CLOCK",
                f"{called}() gives another value each time, and a late row replays its key. Take times from the rows, "
                "as in `out.timer(row.at + timedelta(minutes=10))`: a timer runs when the watermark has come to it.",
                Location(self.at.path, line),
            )

    def state(self, made: type) -> tuple[tuple[str, str], ...]:
        """The attributes of instances with their types."""
        # Imported here because it needs `freshline.keyed`, which an installation may lack.
        from freshline.declare.process_state import DeclaredState

        declared = DeclaredState(made, self.text)
        for line, sentence in declared.problems:
            self.problems.add("PROCESS_STATE", sentence, self.at if line is None else Location(self.at.path, line))
        return tuple(declared.state.items())

    def outputs(self) -> dict[str, tuple[TableName, tuple[tuple[str, str], ...]]]:
        """The tables beside the main one, and their columns, by the names that `emit` calls them."""
        given = self.note.given["outputs"] or {}
        if not isinstance(given, Mapping):
            self.refuse(
                f"outputs is {given!r}. It is a mapping of names to columns, such as {{'refused': 'id BIGINT'}}."
            )
            return {}
        found: dict[str, tuple[TableName, tuple[tuple[str, str], ...]]] = {}
        for name, text in given.items():
            columns = self.columns_of(f"outputs[{name!r}]", text)
            table = self.table_name(name, "outputs: ", "SIDE_OUTPUT")
            if table is None:
                continue
            if str(name).lower() in {each.lower() for each in found}:
                self.problems.add("SIDE_OUTPUT", f"outputs names {name} twice. Name it once.", self.at)
            elif columns is not None:
                found[str(name)] = (table, columns)
        return found

    def columns_of(self, what: str, text: object) -> tuple[tuple[str, str], ...] | None:
        """Columns with their types, as in CREATE SOURCE but without everything else that may stand there."""
        from freshline.sql.statement import read_columns
        from freshline.sql.tokens import Text

        written = self.query_text(text, what)
        if written is None:
            return None
        try:
            found = read_columns(Text(written.text, self.at.path, written.line))
        except DeclarationError as error:
            self.problems.extend(error)
            return None
        others = found.primary_key or found.watermark or found.constraints
        if others or not found.columns or any(column.value.metadata is not None for column in found.columns):
            self.refuse(f"{what} has columns with their types only, such as 'id BIGINT, at TIMESTAMP'.")
            return None
        for column in found.columns:
            mistake = column_mistake(column.value.name)
            if mistake is not None:
                rule, sentence = mistake
                self.problems.add(rule, f"{sentence} Take another.", Location(self.at.path, column.line))
        return tuple((column.value.name, column.value.type) for column in found.columns)

    def function(self, function: Callable[..., Any], code_hash: str) -> PythonQuery | None:
        if not isinstance(function, FunctionType) or function.__qualname__ != function.__name__:
            self.refuse("freshline.table decorates a function at the top level of its file.")
            return None
        if _is_lazy(function):
            self.refuse(f"{function.__name__} is a coroutine or generator. It returns one DataFrame.")
            return None
        inputs: list[PythonInput] = []
        for parameter in inspect.signature(function).parameters.values():
            read_by = self.input(parameter)
            if read_by is not None:
                inputs.append(read_by)
        return PythonQuery(
            self.at.path, function.__name__, tuple(inputs), code_hash, self.keys(inputs), self.append(inputs)
        )

    def keys(self, inputs: Sequence[PythonInput]) -> tuple[tuple[TableName, tuple[str, ...]], ...]:
        given = self.note.given["keys"]
        if given is None:
            return ()
        if not isinstance(given, Mapping) or not given:
            self.refuse(f"keys is {given!r}. It is a mapping of inputs to columns, such as {{'orders': 'customer'}}.")
            return ()
        if self.note.given["append"] is not None:
            self.refuse("a table has keys or append, not both. Remove one.")
        found: list[tuple[TableName, tuple[str, ...]]] = []
        for name, columns in given.items():
            table = self.driving_input("keys", name, inputs)
            named = (columns,) if isinstance(columns, str) else columns
            if not isinstance(named, (list, tuple)) or not named or not all(isinstance(one, str) for one in named):
                self.refuse(f"keys of {name!r} are {columns!r}. They are a column, or a list of columns.")
            elif table is not None:
                found.append((table, tuple(named)))
        if len({len(columns) for _, columns in found}) > 1:
            self.refuse("keys name as many columns of each input, in the same order.")
        return tuple(found)

    def append(self, inputs: Sequence[PythonInput]) -> TableName | None:
        given = self.note.given["append"]
        return None if given is None else self.driving_input("append", given, inputs)

    def driving_input(self, argument: str, given: object, inputs: Sequence[PythonInput]) -> TableName | None:
        """The input that is named, whose changes make new rows."""
        known = [item.name for item in inputs if not item.lookup]
        found = next((name for name in known if str(name).lower() == str(given).strip().lower()), None)
        if found is None:
            there = ", ".join(map(str, known)) or "nothing"
            self.refuse(f"{argument} names {given!r}, which the function does not read. It reads {there}.")
        return found

    def input(self, parameter: inspect.Parameter) -> PythonInput | None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            self.refuse(
                f"parameter {parameter}: each parameter has a name and reads one table. Name it after the table."
            )
            return None
        default = parameter.default
        if default is parameter.empty:
            default = ReadParameter(parameter.name, is_lookup=False)
        if not isinstance(default, ReadParameter):
            self.refuse(
                f"parameter {parameter.name} has the default {default!r}. A default is "
                "freshline.read('namespace.name') or freshline.lookup('name')."
            )
            return None
        table = self.table_name(default.name, f"parameter {parameter.name}: ")
        return None if table is None else PythonInput(parameter.name, table, default.is_lookup)

    def freshness(self) -> Written[Freshness | Downstream] | None:
        given = self.note.given["freshness"]
        if given is None:
            return None
        if isinstance(given, str) and given.strip().upper() == "DOWNSTREAM":
            return Written(Downstream.DOWNSTREAM, self.note.line)
        if isinstance(given, Freshness):
            given = given.allowed_lag
        try:
            return Written(Freshness.parse(given), self.note.line)
        except ValueError as error:
            self.problems.add("FRESHNESS_VALUE", str(error), self.at)
            return None

    def names(self, argument: str) -> Written[tuple[str, ...]] | None:
        given = self.note.given[argument]
        names = (given,) if isinstance(given, str) else given
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names):
            self.refuse(f"{argument} is {given!r}. It is a list of names of columns.")
            return None
        if len({name.lower() for name in names}) < len(names):
            self.refuse(f"{argument} is {given!r}, which names a column twice. Name it once.")
            return None
        return Written(tuple(names), self.note.line) if names else None

    def comment(self) -> str | None:
        given = self.note.given["comment"]
        if given is None and self.note.function is not None:
            return inspect.getdoc(self.note.function)
        if given is not None and not isinstance(given, str):
            self.refuse(f"comment is {given!r}. It is a text.")
            return None
        return given

    def options(self) -> dict[str, Written[str]]:
        given = self.note.given["options"] or {}
        if not isinstance(given, Mapping):
            self.refuse(f"options is {given!r}. It is a mapping of the options in WITH.")
            return {}
        found: dict[str, Written[str]] = {}
        for key, value in given.items():
            text = _option_text(value)
            if text is None:
                self.refuse(f"option '{key}' is {value!r}. It is a text, a number, True, False, a timedelta or a list.")
            else:
                found[str(key).lower()] = Written(text, self.note.line)
        return found


def _option_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, timedelta) and not value.microseconds:
        return f"{value.days * 86_400 + value.seconds} seconds"
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return None


def _note(note: Note) -> None:
    taking = _notes.get()
    if taking is not None:
        taking[1].append(note)


def _calling_line() -> int:
    """The line of the file that is being read from which the call came, directly or through its own helpers."""
    taking = _notes.get()
    frame: FrameType | None = sys._getframe(2)
    if taking is None or frame is None:
        return 1
    while frame is not None:
        if frame.f_code.co_filename == taking[0]:
            return frame.f_lineno
        frame = frame.f_back
    return 1


def one_note(notes: Sequence[Note], path: str) -> Note:
    """The one declaration of a file; raises DeclarationError for none or several."""
    if not notes:
        raise declaration_error(
            "NO_DECLARATION",
            "the file declares nothing. Decorate a function with @freshline.table or a class with @freshline.process, "
            "call freshline.table(query=..), freshline.source(..) or freshline.sink(..), or begin the name of the file "
            "with an underscore.",
            Location(path, 1),
        )
    if len(notes) > 1:
        lines = " and ".join(str(note.line) for note in notes)
        raise declaration_error(
            "TWO_DECLARATIONS",
            f"{len(notes)} declarations in one file, on lines {lines}. Give each a file of its own.",
            Location(path, notes[1].line),
        )
    return notes[0]


def _is_lazy(function: object) -> bool:
    """Whether a call of it runs nothing, and only makes something that may run."""
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )

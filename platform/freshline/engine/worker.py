"""The process that runs the functions of tables written in Python.

One JSON object a line comes in and goes out. The log gets all that the user's code prints, and whatever the code does
to its process (modules, threads, exit) stays in this one. It ends when its input ends, and so with the engine.
"""

from __future__ import annotations

import inspect
import json
import os
import queue
import socket
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.declare.limited_process import ProcessChannel
from freshline.declare.python_file import load_function
from freshline.errors import FreshlineError
from freshline.keyed.batches import FROM, KEY, KIND, LAYER, STATE, TIMER, replay_batches
from freshline.keyed.batches import KeyedProcess as KeyedProcess
from freshline.values.names import RESERVED_COLUMN, column_mistake
from freshline.values.query import PythonQuery


class Worker:
    """Computes views for the engine, each in a Connect session of its own that lives as long as its view."""

    def __init__(self, root: Path, remote: str, channel: ProcessChannel) -> None:
        self._root = root
        self._remote = remote
        self._channel = channel
        self._sessions: dict[str, SparkSession] = {}
        self._current: SparkSession | None = None

    def interrupt(self) -> None:
        """Stop what Spark does for the function that runs."""
        current = self._current
        if current is not None:
            current.interruptAll()

    def work(self, messages: queue.SimpleQueue[dict[str, Any]]) -> None:
        """Answer messages one after the other, for ever."""
        while True:
            message = messages.get()
            if message["do"] == "drop":
                self._drop(message["view"])
            else:
                answer = self._compute(message)
                self._channel.answer({**answer, "view": message["view"], "left": self._has_left_threads()})

    def _compute(self, message: Mapping[str, Any]) -> dict[str, Any]:
        # A session for each computation: the code of one table sees neither views nor confs of another's.
        session = SparkSession.builder.remote(self._remote).create()
        self._current = session
        try:
            function = load_function(
                self._root, PythonQuery(message["path"], message["function"], (), message["code_hash"])
            )
            self._send_own_modules_by_value()
            frames = {item["parameter"]: read_input(session, item) for item in message["inputs"]}
            result: Any
            if "process" in message:
                result = replayed(function, frames["rows"], message["process"], str(self._root / message["path"]))
            else:
                result = function(**frames)
            # Before the session is used again: a copy that comes back from its function is not to speak for this one.
            self._channel.end_copy()
            self._send_own_modules_by_value()
            if not isinstance(result, DataFrame):
                raise _ResultError(
                    f"{message['function']} returned {type(result).__name__}, not a DataFrame",
                    _line_of(function, message),
                )
            if "process" not in message:
                for name in result.columns:
                    # Columns of freshline's own may come through a function, and are left out behind it.
                    mistake = None if name.lower().startswith(RESERVED_COLUMN) else column_mistake(name)
                    if mistake is not None:
                        raise _ResultError(
                            f"{message['function']} returned {mistake[1]} Give it another name.",
                            _line_of(function, message),
                        )
            result.createOrReplaceGlobalTempView(message["view"])
        except _ResultError as error:
            session.stop()
            return {"error": str(error), "where": error.where}
        except FreshlineError as error:
            session.stop()
            return {"error": error.message, "where": error.where}
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises is an answer
            traceback.print_exc()
            session.stop()
            return {"error": _sentence(error), "where": self._place(error)}
        finally:
            self._current = None
        self._sessions[message["view"]] = session
        return {}

    def _drop(self, view: str) -> None:
        """End the session of a view that the engine has dropped."""
        session = self._sessions.pop(view, None)
        if session is None:
            return
        try:
            session.stop()
        except PySparkException:
            # The server forgets a session by itself after a while; that must not end the worker.
            traceback.print_exc()

    def _has_left_threads(self) -> bool:
        """Whether a thread still runs the project's code: it would run beside the functions of other tables."""
        own = threading.get_ident()
        return any(
            self._is_own_file(frame.filename)
            for ident, top in sys._current_frames().items()
            if ident != own
            for frame in traceback.StackSummary.extract(traceback.walk_stack(top), lookup_lines=False)
        )

    def _send_own_modules_by_value(self) -> None:
        """Functions of the project's modules are sent to Spark's Python processes whole: they cannot import them."""
        known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
        for module in list(sys.modules.values()):
            if self._is_own(module) and module.__name__ not in known:
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

    def _is_own(self, module: ModuleType | None) -> bool:
        file = getattr(module, "__file__", None)
        return bool(file) and self._is_own_file(str(file))

    def _is_own_file(self, file: str) -> bool:
        if not Path(file).is_relative_to(self._root) or file.startswith(sys.prefix + os.sep):
            return False
        return not Path(file).is_relative_to(Path(__file__).parents[1])

    def _place(self, error: BaseException) -> str | None:
        """The deepest line of the project's own code."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            path = Path(frame.filename)
            if path.is_relative_to(self._root) and not frame.filename.startswith(sys.prefix + os.sep):
                return f"{path.relative_to(self._root).as_posix()}:{frame.lineno}"
        return None


class _ResultError(Exception):
    def __init__(self, message: str, where: str) -> None:
        self.where = where
        super().__init__(message)


def replayed(made: Callable[[], Any], rows: DataFrame, told: Mapping[str, Any], file: str) -> DataFrame:
    """The rows of a table that a class makes, key by key, as `freshline.keyed.batches` describes them."""
    fields = {field.name: field for field in rows.schema.fields if field.name not in (FROM, LAYER, TIMER, STATE)}
    spelling = {name.lower(): name for name in fields}
    keys, order = ([spelling[name.lower()] for name in told[argument]] for argument in ("keys", "order"))
    columns = StructType.fromJson(told["columns"])
    process = KeyedProcess(
        make=made,
        keys=tuple(keys),
        order=tuple(order),
        columns=to_arrow_schema(columns, timezone="UTC"),
        output=told["output"],
        outputs=tuple(told["outputs"]),
        has_timer=told["has_timer"],
        until=told["until"],
        seconds=told["seconds"],
        memory=told["memory"],
        file=file,
        keeps_state=told["keeps_state"],
        state=dict(told["state"]),
        knows_all=told["knows_all"],
        is_sorted=all(_is_sorted(fields[name].dataType) for name in order),
    )
    # Rows that are equal in the order are sorted by all columns, so that the order never follows from chance.
    ties = [name for name in fields if name not in (*keys, *order)]
    kinds = [functions.col(FROM), functions.col(LAYER).desc()] if FROM in rows.columns else []
    by = [
        *[_in_order(fields[name]) for name in keys],
        *kinds,
        *[_in_order(fields[name]) for name in (*order, *ties)],
        # Texts that are equal by their collation.
        *[
            functions.collate(functions.col(_quoted(name)), "UTF8_BINARY")
            for name, field in fields.items()
            if isinstance(field.dataType, StringType) and field.dataType != StringType()
        ],
    ]
    sorted_rows = rows.repartition(*[functions.col(_quoted(name)) for name in keys]).sortWithinPartitions(*by)
    made_of = StructType(
        [
            *(StructField(f"{KEY}{number}", fields[name].dataType) for number, name in enumerate(keys)),
            StructField(KIND, ByteType()),
            StructField(TIMER, TimestampType()),
            StructField(STATE, StringType()),
            *(StructField(field.name, field.dataType) for field in columns.fields),
        ]
    )
    return sorted_rows.mapInArrow(replay_batches(process), made_of)


def _is_sorted(kind: DataType) -> bool:
    """Whether Python sorts values of a type as Spark does."""
    if isinstance(kind, StringType):
        return bool(kind == StringType())
    return isinstance(kind, (BinaryType, BooleanType, DateType, NumericType, TimestampType, TimestampNTZType))


def _in_order(field: StructField) -> Column:
    """A column to sort by: NULL first, and a text of what Spark does not sort."""
    column = functions.col(_quoted(field.name))
    if "map<" in field.dataType.simpleString() or "variant" in field.dataType.simpleString():
        column = functions.to_json(functions.struct(column))
    return column.asc_nulls_first()


def _line_of(function: Callable[..., Any], message: Mapping[str, Any]) -> str:
    return f"{message['path']}:{inspect.getsourcelines(function)[1]}"


def read_input(session: SparkSession, item: Mapping[str, Any]) -> DataFrame:
    """An input at its position, with the columns that the declaration shows; or the rows that the engine has chosen."""
    if "rows" in item:
        return session.table(f"global_temp.{item['rows']}")
    reader: Any = session.read.format("delta")
    if item["version"] is not None:
        reader = reader.option("versionAsOf", item["version"])
    rows: DataFrame = reader.load(item["path"])
    if item["up_to"] is not None:
        column, most = item["up_to"]
        rows = rows.where(rows[column] <= most)
    columns = item["columns"]
    if columns is None:
        columns = [[name, name] for name in rows.columns if not name.startswith("_freshline_")]
    return rows.select(*[rows[_quoted(stored)].alias(name) for stored, name in columns])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _sentence(error: BaseException) -> str:
    """The error that was raised, in one line; Spark's plan and stack are in the log."""
    line = next((line.strip() for line in str(error).split("\n") if line.strip()), "no message")
    return line if isinstance(error, PySparkException) else f"{type(error).__name__}: {line}"


def leave_connections_to_parent() -> None:
    """Take from a copy of the process, which has just been forked, the connections that it shares with its parent.

    The copy has no thread of gRPC, but the same connection to Spark and the same wake-up events. One call of it, or
    one event that it reads, and the parent waits for an answer that never comes. Sockets within the machine and pipes
    stay, because they are how a function talks to the processes that it starts.
    """
    null = os.open(os.devnull, os.O_RDWR)
    folder = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")
    for link in list(folder.iterdir()):
        descriptor = int(link.name)
        if descriptor != null and _is_shared_connection(descriptor, link):
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _is_shared_connection(descriptor: int, link: Path) -> bool:
    try:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as one:
                return one.family in (socket.AF_INET, socket.AF_INET6)
        return link.is_symlink() and str(link.readlink()) in ("anon_inode:[eventfd]", "anon_inode:[eventpoll]")
    except OSError:
        return False  # the one that listed the folder


def main() -> None:
    """Serve the engine that started this process."""
    os.register_at_fork(after_in_child=leave_connections_to_parent)
    root = Path(sys.argv[1])
    channel = ProcessChannel()
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    worker = Worker(root, os.environ["SPARK_REMOTE"], channel)
    threading.Thread(target=worker.work, args=(messages,), name="work", daemon=True).start()
    channel.ready()
    for line in channel.messages:
        message = json.loads(line)
        if message["do"] == "interrupt":
            worker.interrupt()
        else:
            messages.put(message)
    # The engine has let go, or has died. Nothing here is worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    main()

"""The declaration of `freshline.process` beside its class: keys, order, columns and outputs.

The class is given the rows of one key after the other. So a table is a function of the rows of each key in their order,
and of the watermark, up to which its timers have run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from freshline.values.column_types import takes_values

# Calls that give another value each time, by the last two names: a replay would give another table.
_CLOCKS = frozenset(
    {
        *(("datetime", name) for name in ("now", "utcnow", "today")),
        ("date", "today"),
        *(("time", name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")),
        *(("random", name) for name in ("random", "randint", "choice", "uniform", "shuffle", "sample")),
        *(("uuid", name) for name in ("uuid1", "uuid4")),
        *(("Timestamp", name) for name in ("now", "utcnow", "today")),
    }
)


@dataclass(frozen=True)
class Process:
    """The way in which a class makes the rows of a table, or of one of its outputs.

    `keys` and `order` are columns of the input. `columns` are names and types of this table, `output` is its name among
    `outputs`, empty for the main table. `has_timer`: the class has a method `timer`, which runs by the watermark of the
    first column of `order`. `until` is that watermark for one refresh, in microseconds since 1970. `keeps_state` asks
    for the state of each key beside the rows, and `knows_all` says that keys of which none is known had no rows before.
    `state` has the attributes that the class declares, with their types.
    """

    keys: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...] = ()
    output: str = ""
    has_timer: bool = False
    until: int | None = None
    keeps_state: bool = False
    knows_all: bool = False
    state: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def has_own_key(self) -> bool:
        """Whether the table has all columns of the key, which then have its values."""
        return {name.lower() for name in self.keys} <= {name.lower() for name in self.names}

    @property
    def meaning(self) -> object:
        """The facts that decide which rows there are, beside the code."""
        return [
            [name.lower() for name in self.keys],
            [name.lower() for name in self.order],
            [(name.lower(), kind) for name, kind in self.columns],
            self.output.lower(),
        ]


def clock_calls(text: str, name: str) -> Iterator[tuple[int, str]]:
    """The calls in a class that give another value each time: the line and the call.

    >>> list(clock_calls("class A:\\n  def row(self, row, out):\\n    out.timer(datetime.now(UTC))", "A"))
    [(3, 'datetime.now')]
    """
    for node in _calls(text, name):
        function = node.func
        if isinstance(function, ast.Attribute):
            owner = function.value
            of = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if (of, function.attr) in _CLOCKS:
                yield node.lineno, f"{of}.{function.attr}"


def named_outputs(text: str, name: str) -> Iterator[tuple[int, str]]:
    """The outputs that calls of `emit` in a class name: the line and the name."""
    for node in _calls(text, name):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "emit":
            for keyword in node.keywords:
                if (
                    keyword.arg == "to"
                    and isinstance(keyword.value, ast.Constant)
                    and isinstance(keyword.value.value, str)
                ):
                    yield keyword.value.lineno, keyword.value.value


def _calls(text: str, name: str) -> Iterator[ast.Call]:
    for top in ast.parse(text).body:
        if isinstance(top, ast.ClassDef) and top.name == name:
            for node in ast.walk(top):
                if isinstance(node, ast.Call):
                    yield node


def require_columns(
    process: Process, input_columns: tuple[str, ...] | None, types: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The problems of the keys and the order of a process, as pairs of a rule and a sentence.

    `types` are those of columns of the input in lower case, where they are known.
    """
    known = None if input_columns is None else {name.lower() for name in input_columns}
    for argument, names in (("keys", process.keys), ("order", process.order)):
        for name in names:
            if known is not None and name.lower() not in known:
                rule = "PROCESS_ORDER" if argument == "order" else "UNKNOWN_COLUMN"
                yield (
                    rule,
                    f"{argument} names {name}, and the columns of the input are {', '.join(input_columns or ())}.",
                )
    time = types.get(process.order[0].lower(), "TIMESTAMP")
    if process.has_timer and time != "TIMESTAMP":
        said = f"timers run by the first column of order, and {process.order[0]} is {time}."
        yield "PROCESS_ORDER", f"{said} Order by a TIMESTAMP first, or remove the method `timer`."


def require_key_types(process: Process, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The problems of the types of a process's key, as pairs of a rule and a sentence.

    `types` are as in `require_columns`. Rows of a key are those that Spark sorts beside each other, and that Python
    takes for one key. And a row of the table has its key only where the column takes each value of the key as it is.
    """
    columns = {name.lower(): (name, kind) for name, kind in process.columns} if process.has_own_key else {}
    for key in process.keys:
        kind = types.get(key.lower())
        if kind is None:
            continue
        name, own = columns.get(key.lower(), (key, kind))
        if "STRING COLLATE" in kind:
            sentence = (
                f"keys names {key}, which is {kind}. Spark takes texts for one key that are several in Python. Read a "
                f"table in between that has `{key} COLLATE UTF8_BINARY`, or `lower({key}) COLLATE UTF8_BINARY` for "
                "texts that differ in letter case."
            )
            yield "PROCESS_KEY", sentence
        elif not takes_values(own, kind):
            sentence = (
                f"keys names {key}, which is {kind}, and columns has {name} {own}, which does not take each of its "
                f"values as it is. Write {name} {kind}, or give the column another name."
            )
            yield "PROCESS_KEY", sentence

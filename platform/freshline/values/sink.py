"""The seam of sinks: everything that freshline knows of a kind of system that rows go out to.

A sink is one class. Its attributes describe the kind, an instance is the text of one CREATE SINK, and stands in the
TableSpec as `sink`. It loads nothing heavy. Rows are written by its writer (`freshline.sinks.writer`), which `open`
loads. Shipped sinks and those of other packages are found by name (`freshline.values.registry`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.values.connector import OutsideSystem
from freshline.values.extension import calling
from freshline.values.options import Kind, Option

if TYPE_CHECKING:
    from freshline.values.spec import TableSpec


# In the metadata of a field of Arrow: its texts are JSON, of values that hold others.
JSON = b"freshline.json"


# Types whose values hold no others, and how the others begin, in Spark's spelling.
PLAIN_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY", "DATE"),
    *("TIMESTAMP", "TIMESTAMP_NTZ", "CHAR", "VARCHAR"),
)
VALUES_WITHIN = ("ARRAY<", "MAP<", "STRUCT<", "VARIANT")


def refuse_type(column_type: str, *, is_key: bool) -> str | None:
    """The answer of `Sink.refuses` for a kind that has plain values, and JSON in the place of those that hold others.

    >>> refuse_type("ARRAY<INT>", is_key=False) is None
    True
    >>> refuse_type("ARRAY<INT>", is_key=True)
    'a key is one value'
    """
    if column_type.startswith(VALUES_WITHIN):
        return "a key is one value" if is_key else None
    if column_type.partition("(")[0] not in PLAIN_TYPES:
        return f"it has {', '.join(PLAIN_TYPES).lower()}, and JSON for values that hold others"
    return None


class OnReject(StrEnum):
    """The treatment of a row that the system does not take."""

    FAIL = "fail"  # nothing of the refresh is written, and it fails
    QUARANTINE = "quarantine"  # the row goes to `<sink>__rejected`, all others to the system


# The options of every sink, beside those of its kind.
SINK_OPTIONS = (
    Option("connector", "the kind of system that rows go to"),
    Option("on-reject", "the treatment of a row that the system does not take", Kind.CHOICE, choices=tuple(OnReject)),
    Option("history", "how long the receipts of the sink are kept", Kind.SECONDS),
    Option("alert.warn-after", "the lag above which an alert warns", Kind.SECONDS),
    Option("alert.fail-after", "the lag above which an alert fails", Kind.SECONDS),
    Option("owner", "who is asked about it"),
    Option("group", "the group in Dagster"),
)


class Sink(OutsideSystem):
    """A kind of system that rows go out to.

    `delivery` says in words what a kill in the middle leaves. `needs_key` says that rows are found by their PRIMARY
    KEY; the table of another sink may do without. `takes_nested` says that it has values which hold others; another
    sink is given JSON texts of them. One without `takes_changes` is given all rows whenever some have changed, by
    `compare`. `writer` names the class or function that makes the writer of a sink and a host,
    as `module:Class`. It is loaded with the first refresh.
    """

    delivery: ClassVar[str]
    needs_key: ClassVar[bool] = True
    takes_nested: ClassVar[bool] = False
    takes_changes: ClassVar[bool] = True
    # Whether the system can be asked for the rows that it has. One that cannot is not verified.
    can_be_read: ClassVar[bool] = True
    writer: ClassVar[str]

    @property
    def needs_before(self) -> bool:
        """Whether the writer asks for rows as they were before their changes too (`OutgoingRows.read_changes`)."""
        return False

    def find_problems(self, *, has_key: bool) -> tuple[tuple[str, str, str], ...]:
        """The problems of the declaration as a whole, each as a rule, an option and a sentence.

        `has_key` says whether the table has a PRIMARY KEY.
        """
        return ()

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        """The reason why values of a type, in Spark's spelling, cannot be written; None where they can."""
        return None

    def find_column_problems(self, columns: Sequence[str]) -> str | None:
        """The reason why columns of these names cannot be written together; None where they can."""
        return None

    def open(self, spec: TableSpec, host: Any) -> Any:
        """The writer of a sink, a `freshline.sinks.writer.SinkWriter`; `host` is what it may use of the engine."""
        module, _, name = self.writer.partition(":")
        with calling(type(self), "open", spec):
            return getattr(import_module(module), name)(spec, host)

"""A table of a database that is read by queries: as a whole, or what changed by a column that grows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.sources.jdbc.position import QueryPosition
from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.connector import WHEN_INGESTED, Metadata, Position
from freshline.values.options import Kind, Option, Options

SNAPSHOT, INCREMENTAL = "snapshot", "incremental"
# The system column of Postgres that has the transaction which wrote a row.
XMIN = "xmin"
_PART = r'(?:[^\W\d][\w$]{0,62}|"(?:[^"\x00]|""){1,63}"|`(?:[^`\x00]|``){1,64}`)'
_TABLE = re.compile(rf"(?:({_PART})\.)?({_PART})")
_COLUMN = re.compile(rf"{_PART}\Z")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")
_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True)
class Name:
    """A name as it is written: without quotes each system folds it in its own way."""

    text: str
    is_quoted: bool

    @classmethod
    def parse(cls, written: str) -> Name:
        quote = written[0]
        if quote in '"`':
            return cls(written[1:-1].replace(quote * 2, quote), True)
        return cls(written, False)


@dataclass(frozen=True)
class Overlap:
    """The distance below the greatest value from which rows are read again: seconds for times, a number for numbers.

    0 fits both.
    """

    seconds: int | None
    number: int | None


@dataclass(frozen=True)
class Jdbc(TlsConnector):
    """A table, as it is declared.

    `url` is a reference to the address of the database, with its password. `schema` is None for the one that the
    database takes by itself. `where` is a condition on rows in the words of the database. `column` grows with each
    change of a row, None where the table is read as a whole. `reconcile` is after how many seconds it is read as a
    whole all the same, None for never. `accepted_loss` is the time of a read, behind which another database or table
    is accepted.
    """

    url: str
    schema: Name | None
    table: Name
    read: str
    where: str | None = None
    column: Name | None = None
    overlap: Overlap | None = None
    reconcile: int | None = None
    accepted_loss: str | None = None

    name: ClassVar[str] = "jdbc"
    title: ClassVar[str] = "a database"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the database", required="a reference to the database's address", secret=True),
        Option("table", "the table or view, with its schema", required="the table, as schema.table"),
        Option(
            "read",
            "how the table is read",
            Kind.CHOICE,
            required="snapshot or incremental",
            choices=(SNAPSHOT, INCREMENTAL),
        ),
        Option("where", "the condition of the rows that are read, in the database's SQL"),
        Option("column", "the column that grows with each change of a row"),
        Option("overlap", "how far behind the greatest value of the column rows are read again"),
        Option("reconcile", "how often the table is read as a whole", Kind.SECONDS, least=60),
        Option("accept-database", "the read behind which another database is accepted", field="accepted_loss"),
        *TLS_OPTIONS,
    )
    metadata: ClassVar[Mapping[str, Metadata]] = WHEN_INGESTED
    position: ClassVar[type[Position] | None] = QueryPosition
    reader: ClassVar[str | None] = "freshline.sources.jdbc.reader:QueryReader"
    record_format: ClassVar[str | None] = "rows"
    delivers_again: ClassVar[bool] = False

    @classmethod
    def declare(cls, options: Options) -> Self:
        schema, table = read_table_name(options)
        read = options.choice("read", (SNAPSHOT, INCREMENTAL)) or SNAPSHOT
        expected = "what DATABASE_REPLACED shows, as 2026-11-26T12:00:00.000000Z"
        accepted = options.matching("accept-database", _MOMENT, expected)
        column = _column(options)
        for option in ("column", "overlap", "reconcile"):
            options.require(option, "'read' = 'incremental'", read == INCREMENTAL)
        if read == INCREMENTAL:
            _check_incremental(options, column)
        return cls(
            url=options.text("url") or "",
            schema=schema,
            table=table,
            read=read,
            where=options.text("where"),
            column=column,
            overlap=_overlap(options),
            reconcile=options.seconds("reconcile", least=60),
            accepted_loss=accepted,
            **options.values(TLS_OPTIONS),
        )

    @property
    def full_name(self) -> str:
        """The table's name as people write it."""
        return self.table.text if self.schema is None else f"{self.schema.text}.{self.table.text}"

    @property
    def meaning(self) -> tuple[object, ...]:
        where = () if self.where is None else (self.where,)
        return (self.full_name, *where)

    @property
    def shown(self) -> Mapping[str, str]:
        column = {} if self.column is None else {"column": self.column.text}
        return {"table": self.full_name, "read": self.read, **column}


def read_table_name(options: Options) -> tuple[Name | None, Name]:
    """The schema, None where it is not written, and the name of the option `table`."""
    text = options.text("table")
    match = None if text is None else _TABLE.fullmatch(text)
    if match is None:
        if text is not None:
            options.reject("table", 'a table as schema.table, with names such as "Order Lines" in quotes')
        return None, Name("", False)
    return (None if match[1] is None else Name.parse(match[1])), Name.parse(match[2])


def _column(options: Options) -> Name | None:
    text = options.matching("column", _COLUMN, "the name of one column")
    return None if text is None else Name.parse(text)


def _overlap(options: Options) -> Overlap | None:
    text = options.text("overlap")
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return Overlap(0 if int(text) == 0 else None, int(text))
    seconds = options.seconds("overlap", least=0)
    return None if seconds is None else Overlap(seconds, 0 if seconds == 0 else None)


def _check_incremental(options: Options, column: Name | None) -> None:
    if "column" not in options:
        options.problems.add(
            "OPTION_NEEDS",
            "'read' = 'incremental' needs the option 'column': the column that grows with each change of a row, or "
            "xmin in Postgres.",
            options.at("read"),
        )
    is_xmin = column == Name(XMIN, False)
    options.require("overlap", "a column of the table: by xmin no row is late", not is_xmin)
    if column is not None and not is_xmin and "overlap" not in options:
        options.problems.add(
            "OPTION_NEEDS",
            "'read' = 'incremental' needs the option 'overlap': how far behind the greatest value rows may be "
            "committed late, as '10 minutes' for times or '1000' for numbers. Later ones are missed until 'reconcile'.",
            options.at("read"),
        )

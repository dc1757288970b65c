"""A table of a database as a sink: one transaction has the rows and the position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.sources.jdbc.connector import Name, read_table_name
from freshline.sources.tls import TLS_OPTIONS, TlsSystem
from freshline.values.options import Option, Options
from freshline.values.sink import Sink, refuse_type

# The longest name of a column in bytes, of any of the databases.
_LONGEST_NAME = 63
# Columns that every table of Postgres has.
_SYSTEM_COLUMNS = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid")


@dataclass(frozen=True)
class JdbcSink(TlsSystem, Sink):
    """A table of Postgres, MySQL or MariaDB, as it is declared.

    `url` is a reference to the address of the database, with its password. `schema` is None for the one that the
    database takes by itself.
    """

    url: str
    schema: Name | None
    table: Name

    name: ClassVar[str] = "jdbc"
    title: ClassVar[str] = "a database"
    delivery: ClassVar[str] = "exactly once: rows and position are one transaction"
    writer: ClassVar[str] = "freshline.sinks.jdbc.writer:open_writer"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the database", required="a reference to the database's address", secret=True),
        Option("table", "the table, with its schema", required="the table, as schema.table"),
        *TLS_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        schema, table = read_table_name(options)
        return cls(url=options.text("url") or "", schema=schema, table=table, **options.values(TLS_OPTIONS))

    @property
    def full_name(self) -> str:
        """The table's name as people write it."""
        return self.table.text if self.schema is None else f"{self.schema.text}.{self.table.text}"

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.full_name,)

    @property
    def shown(self) -> Mapping[str, str]:
        return {"table": self.full_name}

    @property
    def left_behind(self) -> str:
        return f"The table {self.full_name} of the database stays as it is, and its row in freshline_sink."

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        return refuse_type(column_type, is_key=is_key)

    def find_column_problems(self, columns: Sequence[str]) -> str | None:
        for column in columns:
            if len(column.encode()) > _LONGEST_NAME:
                return f"{column} is longer than the {_LONGEST_NAME} bytes of a name there"
            if column.lower() in _SYSTEM_COLUMNS:
                return f"{column} is a column that every table of Postgres has. Give it another name with AS"
        return None

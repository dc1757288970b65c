"""A table of ClickHouse as a sink: rows with versions, and a view that shows the newest one of each key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.sinks.http_sink import USER_OPTIONS, HttpSink
from freshline.sources.tls import TLS_OPTIONS
from freshline.values.options import Option, Options, Reference
from freshline.values.sink import refuse_type

# Columns of the table behind the view: tables have none that begin so.
VERSION, DELETED = "_freshline_version", "_freshline_deleted"
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,127}\.)?[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


@dataclass(frozen=True, kw_only=True)
class ClickHouseSink(HttpSink):
    """A view of ClickHouse and the table behind it, as it is declared."""

    table: str

    name: ClassVar[str] = "clickhouse"
    title: ClassVar[str] = "ClickHouse"
    ports: ClassVar[Mapping[str, int]] = {"http": 8123, "https": 8443}
    first_user: ClassVar[str] = "default"
    delivery: ClassVar[str] = "effectively once: rows that were written are written again without effect"
    writer: ClassVar[str] = "freshline.sinks.clickhouse.writer:ClickHouseWriter"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "url",
            "the address of the HTTP interface",
            required="the address of the system, such as https://clickhouse:8443",
            reference=Reference.PART,
        ),
        Option("table", "the name by which rows are read", required="the table, as database.table"),
        *USER_OPTIONS,
        *TLS_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        declared = super().declare(options)
        if declared.table and not _NAME.match(declared.table):
            options.reject("table", "a name of letters, digits and _, or two with a dot between them")
        return declared

    @property
    def parts(self) -> tuple[str, str]:
        """The database and the table."""
        database, _, table = self.table.rpartition(".")
        return database or "default", table

    @property
    def meaning(self) -> tuple[object, ...]:
        return self.parts

    @property
    def shown(self) -> Mapping[str, str]:
        return {"url": self.url, "table": ".".join(self.parts)}

    @property
    def left_behind(self) -> str:
        return f"The view {'.'.join(self.parts)} and the table behind it stay as they are."

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        return refuse_type(column_type, is_key=is_key)

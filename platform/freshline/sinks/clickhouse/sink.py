"""A table of ClickHouse as a sink: rows with versions, and a view that shows the newest one of each key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from freshline.sinks.http_client import read_hosts
from freshline.sources.tls import TLS_OPTIONS, TlsSystem
from freshline.values.connector import Place
from freshline.values.options import Option, Options, Reference
from freshline.values.rules import declaration_error
from freshline.values.sink import Sink

PORTS = {"http": 8123, "https": 8443}
# Columns of the table behind the view: tables have none that begin so.
VERSION, DELETED = "_freshline_version", "_freshline_deleted"
_NAME = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,127}\.)?[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_HELD = ("ARRAY<", "MAP<", "STRUCT<", "VARIANT")
_TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY", "DATE"),
    *("TIMESTAMP", "TIMESTAMP_NTZ", "CHAR", "VARCHAR"),
)


@dataclass(frozen=True)
class ClickHouseSink(TlsSystem, Sink):
    """A view of ClickHouse and the table behind it, as it is declared. `password` is a reference."""

    url: str
    table: str
    username: str | None = None
    password: str | None = None

    name: ClassVar[str] = "clickhouse"
    title: ClassVar[str] = "ClickHouse"
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
        Option("username", "the user"),
        Option("password", "the user's password", secret=True),
        *TLS_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        found = options.values(cls.options)
        if found["url"] and "${" not in found["url"]:
            try:
                read_hosts(found["url"], PORTS)
            except ValueError as error:
                # The text may have a password.
                options.problems.add("OPTION_VALUE", f"option 'url': {error}.", options.at("url"))
        if found["table"] and not _NAME.match(found["table"]):
            options.reject("table", "a name of letters, digits and _, or two with a dot between them")
        return cls(**found)

    def resolve(self, place: Place) -> Self:
        resolved = super().resolve(place)
        url = place.text("url", self.url)
        try:
            read_hosts(url, PORTS)
        except ValueError as error:
            raise declaration_error("OPTION_VALUE", f"option 'url': {error}.", place.at("url")) from error
        return replace(resolved, url=url)

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
        if column_type.startswith(_HELD):
            return "a key is one value" if is_key else None
        if column_type.partition("(")[0] not in _TYPES:
            return f"it has {', '.join(_TYPES).lower()}, and JSON texts for values that hold others"
        return None

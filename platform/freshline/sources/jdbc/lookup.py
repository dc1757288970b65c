"""A table of a database that is asked for the rows of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.sources.jdbc.connector import SNAPSHOT, Jdbc, Name, read_table_name
from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.lookup import LOOKUP_OPTIONS, Lookup
from freshline.values.options import Option, Options


@dataclass(frozen=True, kw_only=True)
class JdbcLookup(TlsConnector, Lookup):
    """A table or view, by the fields that `Jdbc` has too."""

    url: str
    schema: Name | None
    table: Name
    where: str | None = None

    name: ClassVar[str] = "jdbc"
    title: ClassVar[str] = "a database, as a lookup"
    client: ClassVar[str] = "freshline.sources.jdbc.lookup_client:JdbcLookupClient"
    kind: ClassVar[str | None] = "jdbc"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the database", required="a reference to the database's address", secret=True),
        Option("table", "the table or view, with its schema", required="the table, as schema.table"),
        Option("where", "the condition of the rows that there are, in the database's SQL"),
        *LOOKUP_OPTIONS,
        *TLS_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        schema, table = read_table_name(options)
        return cls(
            url=options.text("url") or "",
            schema=schema,
            table=table,
            where=options.text("where"),
            **options.values((*LOOKUP_OPTIONS, *TLS_OPTIONS)),
        )

    @property
    def as_table(self) -> Jdbc:
        """The table, as one that is read as a whole."""
        return Jdbc(
            url=self.url,
            schema=self.schema,
            table=self.table,
            read=SNAPSHOT,
            where=self.where,
            tls_ca=self.tls_ca,
            tls_certificate=self.tls_certificate,
            tls_key=self.tls_key,
        )

    @property
    def meaning(self) -> tuple[object, ...]:
        return self.as_table.meaning

    @property
    def shown(self) -> Mapping[str, str]:
        return {"table": self.as_table.full_name}

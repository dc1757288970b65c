"""A Hive metastore, in which Spark, Trino and Hive find tables by `database.table`.

Each table is EXTERNAL, so that dropping the entry never touches its data. Spark and Trino's Delta connector ask for the
property `spark.sql.sources.provider` and the path, and read everything else from the Delta log. Hive reads through the
storage handler of Delta's Hive connector, which Spark cannot load without its jar: hence a setting of its own.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.values.names import PART, TableName
from freshline.values.options import Kind, Option, Options, Reference
from freshline.values.registrar import Catalog, CatalogColumn, CatalogEntry, CatalogHost, Registrar

PROVIDER = "spark.sql.sources.provider"
HANDLER = "storage_handler"
_ADDRESS = re.compile(r"thrift://(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?\Z")
# The columns of the database behind a metastore take so many characters, at least.
_LONGEST_COMMENT, _LONGEST_TYPE, _LONGEST_PROPERTY = 256, 4000, 4000

_LEXEME = re.compile(r"`(?:[^`]|``)*`|\w+|[<>(),:]")
_TYPES = {"TIMESTAMP_NTZ": "timestamp", "VARIANT": "struct<metadata:binary,value:binary>", "VOID": "string"}


@dataclass(frozen=True)
class HiveContent:
    """The part of an entry that freshline writes; `columns` are names, types and comments."""

    location: str
    columns: tuple[tuple[str, str, str], ...]
    comment: str
    handler: bool
    is_external: bool = True
    provider: str = "delta"


@dataclass(frozen=True)
class Hive(Registrar):
    """A metastore at one of the addresses in `uri`, which are tried in their order.

    Tables without a namespace are in `database`, those with one in the database of that name behind `prefix`.
    `patience` is how long it waits for an answer, in seconds.
    """

    uri: str
    database: str = "default"
    prefix: str = ""
    hive_handler: bool = False
    tls: bool = False
    tls_ca: str | None = None
    patience: int = 20

    name: ClassVar[str] = "hive"
    title: ClassVar[str] = "a Hive metastore"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "uri",
            "the addresses of the metastore, such as thrift://metastore:9083, with commas between them",
            required="the address of the metastore, such as thrift://metastore:9083",
            reference=Reference.WHOLE,
        ),
        Option("database", "the database of tables without a namespace"),
        Option("database-prefix", "the beginning of the databases of tables with a namespace", field="prefix"),
        Option("hive-handler", "whether entries are for Hive, by Delta's storage handler", Kind.BOOLEAN),
        Option("tls", "whether the connection is encrypted, and the server verified", Kind.BOOLEAN),
        Option("tls-ca", "the file of the certificates that the server's is checked by"),
        Option("timeout", "how long an answer may take", Kind.SECONDS, field="patience", greatest=3600),
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        uri = options.text("uri")
        if uri is not None and not uri.startswith("${") and not all(map(_ADDRESS.match, addresses_in(uri))):
            options.reject("uri", "addresses such as thrift://metastore:9083, with commas between them")
        options.matching("database", PART, "a name of letters, digits and underscores")
        options.matching("database-prefix", PART, "a name of letters, digits and underscores")
        options.require("tls-ca", "tls = true", options.boolean("tls") is True)
        return super().declare(options)

    @property
    def address(self) -> str:
        return self.uri

    def place(self, name: TableName) -> str:
        # A metastore keeps names in lower case.
        return f"{self.database if name.namespace is None else self.prefix + name.namespace}.{name.name}".lower()

    def content(self, entry: CatalogEntry) -> HiveContent:
        return HiveContent(
            location=f"file:{entry.path}",
            columns=tuple(_column(column) for column in entry.columns),
            comment=_short(entry.comment or "", _LONGEST_PROPERTY),
            handler=self.hive_handler,
        )

    def open(self, host: CatalogHost) -> AbstractContextManager[Catalog]:
        from freshline.catalogs.hive.metastore import open_metastore

        return open_metastore(self, host)


def addresses_in(uri: str) -> list[str]:
    """The addresses of a setting."""
    return [each.strip() for each in uri.split(",")]


def _column(column: CatalogColumn) -> tuple[str, str, str]:
    kind = hive_type(column.type)
    return column.name.lower(), kind if len(kind) <= _LONGEST_TYPE else "string", _short(column.comment or "")


def _short(text: str, most: int = _LONGEST_COMMENT) -> str:
    return text if len(text) <= most else text[: most - 2] + ".."


def hive_type(text: str) -> str:
    """A type of declarations in Hive's spelling, which has no quotes: other characters in fields become underscores.

    >>> hive_type("STRUCT<`a b`: BIGINT, int: ARRAY<DECIMAL(10,2)>>")
    'struct<a_b:bigint,int:array<decimal(10,2)>>'
    >>> hive_type("TIMESTAMP_NTZ")
    'timestamp'
    """
    lexemes = _LEXEME.findall(text)
    found = []
    for number, lexeme in enumerate(lexemes):
        if lexemes[number + 1 : number + 2] == [":"]:
            found.append(re.sub(r"\W", "_", lexeme.strip("`")).lower())
        else:
            found.append(_TYPES.get(lexeme, lexeme.lower()))
    return "".join(found)

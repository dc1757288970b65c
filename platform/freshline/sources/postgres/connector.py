"""A table of Postgres: its rows and all their changes, read by logical decoding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.sources.postgres.position import WalPosition
from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.connector import RECORD, WHEN_INGESTED, Metadata, Position
from freshline.values.options import Option, Options

COMMIT = "_freshline_commit"
# As Postgres has them: a slot is a folder on its disk.
_SLOT = re.compile(r"[a-z0-9_]{1,63}\Z")
_PUBLICATION = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_PART = r'(?:[A-Za-z_][A-Za-z0-9_$]{0,62}|"(?:[^"\x00]|""){1,63}")'
_TABLE = re.compile(rf"(?:({_PART})\.)?({_PART})")
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_SIZE = re.compile(r"([1-9][0-9]{0,5})\s*([MGT]B)", re.IGNORECASE)
_UNITS = {"MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
DEFAULT_RETAINED = 10 * 1024**3
_LOSS = re.compile(r"[a-z0-9_]{1,63}@[0-9A-F]{1,8}/[0-9A-F]{1,8}\Z")


@dataclass(frozen=True)
class Postgres(TlsConnector):
    """A table, as it is declared.

    `url` is a reference to a connection string of libpq, with its password. `schema` and `table` name the table.
    `most_retained` is in bytes. `accepted_loss` names a slot and a position: what came behind it was lost, and the
    table is read anew.
    """

    url: str
    schema: str
    table: str
    slot: str
    publication: str
    accepted_loss: str | None = None
    most_retained: int = DEFAULT_RETAINED

    name: ClassVar[str] = "postgres"
    title: ClassVar[str] = "Postgres"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the database", required="a reference to the database's address", secret=True),
        Option("table", "the table, with its schema", required="the table, as schema.table"),
        Option("slot", "the replication slot of this source alone", required="the name of a replication slot"),
        Option("publication", "the publication that has the table, by default of the slot's name"),
        Option("accept-slot", "the loss of changes after which the table is read anew", field="accepted_loss"),
        Option("alert.retained-above", "the bytes of the database's log that the slot may retain before an alert"),
        *TLS_OPTIONS,
    )
    metadata: ClassVar[Mapping[str, Metadata]] = {
        **WHEN_INGESTED,
        "record": Metadata("BIGINT", RECORD, ordered=True),
        "commit": Metadata("STRING", COMMIT),
    }
    position: ClassVar[type[Position] | None] = WalPosition
    reader: ClassVar[str | None] = "freshline.sources.postgres.reader:PostgresReader"
    kind: ClassVar[str | None] = "postgres"
    record_format: ClassVar[str | None] = "pgoutput"
    delivers_again: ClassVar[bool] = False

    @classmethod
    def declare(cls, options: Options) -> Self:
        slot = options.matching("slot", _SLOT, "up to 63 lower-case letters, digits and underscores") or ""
        publication = options.matching("publication", _PUBLICATION, "a lower-case name") or slot
        schema, table = _table(options)
        return cls(
            url=options.text("url") or "",
            schema=schema,
            table=table,
            slot=slot,
            publication=publication,
            accepted_loss=options.matching("accept-slot", _LOSS, "what SLOT_LOST shows, as slot@0/15D7A10"),
            most_retained=_bytes(options, "alert.retained-above"),
            **options.values(TLS_OPTIONS),
        )

    @property
    def full_name(self) -> str:
        """The table's name as people write it."""
        return f"{self.schema}.{self.table}"

    @property
    def statement_name(self) -> str:
        """The table's name as a statement of SQL needs it."""
        return f"{_quoted(self.schema)}.{_quoted(self.table)}"

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.schema, self.table)

    @property
    def shown(self) -> Mapping[str, str]:
        return {"table": self.full_name, "slot": self.slot, "publication": self.publication}

    @property
    def left_behind(self) -> str:
        return (
            f"When its file is removed, the slot {self.slot} stays in the database and retains its log. Then run "
            f"there: SELECT pg_drop_replication_slot('{self.slot}')."
        )

    @property
    def retained_above(self) -> int | None:
        return self.most_retained


def _bytes(options: Options, key: str) -> int:
    text = options.text(key)
    if text is None:
        return DEFAULT_RETAINED
    match = _SIZE.fullmatch(text)
    if match is None:
        options.reject(key, "a size such as 512 MB or 10 GB")
        return DEFAULT_RETAINED
    return int(match[1]) * _UNITS[match[2].upper()]


def _table(options: Options) -> tuple[str, str]:
    text = options.text("table")
    match = None if text is None else _TABLE.fullmatch(text)
    if text is not None and match is None:
        options.reject("table", 'a table as schema.table, with names such as "Order Lines" in double quotes')
    if match is None:
        return "public", ""
    return "public" if match[1] is None else _folded(match[1]), _folded(match[2])


def _quoted(name: str) -> str:
    """A name that the database reads as it is."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _folded(name: str) -> str:
    """A name as the catalog has it: without quotes it is in lower case."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()

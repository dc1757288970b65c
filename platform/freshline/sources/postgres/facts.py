"""Facts of a server, a table and a slot, and the judgement whether the source can be read on from its position.

Everything here comes from the arguments, so each loss and each mistake can be tested without a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from freshline.errors import (
    DatabaseError,
    DatabaseRefusedError,
    PublicationError,
    ReplicaIdentityError,
    SlotForeignError,
    SlotLostError,
    SourceTypeError,
)
from freshline.sources.databases.postgres_values import DatabaseType, accepted_types, value_reader
from freshline.sources.postgres.connector import Postgres
from freshline.sources.postgres.events import NamedValues, PostgresColumn, ReadTable
from freshline.sources.postgres.position import WalPosition, lsn_text

PLUGIN = "pgoutput"


@dataclass(frozen=True)
class SlotFacts:
    """A replication slot. `confirmed` is the place from which it gives changes, `retained` the bytes that it retains.

    `active_pid` is the server's process that reads it now, None for none. `lost_because` is empty for a valid one.
    """

    plugin: str
    database: str
    active_pid: int | None
    confirmed: int
    retained: int
    lost_because: str = ""


@dataclass(frozen=True)
class PostgresServerFacts:
    """A server at one moment. `flushed` is the end of its log on disk; of a standby nothing is known but that."""

    system_id: str
    timeline: int
    database: str
    version: int
    wal_level: str
    is_standby: bool
    flushed: int
    slot: SlotFacts | None


@dataclass(frozen=True)
class DatabaseColumn:
    """A column of a table. A generated one is not in the changes. `number` and `named_values` are as in ReadColumn."""

    name: str
    type_id: int
    is_generated: bool
    number: int = 0
    named_values: tuple[NamedValues, ...] = ()


# The kind of a table that others inherit from, which has no letter in pg_class.
INHERITED = "i"


@dataclass(frozen=True)
class TableFacts:
    """A table: `kind` and `identity` (the replica identity) are letters as in pg_class, but for INHERITED.

    `key` are the columns of its identity, empty where that is not an index. `unique_keys` are those of its unique
    indexes. `types` are those of its columns by their oids.
    """

    id: int
    kind: str
    identity: str
    may_select: bool
    columns: tuple[DatabaseColumn, ...]
    key: tuple[str, ...]
    unique_keys: tuple[tuple[str, ...], ...]
    types: Mapping[int, DatabaseType]


@dataclass(frozen=True)
class PublicationFacts:
    """A publication. `columns` are those that it has of the table, None where it does not have the table.

    `by_partition` says that it sends the changes of a partitioned table as changes of its partitions.
    """

    missing_kinds: tuple[str, ...]
    columns: tuple[str, ...] | None
    filtered: bool = False
    by_partition: bool = False


class SlotStep(StrEnum):
    """The next step of a source."""

    BEGIN = "begin"  # with a new slot and a snapshot
    CONTINUE = "continue"


def require_server(facts: PostgresServerFacts, *, where: str) -> None:
    """Raises DatabaseError and DatabaseRefusedError for a server that cannot be read by logical decoding."""
    if facts.is_standby:
        raise DatabaseError(
            "the server is a standby, from which changes are not read. Let the connection lead to the primary.",
            where=where,
        )
    if facts.wal_level != "logical":
        raise DatabaseRefusedError(
            f"the server has wal_level = {facts.wal_level}, which does not keep changes of rows. Set wal_level = "
            "logical in postgresql.conf and restart the server.",
            where=where,
        )


def require_table(
    declared: Postgres,
    found: TableFacts | None,
    columns: Sequence[tuple[str, str]],
    key: Sequence[str],
    most_bytes: int,
    *,
    where: str,
) -> ReadTable:
    """The part of the table that is read.

    `columns` are the declared ones, each with its type, `key` those of PRIMARY KEY.
    Raises DatabaseRefusedError, SourceTypeError and ReplicaIdentityError.
    """
    name, statement_name = declared.full_name, declared.statement_name
    if found is None:
        raise DatabaseRefusedError(f"there is no table {name} in the database. Correct `table`.", where=where)
    if found.kind == INHERITED:
        raise DatabaseRefusedError(
            f"other tables inherit from {name}: reading it gives their rows too, and its changes do not. Name each of "
            "them as a source of its own.",
            where=where,
        )
    if found.kind not in ("r", "p"):
        raise DatabaseRefusedError(f"{name} is no table, and has no changes. Name the tables behind it.", where=where)
    if not found.may_select:
        raise DatabaseRefusedError(
            f"the user of the connection may not read {name}. Run: GRANT SELECT ON {statement_name} TO its user.",
            where=where,
        )
    read = []
    for column, declared_type in columns:
        there = _column(found.columns, column)
        if there is None:
            names = ", ".join(each.name for each in found.columns)
            raise DatabaseRefusedError(
                f"{name} has no column {column}. Its columns are {names}. Correct the declaration.", where=where
            )
        if there.is_generated:
            raise DatabaseRefusedError(
                f"column {there.name} of {name} is generated, and changes do not have its values. Remove it from the "
                "declaration, and compute it in a table.",
                where=where,
            )
        kind = found.types.get(there.type_id, DatabaseType("unknown"))
        if value_reader(declared_type, kind) is None:
            raise unfit_type(column, declared_type, kind, where=where)
        number, named_values = there.number, there.named_values
        read.append(PostgresColumn(column, declared_type, there.name, column in key, number, named_values))
    _require_identity(declared, found, [column.found for column in read if column.is_key], where)
    return ReadTable(found.id, name, tuple(read), found.types, most_bytes)


def unfit_type(column: str, declared: str, found: DatabaseType, *, where: str) -> SourceTypeError:
    """The error of a column whose values do not fit its declared type."""
    shown = f"{found.element.name}[]" if found.element is not None else found.name
    return SourceTypeError(
        f"column {column} is declared {declared}, and is {shown} in the database. Declare {accepted_types(found)}.",
        where=where,
    )


def _column(columns: Sequence[DatabaseColumn], name: str) -> DatabaseColumn | None:
    """The column of this name; in another letter case where only one is."""
    exact = [each for each in columns if each.name == name]
    similar = exact or [each for each in columns if each.name.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def _require_identity(declared: Postgres, found: TableFacts, key: Sequence[str], where: str) -> None:
    name, statement_name, wanted = declared.full_name, declared.statement_name, ", ".join(key)
    if found.identity == "n":
        raise ReplicaIdentityError(
            f"{name} has REPLICA IDENTITY NOTHING, so its updates and deletes do not name the row. Run: "
            f"ALTER TABLE {statement_name} REPLICA IDENTITY DEFAULT.",
            where=where,
        )
    if found.identity == "f":
        if not any(set(each) == set(key) for each in found.unique_keys):
            raise ReplicaIdentityError(
                f"PRIMARY KEY ({wanted}) of the source is the key of no unique index of {name}, so it may name several "
                "rows. Declare the key of one, or create one.",
                where=where,
            )
        return
    if set(found.key) != set(key):
        has = f"the key ({', '.join(found.key)})" if found.key else "no key, for want of a PRIMARY KEY"
        raise ReplicaIdentityError(
            f"PRIMARY KEY ({wanted}) of the source is not what names a row in the changes of {name}, which have {has}. "
            f"Declare that key, or run: ALTER TABLE {statement_name} REPLICA IDENTITY FULL, with a unique index of "
            f"({wanted}).",
            where=where,
        )


def require_publication(declared: Postgres, found: PublicationFacts, table: ReadTable, *, where: str) -> None:
    """Raises PublicationError where a publication does not have all that is read."""
    name, full = declared.publication, declared.full_name
    if found.columns is None and found.by_partition:
        raise PublicationError(
            f"publication {name} sends changes of {full} under the names of its partitions. Run: ALTER PUBLICATION "
            f"{name} SET (publish_via_partition_root = true).",
            where=where,
        )
    if found.columns is None:
        raise PublicationError(
            f"publication {name} does not have {full}. Run: ALTER PUBLICATION {name} ADD TABLE "
            f"{declared.statement_name}. Changes of the time without it are missing.",
            where=where,
        )
    if found.missing_kinds:
        raise PublicationError(
            f"publication {name} leaves out: {', '.join(found.missing_kinds)}. Run: ALTER PUBLICATION {name} "
            "SET (publish = 'insert, update, delete, truncate').",
            where=where,
        )
    if found.filtered:
        raise PublicationError(
            f"publication {name} has a condition on rows of {full}, so changes are missing. Remove WHERE from it, and "
            "declare the condition on a table that reads the source.",
            where=where,
        )
    lacks = [column.found for column in table.columns if column.found not in found.columns]
    if lacks:
        raise PublicationError(
            f"publication {name} does not have the columns {', '.join(lacks)} of {full}. Add them to its list.",
            where=where,
        )


def missing_publication(declared: Postgres, why: str, *, where: str) -> PublicationError:
    """The error of a publication that is not there and could not be made."""
    return PublicationError(
        f"there is no publication {declared.publication}{why}. Run: {publication_statement(declared)}.", where=where
    )


def publication_statement(declared: Postgres) -> str:
    """The statement that makes the publication of a source; for a partitioned table the parts count as one."""
    schema, table = (name.replace('"', '""') for name in (declared.schema, declared.table))
    options = "publish_via_partition_root = true"
    return f'CREATE PUBLICATION {declared.publication} FOR TABLE "{schema}"."{table}" WITH ({options})'


def find_step(
    declared: Postgres,
    facts: PostgresServerFacts,
    table: ReadTable,
    position: WalPosition | None,
    *,
    is_begun: bool,
    where: str,
) -> SlotStep:
    """The next step of a source from its position.

    `is_begun` says that it began to make the slot anew behind that position, and that nothing was committed since.

    Raises SlotForeignError, and SlotLostError with what was lost and how to accept that.
    """
    if position is None:
        if facts.slot is not None and not is_begun:
            raise SlotForeignError(
                f"there is a slot {declared.slot} already, and this source did not make it. Name another one. If "
                f"nobody needs it, run: SELECT pg_drop_replication_slot('{declared.slot}').",
                where=where,
            )
        _require_unused(declared, facts, where)
        return SlotStep.BEGIN
    lost = "the table is being read anew, which was not finished." if is_begun else None
    lost = lost or _loss(declared, facts, table, position)
    if lost is not None:
        if declared.accepted_loss != position.loss:
            raise SlotLostError(
                f"{lost} Changes behind {lsn_text(position.lsn)} may be missing, and nothing was read. "
                f"'accept-slot' = '{position.loss}' reads the table anew, with a slot {declared.slot} that is made "
                "anew, and removes rows that are gone.",
                where=where,
            )
        _require_unused(declared, facts, where)
        return SlotStep.BEGIN
    _require_unused(declared, facts, where)
    return SlotStep.CONTINUE


def _require_unused(declared: Postgres, facts: PostgresServerFacts, where: str) -> None:
    if facts.slot is not None and facts.slot.active_pid is not None:
        raise SlotForeignError(
            f"the slot {declared.slot} is in use by process {facts.slot.active_pid} of the server. A slot is for one "
            "source alone: name another one, or end who uses it.",
            where=where,
        )


def _loss(declared: Postgres, facts: PostgresServerFacts, table: ReadTable, position: WalPosition) -> str | None:
    """The reason why the changes behind a position cannot be read, None where they can."""
    slot, name = facts.slot, declared.slot
    if facts.system_id != position.system_id:
        return f"the server is {facts.system_id}, and {position.system_id} was read."
    if facts.database != position.database:
        return f"the database is {facts.database}, and {position.database} was read."
    if facts.timeline != position.timeline:
        return f"the server is on timeline {facts.timeline}, and {position.timeline} was read: a standby took over."
    if table.id != position.table_id:
        return f"{table.name} is the table {table.id}, and {position.table_id} was read: it was made anew."
    changed = position.changed_column(table.columns)
    if changed is not None:
        return f"{changed[0]} of {table.name} {changed[1]}, so rows have other values without a change of them."
    if facts.flushed < position.lsn:
        return f"the server's log ends at {lsn_text(facts.flushed)}, before what was read: it was put back."
    if position.slot != name:
        return f"the slot is {name}, and {position.slot} was read."
    if slot is None:
        return f"the slot {name} is gone."
    if slot.plugin != PLUGIN or slot.database != facts.database:
        return f"the slot {name} is one of {slot.plugin} in database {slot.database}, and not the one that was read."
    if slot.lost_because:
        return f"the slot {name} is no longer valid: {slot.lost_because}."
    if slot.confirmed > position.lsn:
        return (
            f"the slot {name} is at {lsn_text(slot.confirmed)}: somebody else read it, or the log was put back to an "
            "earlier state."
        )
    return None

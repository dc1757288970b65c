"""The rows of a table, read by queries, and what changed in them: net of the rows that the log has.

A read is one transaction of the database, so its rows are as of one moment. It gives the whole table, or the rows from
a value of a growing column on. The rows that are other than the stored ones become events; after a whole reading, rows
that are gone become deletes. All of a read is one commit, so that equal values are never on both sides of a border.

The position has a digest of the rows that the next read gives while nothing changes. A read with this digest ends
without a commit and without Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from freshline.commit.delta_log import exists
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import FILE, RECORD, SEQ
from freshline.compute.literal import collect_for_message
from freshline.errors import DatabaseError, DatabaseRefusedError
from freshline.sources.databases.format import BROKEN
from freshline.sources.databases.netting import KEPT, changed_rows, gone_rows, stored_rows
from freshline.sources.jdbc.connector import Jdbc
from freshline.sources.jdbc.database import Session, Since, SourceDatabase
from freshline.sources.jdbc.facts import (
    FoundTable,
    Growing,
    JdbcServerFacts,
    QueryStep,
    TablePart,
    find_step,
    not_unique,
    require_table,
    went_back,
)
from freshline.sources.jdbc.position import QueryPosition
from freshline.sources.jdbc.rows import ReadRows, RowReader
from freshline.sources.reader import SMALL_ROWS, Group, Host, Inspection, Portion, ReadRequest, Records
from freshline.sources.records import record_schema
from freshline.sources.spill import SpillingReader
from freshline.values.change import CHANGED_AT, INSERT, OP, POSITION, READ, TRANSACTION, UNSENT, UPDATE
from freshline.values.format import PARSED, VALUE
from freshline.values.names import quoted
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# Digests of rows are added up, so that the order in which a database gives them has no part in it.
_DIGEST_BYTES = 16
_DIGESTS = 1 << (8 * _DIGEST_BYTES)
# After so many rows, a read checks whether it was cancelled.
_LOOK_ROWS = 10_000


@dataclass(frozen=True)
class QueryInspection(Inspection):
    """The part of the table that is read, how, and behind which position."""

    step: QueryStep = QueryStep.WHOLE
    asked: TablePart | None = None
    found: FoundTable | None = None
    before: QueryPosition | None = None


@dataclass(frozen=True)
class QueryPortion(Portion):
    """The rows that one transaction reads. `rows` are there once it is prepared, and `step` then says their kind."""

    inspection: QueryInspection | None = None
    step: QueryStep = QueryStep.WHOLE
    rows: ReadRows | None = None


class QueryReader(SpillingReader[QueryInspection, QueryPortion]):
    """Reads a table of a database by queries."""

    reason: ClassVar[str] = "NEW_RECORDS"

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, Jdbc)
        self._declared = spec.connection
        self._opened: tuple[str, SourceDatabase] | None = None

    def _database(self) -> tuple[str, SourceDatabase]:
        """The address and the database that it is of."""
        url = self.secret("url", self._declared.url).removeprefix("jdbc:")
        kind = find_kind(url, where=self.where)
        if self._opened is None or self._opened[0] != kind:
            self.close()
            self._opened = (kind, open_database(kind, self._declared, self.where))
        return url, self._opened[1]

    # -- inspecting

    def inspect(self, position: QueryPosition | None, asked: ReadRequest) -> QueryInspection:
        at = self.host.clock()
        url, database = self._database()
        server, found = database.inspect(url)
        wanted = self._judged(found)
        step = find_step(self._declared, server, wanted, position, at, where=self.where)
        # Nobody knows whether a row is new before it is read.
        return QueryInspection(at, 1, is_new=True, step=step, asked=wanted, found=found, before=position)

    def _judged(self, found: FoundTable | None) -> TablePart:
        columns = [(column.name, column.type) for column in self.spec.record_columns]
        return require_table(self._declared, found, columns, self.spec.primary_key, where=self.where)

    def cut(self, inspection: QueryInspection, position: QueryPosition | None) -> QueryPortion | None:
        if position != inspection.before:
            return None
        progress = f"reading {self._declared.full_name}"
        # The new position is known once the table was read.
        begun = position or QueryPosition("", 0, "", "", "", None, "", 0, 0, "", "")
        return QueryPortion(position, begun, inspection.at, 0, progress, inspection=inspection, step=inspection.step)

    # -- reading

    def prepare(
        self, spark: SparkSession, portion: QueryPortion, previous: Receipt | None, cancellation: Cancellation
    ) -> QueryPortion:
        """Read the portion out of the database. Its `after` is its `before` where nothing of it is new."""
        inspection = portion.inspection
        assert inspection is not None
        assert inspection.asked is not None
        assert inspection.found is not None
        self.host.require_warehouse()
        rows = ReadRows(inspection.asked.columns, self.folder)
        try:
            with self.filling(rows), self._database_session(inspection.found, cancellation) as session:
                if session.table != inspection.found:
                    raise DatabaseError(
                        f"{inspection.found.name} was changed while it was looked at. It is tried again.",
                        where=self.where,
                    )
                return self._read(portion, inspection, session, rows, cancellation)
        except OSError as error:
            raise self.no_room(error) from error

    @contextmanager
    def _database_session(self, found: FoundTable, cancellation: Cancellation) -> Iterator[Session]:
        url, database = self._database()
        with database.reading(url, found, cancellation) as session:
            yield session

    def _read(
        self,
        portion: QueryPortion,
        inspection: QueryInspection,
        session: Session,
        rows: ReadRows,
        cancellation: Cancellation,
    ) -> QueryPortion:
        asked, before, step = inspection.asked, inspection.before, inspection.step
        assert asked is not None
        growing = asked.growing
        since = None
        if step is QueryStep.CHANGED:
            assert before is not None
            since = _since(growing, before.value)
        reading = _Reading(asked, session.server, self.spec.max_record_bytes, rows, cancellation)
        with session.rows(asked, since) as found:
            reading.take(found)
        greatest = reading.greatest
        if step is QueryStep.CHANGED and growing is not None and growing.column is not None:
            assert before is not None
            assert before.value is not None
            if greatest is None and not reading.has_values:
                raise went_back(asked, before, where=self.where)
            known = growing.parse(before.value)
            greatest = known if greatest is None else max(greatest, known)
        if before is not None and step is QueryStep.CHANGED and reading.digest == before.digest:
            # Not more than was known when the position was committed, wherever a new one would be.
            return self._nothing_new(portion, rows)
        after = self._after(inspection, session.server, greatest, rows.count)
        digest = reading.digest
        next_since = _since(growing, after.value)
        if next_since != since:
            # In the same transaction: what the next read gives while nothing changes.
            with session.rows(asked, next_since) as found:
                digest = _digest_of(found, cancellation)
        if before is not None and after.value is None and _is_as_read(before, after, digest):
            return self._nothing_new(portion, rows)
        rows.finish()
        deletes = before.rows if before is not None and step is QueryStep.WHOLE else 0
        return replace(
            portion,
            after=replace(after, digest=digest),
            step=step,
            most_records=rows.count,
            small=not rows.is_spilled and rows.count + deletes <= SMALL_ROWS,
            rows=rows,
        )

    @staticmethod
    def _nothing_new(portion: QueryPortion, rows: ReadRows) -> QueryPortion:
        rows.remove()
        assert portion.before is not None
        return replace(portion, after=portion.before)

    def _after(self, inspection: QueryInspection, server: JdbcServerFacts, greatest: Any, count: int) -> QueryPosition:
        asked, before = inspection.asked, inspection.before
        assert asked is not None
        growing = asked.growing
        value = None
        if growing is not None and growing.column is not None:
            value = None if greatest is None else growing.text(greatest)
        elif growing is not None:
            # A transaction that had not ended has a number from this one on, and so have its parts.
            value = None if server.oldest is None else str(server.oldest)
        is_whole = inspection.step is QueryStep.WHOLE
        reconciled_at = self.host.clock().isoformat() if is_whole else None
        if not is_whole and before is not None:
            reconciled_at = before.reconciled_at
        return QueryPosition(
            system=server.system,
            timeline=server.timeline,
            database=server.database,
            table=asked.table.name,
            table_id=asked.table.id,
            place=server.place,
            read_at=_moment(server.now),
            reads=1 if before is None else before.reads + 1,
            rows=count if is_whole or before is None else before.rows + count,
            asked=asked.digest,
            digest="",
            value=value,
            reconciled_at=reconciled_at if growing is not None else None,
        )

    def read(self, spark: SparkSession, portion: QueryPortion) -> Records:
        rows, inspection, after = portion.rows, portion.inspection, portion.after
        assert rows is not None
        assert inspection is not None
        assert inspection.asked is not None
        assert isinstance(after, QueryPosition)
        schema = StructType(
            [
                StructField(VALUE, StringType()),
                StructField(RECORD, LongType()),
                StructField(PARSED, record_schema(self.spec)),
                StructField(BROKEN, StringType()),
            ]
        )
        found = rows.read(spark, schema)
        if not inspection.asked.is_unique:
            self._require_unique(found, inspection.asked)
        facts = {
            POSITION: F.lit(f"read:{after.read_at}"),
            CHANGED_AT: F.lit(datetime.fromisoformat(after.read_at)).cast("timestamp"),
            TRANSACTION: F.lit(None).cast("string"),
            UNSENT: F.array().cast("array<string>"),
            FILE: F.lit(f"{inspection.asked.table.name}@{after.reads}"),
        }
        if inspection.before is None:
            events = found.withColumn(OP, F.lit(READ))
        else:
            events = self._netted(spark, portion, found, rows.count)
        return Records((Group(events.withColumns(facts)),))

    def _netted(self, spark: SparkSession, portion: QueryPortion, found: DataFrame, count: int) -> DataFrame:
        path = self.host.warehouse.path(self.spec.name)
        log = spark.read.format("delta").load(str(path))
        if portion.step is QueryStep.CHANGED:
            # Only these keys of the stored rows are asked for.
            names = self.spec.primary_key
            keys = found.select(*[F.col(f"{PARSED}.{quoted(key)}").alias(key) for key in names]).distinct()
            log = log.join(F.broadcast(keys) if portion.small else keys, list(names), "left_semi")
        stored = stored_rows(log, self.spec)
        changed = self._without_rejected(spark, changed_rows(found, stored, self.spec, BROKEN))
        op = F.when(F.col(KEPT).isNull(), F.lit(INSERT)).otherwise(F.lit(UPDATE))
        events = changed.withColumn(OP, op).drop(KEPT)
        if portion.step is QueryStep.CHANGED:
            return events
        with_op = found.withColumn(OP, F.lit(READ))
        return events.unionByName(gone_rows(with_op, stored, self.spec, count, {VALUE: F.lit("")}))

    def _without_rejected(self, spark: SparkSession, changed: DataFrame) -> DataFrame:
        """The rows without those that are in quarantine as they are, since their key was stored the last time."""
        path = self.host.warehouse.quarantine(self.spec.name)
        if not exists(path):
            return changed
        rejected = (
            spark.read.format("delta")
            .load(str(path))
            .groupBy(F.col("raw").cast("string").alias("raw"), F.col("error"))
            .agg(F.max(SEQ).alias("at"))
        )
        is_same = (F.col(f"c.{VALUE}") == F.col("q.raw")) & (F.col(f"c.{BROKEN}") == F.col("q.error"))
        is_newer = F.coalesce(F.col("q.at") > F.col(f"c.{KEPT}"), F.lit(True))
        return changed.alias("c").join(rejected.alias("q"), is_same & is_newer, "left_anti")

    def _require_unique(self, found: DataFrame, asked: TablePart) -> None:
        keys: list[Column] = [F.col(f"{PARSED}.{quoted(key)}") for key in self.spec.primary_key]
        is_known = F.col(BROKEN).isNull()
        repeated = found.where(is_known).groupBy(*keys).count().where("count > 1").drop("count").limit(1)
        twice = collect_for_message(repeated)
        if twice:
            raise not_unique(asked, tuple(twice[0]), where=self.where)

    def waiting(self, left: int) -> str:
        return "the table waits to be read"

    def close(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None


class _Reading:
    """Rows as they come: into memory or files, with their digest and the greatest value of the growing column."""

    def __init__(
        self, asked: TablePart, server: JdbcServerFacts, most_bytes: int, rows: ReadRows, cancellation: Cancellation
    ) -> None:
        self.greatest: Any = None
        # Also of rows that a position cannot be at.
        self.has_values = False
        self.digest = ""
        self._asked = asked
        self._server = server
        self._most_bytes = most_bytes
        self._rows = rows
        self._cancellation = cancellation

    def take(self, found: Iterator[tuple[bytes, Any]]) -> None:
        asked, growing, now = self._asked, self._asked.growing, self._server.now
        reader = RowReader(asked.table.name, asked.columns, self._most_bytes)
        has_value = growing is not None and growing.column is not None
        total = 0
        for number, (line, fields) in enumerate(found):
            if number % _LOOK_ROWS == 0:
                self._cancellation.check()
            total += _row_digest(line)
            if has_value and growing is not None and fields[-1] is not None:
                self.has_values = True
                value = growing.value(fields[-1], now)
                if value is not None and (self.greatest is None or value > self.greatest):
                    self.greatest = value
            self._rows.append(reader.read(fields, len(line)), len(line))
        self.digest = _digest_text(total)


def _since(growing: Growing | None, value: str | None) -> Since | None:
    if growing is None or value is None:
        return None
    return Since(value if growing.column is None else growing.low(value))


def _is_as_read(before: QueryPosition, after: QueryPosition, digest: str) -> bool:
    """Whether a whole reading is of the same table, and gave the rows that the one before gave."""
    same = (before.system, before.database, before.table, before.asked, before.value, before.digest)
    return same == (after.system, after.database, after.table, after.asked, after.value, digest)


def _digest_of(found: Iterator[tuple[bytes, Any]], cancellation: Cancellation) -> str:
    total = 0
    for number, (line, _) in enumerate(found):
        if number % _LOOK_ROWS == 0:
            cancellation.check()
        total += _row_digest(line)
    return _digest_text(total)


def _row_digest(line: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(line, digest_size=_DIGEST_BYTES).digest(), "big")


def _digest_text(total: int) -> str:
    return f"{total % _DIGESTS:032x}"


def _moment(now: datetime) -> str:
    """A time of the server, as `accept-database` has it."""
    return now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# -- the kinds of databases


def find_kind(url: str, *, where: str) -> str:
    """The kind of database that an address is of: `postgres` or `mysql`. Raises DatabaseRefusedError."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        return "postgres"
    if separator and scheme in ("mysql", "mariadb"):
        return "mysql"
    raise DatabaseRefusedError(
        "option 'url': it stands for no address that is known. It begins with postgresql://, mysql:// or mariadb://.",
        where=where,
    )


def open_database(kind: str, declared: Jdbc, where: str) -> SourceDatabase:
    """A database of a kind, for one thread. Raises DatabaseRefusedError where its driver is not installed."""
    try:
        return _KINDS[kind](declared, where)
    except ImportError as error:
        driver, extra = _DRIVERS[kind]
        raise DatabaseRefusedError(
            f"{driver} is not installed, by which this database is read. Run: pip install 'freshline[{extra}]'.",
            where=where,
        ) from error


# A driver is there only where its extra is installed.
_DRIVERS = {"postgres": ("psycopg", "postgres"), "mysql": ("PyMySQL", "mysql")}


def _open_postgres(declared: Jdbc, where: str) -> SourceDatabase:
    from freshline.sources.jdbc.postgres import PostgresDatabase

    return PostgresDatabase(declared, where)


def _open_mysql(declared: Jdbc, where: str) -> SourceDatabase:
    from freshline.sources.jdbc.mysql import MysqlDatabase

    return MysqlDatabase(declared, where)


_KINDS: dict[str, Callable[[Jdbc, str], SourceDatabase]] = {"postgres": _open_postgres, "mysql": _open_mysql}

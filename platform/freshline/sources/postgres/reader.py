"""The rows of a table of Postgres and all their changes: what the database has and the log has not.

The first batch is the table as it is at the place where a new slot begins, the next ones are the transactions from
there on. A batch has whole transactions, and its receipt the place behind the last one. The slot is moved there after
the commit: killed before, it gives some transactions again, which are left out by that place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from freshline.commit.notes import read_note, remove_note, write_note
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import FILE, RECORD
from freshline.errors import DatabaseError, DatabaseRefusedError, FreshlineError
from freshline.sources.databases.format import BROKEN
from freshline.sources.databases.netting import changed_rows, gone_rows, stored_rows
from freshline.sources.postgres.connector import COMMIT, Postgres
from freshline.sources.postgres.events import ChangeReader, ReadTable, SnapshotReader, UnfitTypeError
from freshline.sources.postgres.facts import (
    PostgresServerFacts,
    SlotStep,
    find_step,
    missing_publication,
    require_publication,
    require_server,
    require_table,
    unfit_type,
)
from freshline.sources.postgres.position import WalPosition, ordered_lsn
from freshline.sources.postgres.rows import DATABASE, EventRows
from freshline.sources.postgres.wire import WireError
from freshline.sources.reader import SMALL_ROWS, Group, Host, Inspection, Portion, ReadRequest, Records
from freshline.sources.records import before_schema, record_schema, with_removed
from freshline.sources.spill import SpillingReader
from freshline.values.change import BEFORE, CHANGED_AT, OP, POSITION, TRANSACTION, UNSENT
from freshline.values.format import PARSED, VALUE
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# So many messages are one batch, and the rest of the last transaction.
BATCH_MESSAGES = 200_000
# An idle source moves its position past the changes of other tables when there are so many bytes of them, and so much
# time has passed: the database may then remove them.
IDLE_BYTES, IDLE_SECONDS = 16 * 1024 * 1024, 60.0
# So long another process may still read the slot before it counts as in use: a server notices within seconds that an
# engine was killed.
_SETTLE_SECONDS, _LOOK_SECONDS = 15.0, 0.2


@dataclass(frozen=True)
class PostgresInspection(Inspection):
    """The place up to which changes are read, what is read of the table, and how."""

    step: SlotStep = SlotStep.CONTINUE
    end: int = 0
    before: WalPosition | None = None
    position: WalPosition | None = None  # that of a source that begins at the end, with the columns of now
    table: ReadTable | None = None
    type_ids: tuple[int, ...] = ()
    version: int = 0
    is_published: bool = True

    @property
    def records(self) -> int:
        """The number of records that the log had before."""
        return 0 if self.before is None else self.before.records


@dataclass(frozen=True)
class PostgresPortion(Portion):
    """The table as it is, or the transactions up to a place. `rows` are there once it is prepared."""

    inspection: PostgresInspection | None = None
    rows: EventRows | None = None


class PostgresReader(SpillingReader[PostgresInspection, PostgresPortion]):
    """Reads a table of Postgres with all its changes."""

    reason: ClassVar[str] = "NEW_RECORDS"

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        # psycopg is there only where the extra is installed.
        try:
            from freshline.sources.postgres.server import PostgresClient
        except ImportError as error:
            raise DatabaseRefusedError(
                "psycopg is not installed, by which Postgres is read. Run: pip install 'freshline[postgres]'.",
                where=str(spec.written_at),
            ) from error
        super().__init__(spec, host)
        assert isinstance(spec.connection, Postgres)
        self._postgres = spec.connection
        self._server = PostgresClient(spec.connection, self.where)
        # The place up to which nothing of the table was found behind the position, and when the position moved last.
        self._idle_up_to = 0
        self._moved_at: datetime | None = None

    @property
    def _url(self) -> str:
        return self.secret("url", self._postgres.url)

    @property
    def _note(self) -> Path:
        """Says that a slot is being made: one that is there without a batch of the log is then our own."""
        return self.host.warehouse.notes / "slots" / f"{self.spec.name}.json"

    # -- inspecting

    def inspect(self, position: WalPosition | None, asked: ReadRequest) -> PostgresInspection:
        url, at = self._url, self.host.clock()
        server, found, publication = self._server.inspect(url)
        require_server(server, where=self.where)
        columns = [(column.name, column.type) for column in self.spec.record_columns]
        key, most = self.spec.primary_key, self.spec.max_record_bytes
        table = require_table(self._postgres, found, columns, key, most, where=self.where)
        assert found is not None
        if server.slot is not None and server.slot.active_pid is not None:
            server = self._unused(url, asked)
        is_begun = self._is_begun(server, position)
        step = find_step(self._postgres, server, table, position, is_begun=is_begun, where=self.where)
        if publication is not None:
            require_publication(self._postgres, publication, table, where=self.where)
        elif step is SlotStep.CONTINUE:
            raise missing_publication(self._postgres, " any more", where=self.where)
        by_name = {column.name: column.type_id for column in found.columns}
        return self._judged(
            PostgresInspection(
                at,
                0,
                is_new=step is SlotStep.BEGIN,
                retained_bytes=None if server.slot is None else server.slot.retained,
                step=step,
                end=server.flushed,
                before=position,
                position=WalPosition(
                    self._postgres.slot,
                    server.system_id,
                    server.timeline,
                    server.database,
                    self._postgres.full_name,
                    table.id,
                    server.flushed,
                    0 if position is None else position.records,
                    () if position is None else position.columns,
                ).knowing(table.columns),
                table=table,
                type_ids=tuple(by_name[column.found] for column in table.columns),
                version=server.version,
                is_published=publication is not None,
            ),
            url,
            position,
            asked,
            confirmed=0 if server.slot is None else server.slot.confirmed,
        )

    def _judged(
        self,
        inspection: PostgresInspection,
        url: str,
        position: WalPosition | None,
        asked: ReadRequest,
        *,
        confirmed: int,
    ) -> PostgresInspection:
        """The inspection with what is new behind the position."""
        if inspection.step is SlotStep.BEGIN:
            return replace(inspection, left=1)
        assert position is not None
        if confirmed < position.lsn:
            # A process that was killed between commit and release did not do it.
            self._server.advance(url, position.lsn)
        left = inspection.end - position.lsn
        if left <= 0:
            return inspection
        # Where the log of the database is as it was, there is nothing to ask.
        if self._idle_up_to != inspection.end and self._server.has_changes(url, inspection.end, asked.cancellation):
            return replace(inspection, left=left, is_new=True)
        self._idle_up_to = inspection.end
        return replace(inspection, is_new=left >= IDLE_BYTES and self._is_time(inspection.at))

    def _is_time(self, now: datetime) -> bool:
        """Whether the position did not move for so long that an idle source may move it."""
        return self._moved_at is None or (now - self._moved_at).total_seconds() >= IDLE_SECONDS

    def _unused(self, url: str, asked: ReadRequest) -> PostgresServerFacts:
        """The facts of the server when nobody reads the slot; as they are when somebody goes on."""
        waited = 0.0
        while True:
            server, _, _ = self._server.inspect(url)
            if server.slot is None or server.slot.active_pid is None or waited >= _SETTLE_SECONDS:
                return server
            asked.cancellation.wait(_LOOK_SECONDS)
            asked.cancellation.check()
            waited += _LOOK_SECONDS

    def _is_begun(self, server: PostgresServerFacts, position: WalPosition | None) -> bool:
        """Whether an attempt that was not committed began to make the slot."""
        return read_note(self._note) == self._begun(server.system_id, server.database, position)

    def _begun(self, system_id: str, database: str, before: WalPosition | None) -> dict[str, str]:
        behind = "" if before is None else before.loss
        return {"slot": self._postgres.slot, "system_id": system_id, "database": database, "behind": behind}

    # -- cutting

    def cut(self, inspection: PostgresInspection, position: WalPosition | None) -> PostgresPortion | None:
        if not inspection.is_new or inspection.position is None:
            return None
        if inspection.step is SlotStep.BEGIN:
            if position != inspection.before:
                return None
            progress = (
                f"reading {self._postgres.full_name} as it is, when the transactions that are open in the database "
                "have ended"
            )
            return PostgresPortion(position, inspection.position, inspection.at, 0, progress, inspection=inspection)
        if position is None or position.lsn >= inspection.end:
            return None
        after = replace(position, lsn=inspection.end, columns=inspection.position.columns)
        progress = f"reading changes of {self._postgres.full_name}"
        return PostgresPortion(position, after, inspection.at, 0, progress, inspection=inspection)

    # -- reading

    def prepare(
        self, spark: SparkSession, portion: PostgresPortion, previous: Receipt | None, cancellation: Cancellation
    ) -> PostgresPortion:
        """Read the portion out of the database, before it is known where it ends."""
        inspection = portion.inspection
        assert inspection is not None
        assert inspection.table is not None
        begin = portion.after if inspection.step is SlotStep.BEGIN else portion.before
        assert isinstance(begin, WalPosition)
        rows = EventRows(inspection.table.columns, self.folder, begin.records)
        try:
            with self.filling(rows):
                if inspection.step is SlotStep.BEGIN:
                    return self._read_table(portion, inspection, rows, cancellation)
                return self._read_changes(portion, inspection, rows, previous, cancellation)
        except UnfitTypeError as error:
            raise unfit_type(error.column, error.declared, error.found, where=self.where) from error
        except WireError as error:
            raise DatabaseRefusedError(
                f"the changes of slot {self._postgres.slot} are not as expected: {error}.", where=self.where
            ) from error
        except OSError as error:
            raise self.no_room(error) from error

    def _read_table(
        self, portion: PostgresPortion, inspection: PostgresInspection, rows: EventRows, cancellation: Cancellation
    ) -> PostgresPortion:
        url, table, begin = self._url, inspection.table, inspection.position
        assert table is not None
        assert begin is not None
        self.host.require_warehouse()
        # First: a slot that is there from now on is ours.
        write_note(self._note, self._begun(begin.system_id, begin.database, inspection.before))
        if not inspection.is_published:
            # Before the slot: changes are decoded by the publication that was there at their time.
            self._server.provide_publication(url)
        self._server.drop_slot(url)
        stored = self._server.storage(url, table)
        self.host.failpoint("slot-before-made")
        try:
            with self._server.new_slot(url, inspection.version, cancellation) as slot:
                self.host.failpoint("slot-made")
                with self._server.snapshot_lines(url, slot.snapshot, table, stored, cancellation) as (at, lines):
                    reader = SnapshotReader(table, inspection.type_ids, slot.at, at)
                    for line in lines:
                        rows.add(reader.read(line))
        except (FreshlineError, UnfitTypeError, OSError):
            # Nobody reads it now, and it would retain the database's log.
            self._forget_slot(url)
            raise
        rows.finish()
        # A row that is gone has an earlier record, and one more for its delete.
        after = replace(begin, lsn=slot.at, records=begin.records + rows.count + begin.records)
        return self._prepared(portion, inspection, rows, after, portion.at, 0)

    def _forget_slot(self, url: str) -> None:
        """Remove a slot of an attempt that failed, where that can be; else the next attempt does."""
        try:
            self._server.drop_slot(url)
        except DatabaseError:
            return

    def _read_changes(
        self,
        portion: PostgresPortion,
        inspection: PostgresInspection,
        rows: EventRows,
        previous: Receipt | None,
        cancellation: Cancellation,
    ) -> PostgresPortion:
        before = portion.before
        assert isinstance(before, WalPosition)
        assert inspection.table is not None
        reader = ChangeReader(inspection.table, before.lsn)
        count = 0
        with self._server.changes(self._url, inspection.end, BATCH_MESSAGES, cancellation) as messages:
            for lsn, data in messages:
                count += 1
                for event in reader.read(lsn, data):
                    rows.add(event)
        rows.finish()
        if reader.is_inside:
            raise WireError("a transaction began and did not end")
        # Fewer messages than asked for: there is no other commit before the end.
        is_all = count < BATCH_MESSAGES or reader.end >= inspection.end
        end = max(reader.end, inspection.end) if is_all else reader.end
        assert isinstance(portion.after, WalPosition)
        after = replace(portion.after, lsn=end, records=before.records + rows.count)
        at = portion.at if is_all else None if previous is None else previous.data_timestamp
        return self._prepared(portion, inspection, rows, after, at, 0 if is_all else inspection.end - end)

    def _prepared(
        self,
        portion: PostgresPortion,
        inspection: PostgresInspection,
        rows: EventRows,
        after: WalPosition,
        at: datetime | None,
        left: int,
    ) -> PostgresPortion:
        return replace(
            portion,
            after=after,
            at=at,
            left=left,
            most_records=rows.count,
            small=not rows.is_spilled and after.records - inspection.records <= SMALL_ROWS,
            rows=rows,
        )

    def read(self, spark: SparkSession, portion: PostgresPortion) -> Records:
        rows, inspection = portion.rows, portion.inspection
        assert rows is not None
        assert inspection is not None
        found = rows.read(spark, self._schema())
        if inspection.step is SlotStep.BEGIN and inspection.before is not None:
            path = self.host.warehouse.path(self.spec.name)
            stored = stored_rows(spark.read.format("delta").load(str(path)), self.spec)
            after = portion.after
            assert isinstance(after, WalPosition)
            changed = changed_rows(found, stored, self.spec, BROKEN).select(*found.columns)
            place = ordered_lsn(after.lsn)
            made = {
                VALUE: F.lit(""),
                COMMIT: F.lit(place),
                POSITION: F.lit(f"{DATABASE}:{place}"),
                UNSENT: F.array().cast("array<string>"),
            }
            found = changed.unionByName(gone_rows(found, stored, self.spec, inspection.records + rows.count, made))
        found = with_removed(found, self.spec).withColumn(FILE, F.lit(self._postgres.full_name))
        return Records((Group(found),))

    def _schema(self) -> StructType:
        """The schema of EventRows, in Spark's types."""
        return StructType(
            [
                StructField(VALUE, StringType()),
                StructField(RECORD, LongType()),
                StructField(COMMIT, StringType()),
                StructField(PARSED, record_schema(self.spec)),
                StructField(OP, StringType()),
                StructField(POSITION, StringType()),
                StructField(CHANGED_AT, TimestampType()),
                StructField(TRANSACTION, StringType()),
                StructField(UNSENT, ArrayType(StringType())),
                StructField(BROKEN, StringType()),
                StructField(BEFORE, before_schema(self.spec)),
            ]
        )

    def release(self, portion: PostgresPortion, *, seconds: float, rejected: int) -> None:
        after = portion.after
        assert isinstance(after, WalPosition)
        self._moved_at, self._idle_up_to = self.host.clock(), 0
        self.host.failpoint("slot-before-advanced")
        self._server.advance(self._url, after.lsn)
        remove_note(self._note)

    def waiting(self, left: int) -> str:
        return f"{left} bytes of the database's log wait"

    def close(self) -> None:
        self._server.close()

"""The control store: intentions and caches of one environment, in SQLite or in another database by URL.

It holds the epoch, requests, positions that were checked without a commit, and the newest refreshes. What tables
contain is in their own logs; losing this store loses no data and repeats none.

Every method is one transaction of its own and may be called from any thread and process. Stopped half way, it did
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from freshline.declare.names import TableName
from freshline.errors import FormatError, SettingsError, StorageError
from freshline.plan.record import Check, RefreshRecord, RequestRecord

__all__ = ["FORMAT", "Check", "ControlStore"]

FORMAT = 1
KEPT_REFRESHES = 200
KEPT_REQUESTS = 1000
_COUNTED_REFRESHES = 50
# Another process that writes holds the database for milliseconds; this is for a machine that is out of breath.
_BUSY_SECONDS = 20.0

_METADATA = MetaData()
_FORMAT = Table("freshline_format", _METADATA, Column("format", Integer, nullable=False))
_EPOCH = Table("freshline_epoch", _METADATA, Column("epoch", Integer, nullable=False))
# Times are ISO texts in UTC: they sort, and every database keeps them as they are.
_CHECKS = Table(
    "freshline_check",
    _METADATA,
    Column("key", String(300), primary_key=True),
    Column("name", String(300), nullable=False),
    Column("data_timestamp", String(40), nullable=False),
    Column("position", Text, nullable=False),
    Column("checked_at", String(40), nullable=False),
)
_REFRESHES = Table(
    "freshline_refresh",
    _METADATA,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("key", String(300), nullable=False, index=True),
    Column("name", String(300), nullable=False),
    Column("at", String(40), nullable=False),
    Column("state", String(40), nullable=False),
    Column("strategy", String(40)),
    Column("reason", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("version", Integer),
    Column("fingerprint", String(100), nullable=False),
    Column("rows_in", Integer),
    Column("rows_out", Integer),
    Column("rejected", Integer, nullable=False),
    Column("committed", Boolean, nullable=False),
    Column("data_timestamp", String(40)),
    Column("error", Text),
    Column("problems", Text, nullable=False),
)
_REQUESTS = Table(
    "freshline_request",
    _METADATA,
    Column("id", String(100), primary_key=True),
    Column("kind", String(40), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("created_at", String(40), nullable=False),
    Column("state", String(40)),
    Column("error", Text),
    Column("finished_at", String(40)),
)


class ControlStore:
    """The control store of one environment."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str) -> ControlStore:
        """Open the store at a SQLAlchemy URL; its tables are made on first use.

        Raises SettingsError for a URL that cannot be used, FormatError for a store of a newer freshline, and
        StorageError where it cannot be read or written.
        """
        try:
            parsed = make_url(url)
            if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            engine = create_engine(parsed, connect_args=_connect_args(parsed.get_backend_name()))
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise SettingsError(
                f"control-store is not a database URL that can be used here: {_sentence(error)}. "
                "Write sqlite:///PATH, or another SQLAlchemy URL whose driver is installed."
            ) from error
        except OSError as error:
            raise StorageError(
                f"the folder of the control store cannot be made: {error.strerror or error}.", where=str(error.filename)
            ) from error
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        store = cls(engine)
        try:
            store._provide()
        except BaseException:
            engine.dispose()
            raise
        return store

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    # -- epoch

    def take_epoch(self, at_least: int) -> int:
        """A number that no earlier writer had: above every one given out here, and not below `at_least`."""
        with self._write() as connection:
            stored = connection.execute(select(func.max(_EPOCH.c.epoch))).scalar()
            epoch = max(int(stored or 0), at_least - 1) + 1
            connection.execute(delete(_EPOCH))
            connection.execute(insert(_EPOCH).values(epoch=epoch))
        return epoch

    # -- checks

    def record_check(self, name: TableName, data_timestamp: datetime, position: str) -> None:
        """Remember that everything up to `data_timestamp` is at `position` (JSON text)."""
        with self._write() as connection:
            connection.execute(delete(_CHECKS).where(_CHECKS.c.key == _key(name)))
            connection.execute(
                insert(_CHECKS).values(
                    key=_key(name),
                    name=str(name),
                    data_timestamp=_text(data_timestamp),
                    position=position,
                    checked_at=_text(datetime.now(UTC)),
                )
            )

    def checks(self) -> dict[TableName, Check]:
        """The newest check of each table and source."""
        with self._read() as connection:
            rows = connection.execute(select(_CHECKS)).mappings().all()
        return {
            TableName.parse(row["name"]): Check(_time(row["data_timestamp"]), row["position"], _time(row["checked_at"]))
            for row in rows
        }

    # -- refreshes

    def record_refresh(self, record: RefreshRecord) -> None:
        """Remember a refresh; of each table the newest are kept, those that committed apart from those that did not."""
        key = _key(record.table)
        with self._write() as connection:
            connection.execute(
                insert(_REFRESHES).values(
                    key=key,
                    name=str(record.table),
                    at=_text(record.at),
                    state=record.state,
                    strategy=record.strategy,
                    reason=record.reason,
                    seconds=record.seconds,
                    version=record.version,
                    fingerprint=record.fingerprint,
                    rows_in=record.rows_in,
                    rows_out=record.rows_out,
                    rejected=record.rejected,
                    committed=record.committed,
                    data_timestamp=None if record.data_timestamp is None else _text(record.data_timestamp),
                    error=None if record.error is None else json.dumps(dict(record.error)),
                    problems=json.dumps(list(record.problems)),
                )
            )
            # Looks that found nothing come every second; they must not push out the few refreshes that wrote.
            alike = (_REFRESHES.c.key == key) & (_REFRESHES.c.committed == record.committed)
            oldest = (
                select(_REFRESHES.c.id).where(alike).order_by(_REFRESHES.c.id.desc()).offset(KEPT_REFRESHES).limit(1)
            )
            found = connection.execute(oldest).scalar()
            if found is not None:
                connection.execute(delete(_REFRESHES).where(alike & (_REFRESHES.c.id <= found)))

    def last_refreshes(self) -> dict[TableName, RefreshRecord]:
        """The newest refresh of each table, committed or not."""
        newest = select(func.max(_REFRESHES.c.id)).group_by(_REFRESHES.c.key)
        with self._read() as connection:
            rows = connection.execute(select(_REFRESHES).where(_REFRESHES.c.id.in_(newest))).mappings().all()
        return {record.table: record for record in map(_record, rows)}

    def refreshes(self, name: TableName | None = None, limit: int = 100) -> list[RefreshRecord]:
        """The newest refreshes, of one table or of all, the newest first."""
        statement = select(_REFRESHES).order_by(_REFRESHES.c.id.desc()).limit(limit)
        if name is not None:
            statement = statement.where(_REFRESHES.c.key == _key(name))
        with self._read() as connection:
            return [_record(row) for row in connection.execute(statement).mappings()]

    def seconds_of(self, name: TableName) -> float | None:
        """What a refresh that commits takes: the 95th percentile of the newest; None where there was none yet."""
        statement = (
            select(_REFRESHES.c.seconds)
            .where((_REFRESHES.c.key == _key(name)) & _REFRESHES.c.committed)
            .order_by(_REFRESHES.c.id.desc())
            .limit(_COUNTED_REFRESHES)
        )
        with self._read() as connection:
            return _percentile_95([float(row[0]) for row in connection.execute(statement)])

    # -- requests

    def create_request(self, request_id: str, kind: str, arguments: str, now: datetime) -> None:
        """Remember a request before anything is done for it."""
        with self._write() as connection:
            connection.execute(
                insert(_REQUESTS).values(
                    id=request_id, kind=kind, arguments=arguments, created_at=_text(now), state=None
                )
            )

    def finish_request(self, request_id: str, state: str, error: str | None, now: datetime) -> None:
        """Remember how a request ended; a second end of the same request changes nothing."""
        with self._write() as connection:
            connection.execute(
                update(_REQUESTS)
                .where((_REQUESTS.c.id == request_id) & _REQUESTS.c.state.is_(None))
                .values(state=state, error=error, finished_at=_text(now))
            )
            oldest = (
                select(_REQUESTS.c.finished_at)
                .where(_REQUESTS.c.state.is_not(None))
                .order_by(_REQUESTS.c.finished_at.desc())
                .offset(KEPT_REQUESTS)
                .limit(1)
            )
            found = connection.execute(oldest).scalar()
            if found is not None:
                connection.execute(delete(_REQUESTS).where(_REQUESTS.c.finished_at <= found))

    def open_requests(self) -> list[RequestRecord]:
        """Requests that have not ended, the oldest first. After a crash they are those of the engine that died."""
        statement = select(_REQUESTS).where(_REQUESTS.c.state.is_(None)).order_by(_REQUESTS.c.created_at)
        with self._read() as connection:
            return [
                RequestRecord(row["id"], row["kind"], row["arguments"], _time(row["created_at"]))
                for row in connection.execute(statement).mappings()
            ]

    # -- the database

    def _provide(self) -> None:
        with self._translated():
            # Looked at first: a store that is there is opened without writing, also from a disk that is read-only.
            there = set(inspect(self._engine).get_table_names())
        if not {table.name for table in _METADATA.sorted_tables} <= there:
            with self._write() as connection:
                _METADATA.create_all(connection)
                if connection.execute(select(_FORMAT)).first() is None:
                    connection.execute(insert(_FORMAT).values(format=FORMAT))
        with self._read() as connection:
            found = connection.execute(select(func.max(_FORMAT.c.format))).scalar()
        if found is not None and int(found) > FORMAT:
            raise FormatError(
                f"the control store has format {found}, this freshline reads up to {FORMAT}. "
                "Use the freshline that wrote it, or a newer one.",
                where=self._place,
            )

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._translated(), self._engine.connect() as connection:
            # SQLite: take the write lock at once and wait for it, instead of failing in the middle.
            connection = connection.execution_options(freshline_write=True)
            with connection.begin():
                yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StorageError(f"the control store {_what_happened(str(error.orig))}", where=self._place) from error
        except SQLAlchemyError as error:
            raise StorageError(f"the control store cannot be used: {_sentence(error)}.", where=self._place) from error

    @property
    def _place(self) -> str:
        return self._engine.url.database or self._engine.url.render_as_string(hide_password=True)


def _connect_args(backend: str) -> dict[str, Any]:
    # The driver begins transactions by itself otherwise, and then not where they should begin.
    return {"timeout": _BUSY_SECONDS, "isolation_level": None} if backend == "sqlite" else {}


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            # Readers and the writer do not wait for each other.
            cursor.execute("PRAGMA journal_mode = WAL")
        # A power cut may lose the last moments, never the database; what is lost is found again by looking.
        cursor.execute("PRAGMA synchronous = NORMAL")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("freshline_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _what_happened(said: str) -> str:
    lowered = said.lower()
    if "readonly" in lowered or "read-only" in lowered:
        return "cannot be written: it is read-only. Make the file and its folder writable for this user."
    if "locked" in lowered:
        return "is locked by another process that does not let go. End that process and try again."
    if "full" in lowered:
        return "cannot be written: the disk is full. Free some space and try again."
    if "unable to open" in lowered:
        return "cannot be opened. Make its folder readable and writable for this user."
    if "not a database" in lowered or "malformed" in lowered:
        return (
            "is not a database any more. Move the file away: a new one is made, and nothing is lost that tables do "
            "not know themselves."
        )
    return f"does not answer: {said}."


def _sentence(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _key(name: TableName) -> str:
    return str(name).lower()


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _record(row: Any) -> RefreshRecord:
    return RefreshRecord(
        table=TableName.parse(row["name"]),
        at=_time(row["at"]),
        state=row["state"],
        strategy=row["strategy"],
        reason=row["reason"],
        seconds=float(row["seconds"]),
        version=row["version"],
        fingerprint=row["fingerprint"],
        rows_in=row["rows_in"],
        rows_out=row["rows_out"],
        rejected=row["rejected"],
        committed=bool(row["committed"]),
        data_timestamp=None if row["data_timestamp"] is None else _time(row["data_timestamp"]),
        error=None if row["error"] is None else json.loads(row["error"]),
        problems=tuple(json.loads(row["problems"])),
    )


def _percentile_95(seconds: Sequence[float]) -> float | None:
    """The least value that 95 of 100 do not exceed.

    >>> _percentile_95([1.0, 3.0, 2.0]), _percentile_95([])
    (3.0, None)
    """
    if not seconds:
        return None
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, -(-95 * len(ordered) // 100) - 1)]

"""The database under the control store: opening it, its format, transactions, and what went wrong in words."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, Table, create_engine, delete, event, func, insert, inspect, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from freshline.commit.control_reading import BUSY_SECONDS, Answer, file_of, what_happened
from freshline.commit.control_rows import FORMAT
from freshline.commit.control_store.schema import FORMATS, GENERATIONS, IDENTITIES, METADATA
from freshline.errors import FormatError, SettingsError, StorageError

_LOOK_SECONDS = 0.02
# The permissions that the file of a store lacks: all of the group and of others.
PRIVATE = 0o077
# Names the lock of Postgres that writers take; any number that no other program uses in this database.
_WRITERS = 7_230_471_190


class Database:
    """A database of the present format. Each `read` and `write` is one transaction.

    Where the database was taken away, or emptied, while it is open, the next transaction finds what stands in its
    place, or makes it: whoever went on with a deleted file would write what nobody reads.
    """

    def __init__(self, engine: Engine, umask: int) -> None:
        self._engine = engine
        self._umask = umask
        self._lock = threading.Lock()
        self._file: tuple[int, int] | None = None
        self._doubtful = False

    @classmethod
    def open(cls, url: str, umask: int = PRIVATE) -> Database:
        """Open it; its tables are made where there are none. Raises as ControlStore.open does."""
        try:
            parsed = _url_of(url)
            engine = create_engine(parsed, connect_args=_connect_args(parsed))
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
            # A ValueError is about a port that is no number, and quotes its text: a part of the password,
            # where that has an @ or a colon.
            why = "its port is no number" if isinstance(error, ValueError) else _sentence(error)
            raise SettingsError(
                f"control-store is not a database URL that can be used here: {why}. "
                "Write sqlite:///PATH, or another SQLAlchemy URL whose driver is installed."
            ) from error
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        elif engine.dialect.name == "postgresql":
            event.listen(engine, "connect", _prepare_postgres)
        database = cls(engine, umask)
        try:
            database._provide()
        except BaseException:
            engine.dispose()
            raise
        database._file = database._found_file()
        return database

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        self._follow()
        with self._reading() as connection:
            yield connection

    @contextmanager
    def answering(self) -> Iterator[Answer]:
        """The same for statements that are texts."""
        with self.read() as connection:
            yield lambda statement, values=None: connection.execute(text(statement), values)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes all, or nothing when the block raises."""
        self._follow()
        with self._writing() as connection:
            yield connection

    def _follow(self) -> None:
        """Open what stands in the place of a database that was taken away or emptied."""
        if not self._doubtful and self._found_file() == self._file:
            return
        with self._lock:
            found = self._found_file()
            if self._doubtful or found != self._file:
                # Connections in use go on to their end, on what they had opened.
                self._engine.dispose()
                self._provide()
                self._file, self._doubtful = self._found_file(), False

    def _found_file(self) -> tuple[int, int] | None:
        """The numbers that identify SQLite's file among others of its name; None without one and for other databases.

        A file that is open keeps its number, so a new one cannot have the same.
        """
        name = self._engine.url.database
        if self._engine.dialect.name != "sqlite" or not name or name == ":memory:":
            return None
        try:
            found = Path(name).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._translated(), self._engine.connect() as connection:
            # SQLite: take the write lock at once and wait for it, instead of failing in the middle.
            connection = connection.execution_options(freshline_write=True)
            with connection.begin():
                if self._engine.dialect.name == "postgresql":
                    # The same there, for what is read and then written: writers take their turn.
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")
                yield connection

    def _provide(self) -> None:
        self._provide_file()
        with self._translated():
            # Inspected first: a store that is there is opened without writing, also from a disk that is read-only.
            there = set(inspect(self._engine).get_table_names())
        found = self._format(there)
        if found > FORMAT:
            raise FormatError(
                f"the control store has format {found}, this freshline reads up to {FORMAT}. "
                "Use the freshline that wrote it, or a newer one.",
                where=self._place,
            )
        if 0 < found < FORMAT:
            raise FormatError(
                f"the control store has format {found}, this freshline reads {FORMAT}. Move it away, and run freshline "
                "doctor --rebuild, which fills a new one from the tables' own logs.",
                where=self._place,
            )
        missing = sorted(METADATA.tables.keys() - there)
        if 0 < len(missing) < len(METADATA.tables):
            raise FormatError(
                f"the control store should have format {FORMAT}, and {', '.join(missing)} is missing. Someone changed "
                "it by hand: move it away, and a new one is made from what the tables know themselves.",
                where=self._place,
            )
        if missing:
            with self._writing() as connection:
                # Several processes may find no store at once; the first makes it.
                if FORMATS.name not in inspect(connection).get_table_names():
                    METADATA.create_all(connection)
                    connection.execute(insert(IDENTITIES).values(id=uuid4().hex))
                    connection.execute(insert(GENERATIONS).values(generation=0))
                    connection.execute(insert(FORMATS).values(format=FORMAT))

    def _provide_file(self) -> None:
        """Make the file of SQLite where there is none, with its permissions; SQLite gives its own the same."""
        name = self._engine.url.database
        if self._engine.dialect.name != "sqlite" or not name or name == ":memory:" or name.startswith("file:"):
            return
        try:
            if Path(name).exists():
                return
            Path(name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the folder of the control store cannot be made: {error.strerror or error}.", where=str(error.filename)
            ) from error
        try:
            # By a descriptor and not by the mask of the process: other threads make files too.
            descriptor = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(descriptor, 0o666 & ~self._umask)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(
                f"the control store cannot be made: {error.strerror or error}.", where=str(error.filename or name)
            ) from error

    def _format(self, there: set[str]) -> int:
        if FORMATS.name not in there:
            return 0
        with self._reading() as connection:
            return int(connection.execute(select(func.max(FORMATS.c.format))).scalar() or 0)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            # Also where tables are gone: then the next transaction makes them anew.
            self._doubtful = True
            raise StorageError(f"the control store {what_happened(str(error.orig))}", where=self._place) from error
        except SQLAlchemyError as error:
            raise StorageError(f"the control store cannot be used: {_sentence(error)}.", where=self._place) from error

    @property
    def _place(self) -> str:
        # Without its query: a driver takes a password there too.
        url = self._engine.url.set(query={})
        return url.database or url.render_as_string(hide_password=True)


def _url_of(text: str) -> URL:
    """The URL; a path of SQLite is taken as it is written, as `has_control_store` takes it."""
    file = file_of(text)
    return make_url(text) if file is None else URL.create("sqlite", database=file or None)


def _connect_args(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        # The driver begins transactions by itself otherwise, and then not where they should begin.
        return {"timeout": BUSY_SECONDS, "isolation_level": None}
    if url.get_backend_name() != "postgresql" or url.get_driver_name() not in ("psycopg", "psycopg2"):
        return {}
    # By default nothing of it has an end, and a server that is cut off would block engine and watch for ever.
    wanted = {
        "connect_timeout": round(BUSY_SECONDS),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": round(BUSY_SECONDS * 1000),
    }
    return {name: value for name, value in wanted.items() if name not in url.query}


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        _keep_log_beside(cursor)
        # A power cut may lose the last moments, never the database; the next checks find again what is lost.
        cursor.execute("PRAGMA synchronous = NORMAL")
    finally:
        cursor.close()


def _keep_log_beside(cursor: Any) -> None:
    """Let readers and the writer not wait for each other: SQLite's mode WAL, which the file keeps.

    Where several processes change the mode of a new file, SQLite fails those at once that would wait for each other,
    whatever its busy_timeout is. They try again until the first one has changed it.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_SECONDS)


def _prepare_postgres(connection: Any, _record: Any) -> None:
    milliseconds = round(BUSY_SECONDS * 1000)
    cursor = connection.cursor()
    try:
        cursor.execute(f"SET lock_timeout = {milliseconds}")
        cursor.execute(f"SET statement_timeout = {2 * milliseconds}")
        # Of a process that was stopped in the middle of a transaction, with the lock of the writers.
        cursor.execute(f"SET idle_in_transaction_session_timeout = {3 * milliseconds}")
    finally:
        cursor.close()
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("freshline_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def put(connection: Connection, table: Table, **values: Any) -> None:
    """Write a row in the place of the one with its key."""
    (key,) = table.primary_key.columns
    connection.execute(delete(table).where(key == values[key.name]))
    connection.execute(insert(table).values(**values))


def _sentence(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(".") if str(error) else type(error).__name__

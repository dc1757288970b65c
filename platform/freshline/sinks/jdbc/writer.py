"""The writer of a database, by the beginning of its address."""

from __future__ import annotations

from freshline.errors import SinkRefusedError
from freshline.sinks.jdbc.sink import JdbcSink
from freshline.sinks.writer import SinkHost, SinkWriter
from freshline.values.secret import resolve_reference
from freshline.values.spec import TableSpec

# The extras that have the drivers.
_EXTRAS = {"psycopg": "postgres", "pymysql": "mysql"}


def open_writer(spec: TableSpec, host: SinkHost) -> SinkWriter:
    """The writer. Raises SinkRefusedError for an address of no known database."""
    assert isinstance(spec.sink, JdbcSink)
    import os

    try:
        url = resolve_reference(spec.sink.url, host.root, os.environ)
    except ValueError as error:
        raise SinkRefusedError(f"option 'url': {error}", where=str(spec.name)) from error
    scheme, separator, _ = url.partition("://")
    try:
        # Each driver is an extra, loaded where it is needed.
        if separator and scheme in ("postgresql", "postgres"):
            from freshline.sinks.jdbc.postgres import PostgresWriter

            return PostgresWriter(spec, host)
        if separator and scheme in ("mysql", "mariadb"):
            from freshline.sinks.jdbc.mysql import MysqlWriter

            return MysqlWriter(spec, host)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        raise SinkRefusedError(
            f"{error.name} is not installed, by which the database is written. Run: pip install "
            f"'freshline[{_EXTRAS[error.name]}]'.",
            where=str(spec.name),
        ) from error
    raise SinkRefusedError(
        "option 'url': it stands for no address that is known. It begins with postgresql://, mysql:// or mariadb://.",
        where=str(spec.name),
    )

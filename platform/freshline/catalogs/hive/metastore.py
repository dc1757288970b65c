"""A metastore that is open: its entries, and how one is created, changed, renamed or dropped.

Other properties of an entry, its owner and what others said of it stay when it changes. Entries that do not have our
property are read and never written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from freshline.catalogs.hive.registrar import HANDLER, PROVIDER, Hive, HiveContent, addresses_in
from freshline.errors import CatalogError
from freshline.values.registrar import (
    TABLE_PROPERTY,
    WAREHOUSE_PROPERTY,
    Catalog,
    CatalogEntry,
    CatalogHost,
    FoundEntry,
)

try:
    from thrift.Thrift import TApplicationException, TException
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TSSLSocket import TSSLSocket
    from thrift.transport.TTransport import TBufferedTransport
except ModuleNotFoundError as error:
    raise CatalogError(
        "thrift is not installed, by which a metastore is asked. Run: pip install 'freshline[hive]'.", refused=True
    ) from error

from freshline.catalogs.hive.thrift_calls import (
    Calls,
    Database,
    FieldSchema,
    RefusedError,
    SerDeInfo,
    StorageDescriptor,
    Table,
)

EXTERNAL = "EXTERNAL_TABLE"
# As Spark writes them for tables whose rows Hive does not read, and as Delta's handler for Hive asks for.
_PLAIN = (
    "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
)
_OF_HANDLER = (
    "io.delta.hive.DeltaInputFormat",
    "io.delta.hive.DeltaOutputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
)
_HANDLER_CLASS = "io.delta.hive.DeltaStorageHandler"
_AT_ONCE = 100
# The places of exceptions among those that a call declares: of alter_table, of what is made, and of drop_table.
_INVALID_OPERATION = _EXISTS = _NOT_THERE = 1


class Metastore(Catalog):
    """The entries of a metastore."""

    def __init__(self, registrar: Hive, calls: Calls) -> None:
        self._registrar = registrar
        self._calls = calls
        self._databases: set[str] = set()

    def find(self, warehouse_id: str, places: Collection[str]) -> Iterator[FoundEntry]:
        with _answering():
            wanted: dict[str, set[str]] = {}
            for place in places:
                database, _, name = place.partition(".")
                wanted.setdefault(database, set()).add(name)
            self._databases = set(self._calls.databases())
            for database in sorted(self._databases):
                names = {*wanted.get(database, ()), *self._of_warehouse(database, warehouse_id)}
                ordered = sorted(names)
                for begin in range(0, len(ordered), _AT_ONCE):
                    for table in self._calls.tables(database, ordered[begin : begin + _AT_ONCE]):
                        yield _found(table)

    def _of_warehouse(self, database: str, warehouse_id: str) -> list[str]:
        """The names of the tables that have the property of our warehouse."""
        try:
            return self._calls.names_by(
                database, f'hive_filter_field_params__{WAREHOUSE_PROPERTY} like "{warehouse_id}"'
            )
        except RefusedError:
            # Some databases behind a metastore cannot compare long texts: then every table is read.
            return self._calls.names(database)

    def write(self, entry: CatalogEntry, found: FoundEntry | None) -> None:
        database, _, name = self._registrar.place(entry.name).partition(".")
        content = self._registrar.content(entry)
        with _answering():
            if database not in self._databases:
                self._make_database(database, entry.warehouse_id)
            table = _table(database, name, entry, content, None if found is None else found.memory)
            if found is None:
                self._create(table)
                return
            old_database, _, old_name = found.place.partition(".")
            if old_database != database:
                # Not every metastore moves a table to another database.
                self._create(table)
                self._drop(old_database, old_name)
                return
            self._alter(old_database, old_name, table)

    def _make_database(self, name: str, warehouse_id: str) -> None:
        made = Database(name=name, description="tables of freshline", parameters={WAREHOUSE_PROPERTY: warehouse_id})
        try:
            self._calls.create_database(made)
        except RefusedError as error:
            if error.kind != _EXISTS:
                raise
        self._databases.add(name)

    def _create(self, table: Any) -> None:
        try:
            self._calls.create_table(table)
        except RefusedError as error:
            if error.kind != _EXISTS:
                raise
            # It may be ours, of another sync: the next comparison shows it.
            raise CatalogError(f"somebody entered {table.database}.{table.name} in the same moment.") from error

    def _drop(self, database: str, name: str) -> None:
        try:
            self._calls.drop_table(database, name)
        except RefusedError as error:
            if error.kind != _NOT_THERE:
                raise

    def _alter(self, database: str, name: str, table: Any) -> None:
        try:
            self._calls.alter_table(database, name, table)
        except RefusedError as error:
            if error.kind != _INVALID_OPERATION or not table.storage.columns:
                raise
            # By default a metastore lets no column have another type. Columns that were not there before may have any.
            columns, table.storage.columns = table.storage.columns, []
            self._calls.alter_table(database, name, table)
            table.storage.columns = columns
            self._calls.alter_table(database, table.name, table)

    def drop(self, found: FoundEntry) -> None:
        database, _, name = found.place.partition(".")
        with _answering():
            self._drop(database, name)


def _found(table: Any) -> FoundEntry:
    parameters: Mapping[str, str] = table.parameters or {}
    storage = table.storage
    serde = storage.serde.parameters or {} if storage is not None and storage.serde is not None else {}
    location = _plain(serde.get("path", ""))
    columns = (storage.columns or ()) if storage is not None else ()
    is_external = table.type == EXTERNAL and parameters.get("EXTERNAL", "").upper() == "TRUE"
    if storage is None or _plain(storage.location or "") != location:
        location = ""
    content = HiveContent(
        location,
        tuple((column.name, column.type, column.comment or "") for column in columns),
        parameters.get("comment", ""),
        parameters.get(HANDLER) == _HANDLER_CLASS,
        is_external,
        parameters.get(PROVIDER, "").lower(),
    )
    place = f"{table.database}.{table.name}".lower()
    return FoundEntry(place, content, parameters.get(WAREHOUSE_PROPERTY), parameters.get(TABLE_PROPERTY), table)


def _plain(location: str) -> str:
    """A location as we write it: some metastores give it back with three slashes."""
    return re.sub(r"\Afile:/+", "file:/", location)


def _table(database: str, name: str, entry: CatalogEntry, content: HiveContent, before: Any) -> Any:
    """The table of an entry; `before` is the one that it takes the place of, whose other properties stay."""
    parameters = {} if before is None else dict(before.parameters or {})
    parameters.update(
        {
            "EXTERNAL": "TRUE",
            PROVIDER: content.provider,
            WAREHOUSE_PROPERTY: entry.warehouse_id,
            TABLE_PROPERTY: entry.table_id,
        }
    )
    _put(parameters, "comment", content.comment)
    _put(parameters, HANDLER, _HANDLER_CLASS if content.handler else "")
    inputs, outputs, serde = _OF_HANDLER if content.handler else _PLAIN
    return Table(
        name=name,
        database=database,
        owner="freshline" if before is None else before.owner,
        created=0 if before is None else before.created,
        accessed=0,
        retention=0,
        storage=StorageDescriptor(
            columns=[FieldSchema(name=column, type=kind, comment=text) for column, kind, text in content.columns],
            location=content.location,
            input_format=inputs,
            output_format=outputs,
            compressed=False,
            buckets=-1,
            serde=SerDeInfo(
                name=name, library=serde, parameters={"path": content.location, "serialization.format": "1"}
            ),
            bucket_columns=[],
            sort_columns=[],
            parameters={},
        ),
        partition_keys=[],
        parameters=parameters,
        type=EXTERNAL,
    )


def _put(parameters: dict[str, str], name: str, value: str) -> None:
    if value:
        parameters[name] = value
    else:
        parameters.pop(name, None)


@contextmanager
def open_metastore(registrar: Hive, host: CatalogHost) -> Iterator[Metastore]:
    """The metastore at the first address that answers. Raises CatalogError where none does."""
    failures = []
    for address in addresses_in(host.resolve(registrar.uri)):
        transport = _transport(registrar, host, address)
        try:
            transport.open()
        except (TException, OSError) as error:
            # The address behind a reference is not shown.
            shown = registrar.uri if registrar.uri.startswith("${") else address
            failures.append(f"{shown}: {_cause(error)}")
            continue
        try:
            yield Metastore(registrar, Calls(transport))
        finally:
            transport.close()
        return
    raise CatalogError(f"the metastore cannot be reached: {'; '.join(failures)}. It is tried again.")


def _transport(registrar: Hive, host: CatalogHost, address: str) -> Any:
    parts = urlsplit(address)
    try:
        server, port = parts.hostname, parts.port
    except ValueError:
        server = port = None
    if parts.scheme != "thrift" or not server or not port or parts.username is not None:
        raise CatalogError("an address of the metastore is not of the form thrift://host:port.", refused=True)
    if registrar.tls:
        from ssl import create_default_context

        authorities = None if registrar.tls_ca is None else host.path(registrar.tls_ca)
        try:
            context = create_default_context(cafile=authorities)
        except (OSError, ValueError) as error:
            raise CatalogError(f"tls-ca {registrar.tls_ca} cannot be read: {error}", refused=True) from error
        socket = TSSLSocket(server, port, ssl_context=context, server_hostname=server)
    else:
        socket = TSocket(server, port)
    socket.setTimeout(registrar.patience * 1000)
    return TBufferedTransport(socket)


@contextmanager
def _answering() -> Iterator[None]:
    """Turn what thrift raises into CatalogError."""
    try:
        yield
    except RefusedError as error:
        raise CatalogError(f"the metastore refuses {error}", refused=True) from error
    except TApplicationException as error:
        raise CatalogError(
            f"the metastore cannot answer: {error.message}. Hive 2.3 or newer is needed.", refused=True
        ) from error
    except (TException, OSError, EOFError, UnicodeDecodeError) as error:
        raise CatalogError(f"the metastore does not answer: {_reason(error)}. It is tried again.") from error


def _cause(error: BaseException) -> str:
    """The reason why there is no connection, without the address, which thrift's own sentence has."""
    inner = getattr(error, "inner", None) or error
    return getattr(inner, "strerror", None) or (
        "it took too long" if isinstance(inner, TimeoutError) else "no connection"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(getattr(error, "message", None) or error).strip().rstrip(".") or type(error).__name__

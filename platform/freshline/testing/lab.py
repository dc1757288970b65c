"""A Lab: declared tables in a temporary warehouse, refreshed by the same code that the engine runs.

It is a project in a temporary folder, with a control store and an epoch of its own, on the Spark session of the
process. Nothing of it stays behind when it is closed, and nothing of it is seen by another Lab.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from pyspark.sql import SparkSession

from freshline.commit.columns import input_columns, input_types
from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import newest_version, open_table, position_of, read_newest
from freshline.commit.event_time import watermark_of
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned, drop_views, read_whole, shadow_inputs
from freshline.compute.literal import sql_literal
from freshline.engine.connector_jars import provide_connector_jars
from freshline.errors import FreshlineError, RequestError
from freshline.freshness.due import due_tables, with_driving
from freshline.freshness.exclusion import excluded_tables, intended_exclusions
from freshline.freshness.intentions import apply_overrides
from freshline.plan.explain import Explanation, declared_types, explain_table, with_event_time
from freshline.plan.project import open_project
from freshline.plan.request import RefreshRequest
from freshline.plan.savepoint import Savepoint
from freshline.plan.union import UnionToken
from freshline.reads.sql import resolve_names
from freshline.reads.union import read_union
from freshline.report.status import TableStatus, read_status
from freshline.run import (
    Restored,
    Runtime,
    Verification,
    create_savepoint,
    open_runtime,
    refresh_order,
    refresh_table,
    restore_savepoint,
    verify_table,
)
from freshline.sources.files.connector import Files
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.testing.clock import LabClock
from freshline.testing.crash import Crash
from freshline.testing.session import lab_settings, shared_session
from freshline.values.names import TableName, late_name, quoted
from freshline.values.partition import partition_texts
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult

Row = dict[str, Any]
Partition = Mapping[str, object]
# The first words of statements that return rows; of others the rows are Delta's own counts.
ASKS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "SHOW", "DESCRIBE", "DESC", "EXPLAIN"})


class Lab:
    """A temporary warehouse with declared sources and tables; a context manager.

    `spark` is the session to work on; without it the one of the process is taken, or one is started that ends with the
    process. `start` is the first time that the clock shows (default: the present). `clock` is moved with
    `lab.clock.advance(minutes=5)`; `runtime` is what the functions of `freshline.run` are called with.
    """

    def __init__(self, spark: SparkSession | None = None, *, start: datetime | None = None) -> None:
        self.clock = LabClock(start)
        self._root = shared_session() if spark is None else spark
        self._folder = Path(tempfile.mkdtemp(prefix="freshline-lab-"))
        self.settings = lab_settings(self._folder)
        self.settings.declarations.mkdir(parents=True)
        (self._folder / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
        # Statements on sources run in a session and a database of this Lab, where their names are real tables.
        self._spark = self._root.newSession()
        self._database: str | None = None
        self._failpoint: Callable[[str], None] = lambda name: None
        self._landed = 0
        self.runtime = self._open()

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything: tables, files, views, the control store. The Spark session stays."""
        self.runtime.close_readers()
        self.runtime.control.close()
        if self._database is not None:
            self._spark.sql("USE default")
            self._spark.sql(f"DROP DATABASE IF EXISTS {self._database} CASCADE")
        shutil.rmtree(self._folder, ignore_errors=True)

    def restart(self, *, lose_control_store: bool = False) -> None:
        """Go on as another engine would: a new epoch, nothing in memory, without the control store if so asked."""
        self.runtime.close_readers()
        self.runtime.control.close()
        if lose_control_store:
            for file in self.settings.state.glob("control.db*"):
                file.unlink()
        self.runtime = self._open()

    @contextmanager
    def crash_at(self, point: str) -> Iterator[None]:
        """Stop refreshes at a failpoint: one that comes to it ends with `Crash`, which is raised to the caller."""

        def stop(name: str) -> None:
            if name == point:
                raise Crash(point)

        self._failpoint = stop
        try:
            yield
        finally:
            self._failpoint = lambda name: None

    def _use_database(self) -> None:
        """Give the session of statements its database, once: many Labs have no statement."""
        if self._database is None:
            self._database = f"freshline_lab_{uuid4().hex}"
            self._spark.sql(f"CREATE DATABASE {self._database} LOCATION {sql_literal(str(self._folder / 'none'))}")
            self._spark.sql(f"USE {self._database}")

    def _open(self) -> Runtime:
        graph = open_project(self.settings)
        control = ControlStore.open(self.settings.control_store)
        return open_runtime(
            self.settings,
            graph,
            self._root,
            control,
            clock=self.clock,
            failpoint=lambda name: self._failpoint(name),
            provide_jars=lambda name: provide_connector_jars(name, self.settings, self._root),
        )

    # -- declarations

    def declare(self, sql: str) -> TableName:
        """Declare a source or table, or declare it anew; returns its name. Raises DeclarationErrors."""
        clauses = read_statement(Text(sql, "assets/declared.sql"))
        file = self.settings.declarations.joinpath(*clauses.name.parts).with_suffix(".sql")
        before = file.read_bytes() if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(sql, encoding="utf-8")
        try:
            self.runtime.graph = open_project(self.settings)
        except FreshlineError:
            # A declaration that is refused leaves the Lab as it was.
            if before is None:
                file.unlink()
            else:
                file.write_bytes(before)
            raise
        return clauses.name

    def source(
        self,
        name: str,
        columns: str,
        *,
        primary_key: Sequence[str] = (),
        watermark: str | None = None,
        change_feed: bool = True,
        options: Mapping[str, str] | None = None,
        partitioned_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableName:
        """Make an empty Delta table of these columns and declare it as a source that is read in place.

        `columns` is as in CREATE TABLE, `watermark` the column of WATERMARK FOR, `options` are further ones of WITH.
        `partitioned_by` and `properties` are those of the table: `{"delta.enableDeletionVectors": "true"}`. `lab.sql`
        writes to it by its name.
        """
        table = TableName.parse(name)
        path = self._folder.joinpath("sources", *table.parts)
        of_table = {"delta.enableChangeDataFeed": str(change_feed).lower(), **(properties or {})}
        self._make_source(table, path, columns, partitioned_by, of_table)
        declared = columns if watermark is None else f"{columns}, WATERMARK FOR {watermark} AS {watermark}"
        given = {"connector": "delta", "path": str(path), **(options or {})}
        return self._declare_source(name, declared, primary_key, given)

    def _make_source(
        self, name: TableName, path: Path, columns: str, partitioned_by: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        """The empty Delta table of a source."""
        pairs = ", ".join(f"{sql_literal(key)} = {sql_literal(value)}" for key, value in properties.items())
        parts = f"PARTITIONED BY ({', '.join(map(quoted, partitioned_by))}) " if partitioned_by else ""
        self._use_database()
        self._spark.sql(
            f"CREATE TABLE {quoted(name.view)} ({columns}) USING delta {parts}LOCATION {sql_literal(str(path))} "
            f"TBLPROPERTIES ({pairs})"
        )

    def files(
        self,
        name: str,
        columns: str,
        *,
        primary_key: Sequence[str] = (),
        format: str = "json",  # noqa: A002 - the name of the option
        settle: str = "0 seconds",
        **options: str,
    ) -> Path:
        """Declare a source of files with an empty landing folder, which is returned.

        `options` are those of the declaration, with `_` for `-`: `null_value="NULL"`. Unlike outside of a Lab, files
        count as complete at once; give `settle` for the other case, and move the clock.
        """
        folder = self._folder.joinpath("landing", *TableName.parse(name).parts)
        folder.mkdir(parents=True)
        written = {key.replace("_", "-"): value for key, value in options.items()}
        self._declare_source(
            name,
            columns,
            primary_key,
            {"connector": "files", "format": format, "path": str(folder), "settle": settle, **written},
        )
        return folder

    def kafka(
        self, name: str, columns: str, *, servers: str, topic: str, primary_key: Sequence[str] = (), **options: str
    ) -> TableName:
        """Declare a source of a topic of your own brokers.

        `options` are those of the declaration, with `_` for `-`: `rate_limit="100"`.
        """
        written = {key.replace("_", "-"): value for key, value in options.items()}
        given = {"connector": "kafka", "format": "json", "topic": topic, "bootstrap.servers": servers}
        return self._declare_source(name, columns, primary_key, {**given, **written})

    def model(self, name: str, content: bytes, **options: str) -> Path:
        """Write the file of a model and declare it; one that is there is replaced. The file is returned.

        `options` are those of the declaration, with `_` for `-`: `on_change="new-rows"`. The module
        `freshline.testing.models` makes small files.
        """
        file = self._folder.joinpath("models", *TableName.parse(name).parts).with_suffix(".onnx")
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{uuid4().hex}")
        partial.write_bytes(content)
        partial.replace(file)
        given = {"path": str(file.relative_to(self._folder)), **{k.replace("_", "-"): v for k, v in options.items()}}
        pairs = ", ".join(f"{_text(option)} = {_text(value)}" for option, value in given.items())
        self.declare(f"CREATE MODEL {name} WITH ({pairs})")
        return file

    def _declare_source(
        self, name: str, columns: str, primary_key: Sequence[str], options: Mapping[str, str]
    ) -> TableName:
        key = f", PRIMARY KEY ({', '.join(primary_key)})" if primary_key else ""
        pairs = ", ".join(f"{_text(option)} = {_text(value)}" for option, value in options.items())
        return self.declare(f"CREATE SOURCE {name} ({columns}{key}) WITH ({pairs})")

    # -- changes

    def sql(self, statement: str) -> list[Row]:
        """Run a statement in which sources and tables have their declared names; a query's rows are returned.

        Sources made by `lab.source` can be written: INSERT, UPDATE, DELETE, MERGE, TRUNCATE, ALTER TABLE, RESTORE.
        """
        self._use_database()
        names = self.runtime.graph.order
        text, used = resolve_names(statement, names)
        read = {}
        for name in used:
            spec = self.runtime.graph.spec(name)
            path = self.runtime.warehouse.location(spec)
            version = newest_version(path)
            if version is not None and not self._is_written_here(name):
                read[name] = read_whole(self._spark, Pinned(spec, path, position_of(path, version)))
        shadow_inputs(read)
        try:
            result = self._spark.sql(text)
            return _values(result.toArrow()) if statement.split(None, 1)[0].upper() in ASKS else []
        finally:
            drop_views(self._spark, list(read))

    def land(self, name: str, file_name: str, content: str | bytes | Sequence[Mapping[str, object]]) -> Path:
        """Put a file into the landing folder of a source of files or HTTP; a file of that name is replaced.

        Rows are written in the source's format: JSON lines, or CSV with the header that the first row gives. Files that
        land later are newer, at the clock's time.
        """
        spec = self.runtime.graph.source(TableName.parse(name))
        if not isinstance(spec.connection, Files):
            raise RequestError("only a source of files or HTTP has a landing folder", where=name)
        assert spec.format is not None
        path = spec.connection.folder_of(spec.name) / file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = spec.format.encode(content) if not isinstance(content, str | bytes) else content
        data = text if isinstance(text, bytes) else text.encode()
        # Complete at once, as a mover would: a name that begins with a dot is not seen.
        partial = path.with_name(f".{uuid4().hex}")
        partial.write_bytes(data)
        self._landed += 1
        stamp = int(self.clock().timestamp()) * 10**9 + self._landed * 1000
        os.utime(partial, ns=(stamp, stamp))
        partial.replace(path)
        return path

    # -- refreshes

    def refresh(
        self,
        name: str,
        *,
        full: bool = False,
        partitions: Partition | Sequence[Partition] = (),
        upstreams: bool = True,
        strategy: str | None = None,
        start: str | None = None,
    ) -> RefreshResult:
        """Refresh one table or source and return the outcome; a failure is in the outcome, not raised.

        Its inputs are brought up to date first, unless `upstreams` is False; the error of one of these is raised.
        `strategy` forces one: append, merge, keys, partition or full; where it is not right the refresh fails.
        `partitions` names partitions to replace, each a mapping of column to value. `start` is where a declaration that
        changed begins: `now`, or a date as `2026-11-01`.
        """
        table = self.runtime.graph.spec(TableName.parse(name)).name
        for upstream in refresh_order(self.runtime.graph, [table], upstreams=upstreams):
            if upstream != table:
                with_it = upstream in self.runtime.graph.with_beside([table])
                outcome = self._refresh(upstream, RefreshRequest(full=full and with_it))
                if outcome.error is not None:
                    raise outcome.error
        named = [partitions] if isinstance(partitions, Mapping) else partitions
        texts = tuple(partition_texts(each) for each in named)
        return self._refresh(table, RefreshRequest(full=full, partitions=texts, strategy=strategy, start=start))

    def retry_quarantine(self, name: str) -> RefreshResult:
        """Decode the quarantined records of a log table again, under the declaration of now.

        Of a table, rows whose lookups have no answer are looked up again.
        """
        return self._refresh(self.runtime.graph.spec(TableName.parse(name)).name, RefreshRequest(retry=True))

    def refresh_all(self) -> list[RefreshResult]:
        """Refresh every source and table in the order of the graph."""
        return [self._refresh(name, RefreshRequest()) for name in self.runtime.graph.order]

    def tick(self) -> list[RefreshResult]:
        """Refresh what is due by the clock, after what drives it. Refreshes count as taking no time here.

        Freshnesses that were set and suspensions count, as of the clock's time.
        """
        runtime = self.runtime
        intentions = runtime.control.intentions.read().at(self.clock())
        graph = runtime.graph = apply_overrides(runtime.graph, intentions)
        held = intended_exclusions(excluded_tables(graph, intentions, None))
        stamps = {status.table: status.data_timestamp for status in self.status()}
        due = [name for name in due_tables(graph, stamps, {}, self.clock()) if name not in held]
        return [self._refresh(name, RefreshRequest()) for name in with_driving(graph, due) if name not in held]

    # -- savepoints

    def create_savepoint(self, name: str, *, tables: Sequence[str] = ()) -> Savepoint:
        """Keep the state of all tables, or of these and of all that they depend on. Raises SavepointError."""
        named = [self.runtime.graph.spec(TableName.parse(table)).name for table in tables]
        return create_savepoint(self.runtime, name, named)

    def restore_savepoint(self, name: str) -> Restored:
        """Bring the tables back to a savepoint. Raises SavepointError."""
        return restore_savepoint(self.runtime, name)

    def _refresh(self, name: TableName, request: RefreshRequest) -> RefreshResult:
        return refresh_table(self.runtime, name, request, cancellation=Cancellation(), progress=lambda message: None)

    # -- what is there

    def diff(self, name: str) -> list[tuple[str, Row]]:
        """Rows by which a table differs from its query at its receipt's positions.

        Each comes with a sign: `+` is in the table only, `-` in the query's result only. Raises RequestError where that
        cannot be found out.
        """
        found = self.verify(name)
        if found.error is not None or found.unverified or (not found.equal and not found.differences):
            raise RequestError(found.error or found.detail or "rows could not be verified", where=name)
        return list(found.differences)

    def explain(self, name: str) -> Explanation:
        """The work that a refresh of a table would do after each kind of change, with the reasons."""
        graph = self.runtime.graph
        logs = frozenset(source.name for source in graph.sources if source.is_log)
        spec = graph.table(TableName.parse(name))
        warehouse = self.runtime.warehouse
        types = {**declared_types(spec, graph), **input_types(graph, warehouse, spec)}
        receipt = self.receipt(name)
        clock = None if receipt is None else receipt.clock
        found = explain_table(spec, input_columns(graph, warehouse, spec), logs, types, clock=clock)
        return with_event_time(found, graph, lambda name: watermark_of(graph.specs, warehouse, name))

    def verify(self, name: str, *, partitions: Sequence[Mapping[str, object]] = ()) -> Verification:
        """The comparison behind `diff`, as `freshline verify` makes it; of these partitions, each a value by column."""
        return verify_table(
            self.runtime,
            TableName.parse(name),
            partitions=[partition_texts(each) for each in partitions],
            cancellation=Cancellation(),
            progress=lambda message: None,
        )

    def rows(self, name: str) -> list[Row]:
        """The rows of a table or source as dictionaries, in a stable order: by their values, NULL first."""
        spec = self.runtime.graph.spec(TableName.parse(name))
        path = self.runtime.warehouse.location(spec)
        version = newest_version(path)
        if version is None:
            raise RequestError("it has no version yet. Refresh it first.", where=name)
        found = read_whole(self._spark, Pinned(spec, path, position_of(path, version)))
        return in_order(_values(found.toArrow()))

    def union(self, name: str, token: UnionToken | None = None) -> tuple[list[Row], UnionToken]:
        """The rows of a union read, in the order of `rows`, and its token; with a token the same rows again."""
        spec = self.runtime.graph.spec(TableName.parse(name))
        read = read_union(self.runtime, self._spark, spec.name, token, cancellation=Cancellation())
        return in_order(_values(read.rows.toArrow())), read.token

    def quarantine(self, name: str) -> list[Row]:
        """The rejected records of a files source, or rows of a table, oldest batch first."""
        path = self.runtime.warehouse.quarantine(TableName.parse(name))
        if newest_version(path) is None:
            return []
        table = open_table(path)
        rows: list[Row] = type(table)(str(path)).to_pyarrow_table().to_pylist()
        return sorted(rows, key=_place)

    def late(self, name: str) -> list[Row]:
        """The rows that came too late for the windows of a table with EMIT FINAL, in the order of `rows`."""
        return self.rows(str(late_name(TableName.parse(name))))

    def receipt(self, name: str) -> Receipt | None:
        """The newest receipt in a table's log, None where there is none."""
        newest = read_newest(self.runtime.warehouse.path(TableName.parse(name)))
        return None if newest is None else newest.receipt

    def watermark(self, name: str) -> datetime | None:
        """The watermark of a source or table at its newest version, None for none.

        The watermark of a table is the least of its inputs'.
        """
        graph = self.runtime.graph
        found = watermark_of(graph.specs, self.runtime.warehouse, graph.spec(TableName.parse(name)).name)
        return None if found is None else found.at

    def status(self) -> list[TableStatus]:
        """The state of every source and table, as `freshline status` shows it."""
        runtime = self.runtime
        return read_status(runtime.graph, runtime.control, runtime.warehouse, self.clock())

    def path(self, name: str) -> Path:
        """The folder of the Delta table of a table, a log or a source."""
        return self.runtime.warehouse.location(self.runtime.graph.spec(TableName.parse(name)))

    def _is_written_here(self, name: TableName) -> bool:
        spec = self.runtime.graph.spec(name)
        return spec.is_read_in_place


def _place(row: Row) -> tuple[int, str, int, str, str]:
    """Where a row of a quarantine table belongs: those of tables have no file."""
    return (row["_freshline_seq"], row.get("file") or "", row.get("line") or 0, row["error"], str(row["raw"]))


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _values(table: Any) -> list[Row]:
    rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def in_order(rows: list[Row]) -> list[Row]:
    """Rows in an order that does not follow from how they were read: by their values, NULL first."""
    return sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row.values()])

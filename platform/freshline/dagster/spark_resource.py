"""A Spark session for assets of your own, beside those that freshline refreshes.

Built on dagster-pyspark's resource, so what works with that works with this: `spark.spark_session`. It attaches to the
project's engine, to any Spark Connect server, or runs a session in the run's own process. One session a run: steps of
one run share it on the server. When the run ends, by itself or because it was cancelled, its work is interrupted and
the session is let go of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dagster import InitResourceContext
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from freshline.commit.warehouse import Warehouse
from freshline.declare.project import find_project, read_settings
from freshline.engine.client import EngineClient
from freshline.engine.state_file import read_state
from freshline.errors import EngineError, SettingsError
from freshline.plan.valid_project import open_graph
from freshline.values.names import RESERVED_COLUMN, TableName
from freshline.values.settings import Settings

ENGINE = "engine"
OWN = "own"
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
MODE = "SPARK_CONNECT_MODE_ENABLED"


class SparkResource(LazyPySparkResource):
    """The Spark session of a run, made when it is first asked for.

    `target` is `engine` (started if none runs), an address such as `sc://host:15002`, or `own`. `project` is the folder
    of the project, or one below it (default: the current folder). `spark_config` holds Spark's settings: of the session
    for a server, of the application for a session of its own. The token of an address stands in
    SPARK_CONNECT_AUTHENTICATE_TOKEN. Raises SettingsError for another target, EngineError where the engine cannot be
    reached.
    """

    spark_config: dict[str, Any] = Field(default_factory=dict)
    target: str = ENGINE
    project: str | None = None
    _run_id: str | None = PrivateAttr(default=None)
    _release: list[Any] = PrivateAttr(default_factory=list)

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator[SparkResource]:
        """Dagster's frame around a run, or around a step that has a process of its own."""
        if self.target not in (ENGINE, OWN) and not self.target.startswith("sc://"):
            raise SettingsError(f"target is {self.target!r}. It is {ENGINE}, {OWN} or an address sc://host:port.")
        self._run_id = None if context.run is None else context.run.run_id
        try:
            yield self
        finally:
            while self._release:
                self._release.pop()()
            self._spark_session = None

    def read_table(self, name: str) -> DataFrame:
        """The rows of a table or source of the project, in its newest version, with its declared columns."""
        settings = self._settings()
        spec = open_graph(settings, [name]).spec(TableName.parse(name))
        rows: DataFrame = self.spark_session.read.format("delta").load(
            str(Warehouse(settings.warehouse).location(spec))
        )
        return rows.drop(*[column for column in rows.columns if column.lower().startswith(RESERVED_COLUMN)])

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = self._own() if self.target == OWN else self._attached()

    def _own(self) -> SparkSession:
        shared = SparkSession.getActiveSession()
        builder = SparkSession.builder
        for key, value in self.spark_config.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        if shared is None:
            # A session that was there before, as in tests, is somebody else's to stop.
            self._release.append(session.stop)
        return session

    def _attached(self) -> SparkSession:
        # Imported here: its client needs packages that a session of its own does without.
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        address, token = self._address()
        before = {key: os.environ.get(key) for key in (TOKEN, MODE)}
        self._release.append(lambda: _restore(before))
        if token is not None:
            os.environ[TOKEN] = token
        # So that pyspark.sql.functions makes columns for Connect.
        os.environ[MODE] = "1"
        parameters = "" if self._run_id is None else f"/;session_id={self._run_id}"
        session = ConnectSession.builder.remote(f"{address}{parameters}").create()
        self._release.append(lambda: _end(session))
        for key, value in self.spark_config.items():
            session.conf.set(key, value)
        found: Any = session
        return found  # type: ignore[no-any-return]

    def _address(self) -> tuple[str, str | None]:
        if self.target != ENGINE:
            return self.target.rstrip("/"), None
        settings = self._settings()
        EngineClient.connect(settings, start=True)
        state = read_state(settings.state)
        if state is None or not state.alive:
            raise EngineError("the engine ended while the run attached to it. Run it again.")
        # A token without TLS is accepted for this name only.
        return f"sc://localhost:{state.connect_port}", state.token

    def _settings(self) -> Settings:
        return read_settings(find_project(None if self.project is None else Path(self.project)), os.environ)


def _end(session: Any) -> None:
    """Interrupt what the session does, and let go of it. A server that is gone has done both."""
    with suppress(PySparkException):
        session.interruptAll()
    with suppress(PySparkException):
        session.stop()


def _restore(before: dict[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value

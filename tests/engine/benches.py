"""Requests of an engine over declared tables, without Spark: refreshes are what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.engine.effective_graph import EffectiveGraph
from freshline.engine.requests import Request, Requests
from freshline.engine.work import Job, WorkQueue
from freshline.freshness.alter import decide_suspension
from freshline.manage.decide import IntentionWriter
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from freshline.values.settings import Settings

NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


def succeeded(job: Job) -> RefreshResult:
    return RefreshResult(
        table=job.table, at=NOW, state=State.SUCCEEDED, strategy="partition", reason="", version=0, rows_in=0,
        rows_out=1, seconds=2.0,
    )  # fmt: skip


def runtime_of(settings: Settings, control: ControlStore, graph: Graph, clock: Callable[[], datetime]) -> Any:
    """A runtime without sessions."""
    return SimpleNamespace(
        settings=settings,
        control=control,
        graph=graph,
        warehouse=Warehouse(settings.warehouse),
        clock=clock,
        lock=lambda name: threading.Lock(),
        failpoint=lambda point: None,
    )


class Bench:
    """The requests of a runtime. `jobs` are the refreshes that were begun, each done by `refresh`."""

    def __init__(self, runtime: Any, threads: int = 2, due: Sequence[TableName] = ()) -> None:
        self.runtime, self.control = runtime, runtime.control
        self.graph: Graph = runtime.graph
        self.jobs: list[Job] = []
        # The tables that were told to be restored.
        self.restored: list[TableName] = []
        self.refresh: Callable[[Job], RefreshResult] = succeeded
        self.work = WorkQueue(self._do, threads, lambda job, outcome: None)
        declarations: Any = SimpleNamespace(
            graph=self.graph,
            check_strictly=lambda check, wanted=(): self.graph,
            check_whole=lambda check: self.graph,
            error=None,
        )
        self.declarations = declarations
        effective_graph = EffectiveGraph(declarations, self.control, lambda: datetime.now(UTC))
        self.requests = Requests(runtime, effective_graph, self.work, lambda graph: due, self.restored.extend)

    def _do(self, job: Job) -> RefreshResult:
        self.jobs.append(job)
        return self.refresh(job)

    def wait(self, request: Request) -> list[dict[str, Any]]:
        """The events of a request that has ended."""
        assert self.requests.wait(10)
        return request.events(0)[0]

    def wait_until_cancelled(self) -> threading.Event:
        """Let refreshes wait until they are cancelled; the event says that one has begun."""
        begun = threading.Event()

        def refresh(job: Job) -> RefreshResult:
            begun.set()
            assert job.cancellation.wait(10)
            return replace(succeeded(job), state=State.CANCELLED)

        self.refresh = refresh
        return begun

    def suspend(self, table: str) -> None:
        IntentionWriter(self.graph, self.control, lambda: datetime.now(UTC)).suspension(
            lambda known, now: decide_suspension(
                self.graph, known, table, until=None, reason=None, by="operator", now=now
            )
        )

"""Freshness changes across all modes while files arrive: nothing is lost or repeated, and each change is reported."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pytest

import freshline
from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import newest_version
from freshline.compute.cancellation import Cancellation
from freshline.engine.declarations import Declarations
from freshline.engine.effective_graph import EffectiveGraph
from freshline.engine.loops import Loops
from freshline.engine.work import WorkQueue
from freshline.refresh.runtime import Runtime, utc_now
from freshline.run import open_runtime, refresh_table, verify_table
from freshline.values.names import TableName
from freshline.values.settings import Settings
from tests.crashes import refresh_by
from tests.scenarios.shop import land_file, repeated, wait_until

EVENT = (
    "CREATE SOURCE event (event_id STRING, k STRING, op STRING, n BIGINT, PRIMARY KEY (event_id)) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = '{path}', 'settle' = '0 seconds')"
)
LATEST = (
    "CREATE MATERIALIZED TABLE latest (PRIMARY KEY (k)) FRESHNESS = INTERVAL '1' DAY WITH ('merge' = 'last_row', "
    "'merge.sequence' = 'n', 'merge.tie-breaker' = 'event_id', 'merge.delete-when' = 'op = ''d''') "
    "AS SELECT k, event_id, op, n FROM event"
)
# From batch, each mode into each other.
CHANGES = (
    ("2 seconds", "continuous"),
    ("5 minutes", "incremental"),
    ("1 second", "continuous"),
    ("6 hours", "batch"),
    ("10 minutes", "incremental"),
    ("3 hours", "batch"),
    ("1 second", "continuous"),
)


class Arrivals:
    """Files of events, and what they come to by an independent count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.events: list[dict[str, object]] = []
        self._random = random.Random(7)

    def land(self) -> None:
        """A file of thirty events."""
        start = len(self.events)
        for number in range(start, start + 30):
            key, op = f"k{self._random.randrange(40)}", self._random.choice("uuud")
            self.events.append({"event_id": f"e{number:06d}", "k": key, "op": op, "n": number})
        land_file(self.folder, f"part-{start:06d}", self.events[start:])

    def latest(self) -> set[tuple[str, str]]:
        last = {event["k"]: event for event in self.events}
        return {(str(k), str(event["event_id"])) for k, event in last.items() if event["op"] != "d"}


@contextmanager
def loops_over(runtime: Runtime, declarations: Declarations) -> Iterator[None]:
    """The loops of an engine in this process, with two threads as by default."""
    effective_graph = EffectiveGraph(declarations, runtime.control, utc_now)
    effective_graph.on_change(lambda graph: setattr(runtime, "graph", graph))
    runtime.graph = effective_graph.graph
    loops: list[Loops] = []
    work = WorkQueue(
        lambda job: refresh_table(
            runtime, job.table, job.request, cancellation=job.cancellation, progress=job.progress
        ),
        2,
        lambda job, outcome: loops[0].on_outcome(job, outcome),
    )
    loops.append(Loops(runtime, effective_graph, work))
    loops[0].start()
    try:
        yield
    finally:
        loops[0].stop()
        assert work.wait_until_idle(60)
        work.close(5)


def rows(settings: Settings, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = deltalake.DeltaTable(str(settings.warehouse / table)).to_pyarrow_table(columns=list(columns))
    return list(zip(*(found[column].to_pylist() for column in columns), strict=True))


@pytest.mark.slow
def test_freshness_is_changed_across_all_modes_while_files_arrive(spark, settings, tmp_path):
    arrivals = Arrivals(tmp_path / "landing")
    settings.declarations.mkdir(parents=True)
    (settings.root / "pyproject.toml").write_text("[tool.freshline]\n")
    texts = {"event": EVENT.format(path=arrivals.folder), "latest": LATEST}
    for name, text in texts.items():
        (settings.declarations / f"{name}.sql").write_text(text)
    arrivals.land()
    declarations = Declarations(settings)
    control = ControlStore.open(settings.control_store)
    runtime = open_runtime(settings, declarations.graph, spark, control)
    latest = TableName.parse("latest")

    for declared in declarations.graph.order:
        assert refresh_by(runtime, str(declared)).error is None

    def has_mode(expected: str) -> bool:
        return str(runtime.graph.mode(latest)) == expected

    def has_moved_on(before: int | None) -> bool:
        return newest_version(settings.warehouse / "latest") != before

    with repeated(arrivals.land, 0.15):
        for part in (CHANGES[:4], CHANGES[4:]):
            # In between the engine is another one, with nothing but the stores.
            with loops_over(runtime, declarations):
                for freshness, mode in part:
                    version = newest_version(settings.warehouse / "latest")
                    freshline.set_freshness("latest", freshness, by="operator", project=settings)
                    wait_until(partial(has_mode, mode))
                    if mode == "continuous":
                        wait_until(partial(has_moved_on, version))
        freshline.suspend("latest", because="a look at it", by="operator", project=settings)
        with loops_over(runtime, declarations):
            version, arrived = newest_version(settings.warehouse / "latest"), len(arrivals.events)
            wait_until(lambda: len(rows(settings, "event", "event_id")) > arrived)
            assert newest_version(settings.warehouse / "latest") == version
    freshline.resume("latest", by="analyst", project=settings)
    with loops_over(runtime, declarations):
        wait_until(lambda: len(rows(settings, "event", "event_id")) == len(arrivals.events))
        wait_until(lambda: set(rows(settings, "latest", "k", "event_id")) == arrivals.latest())

    assert sorted(row[0] for row in rows(settings, "event", "event_id")) == [e["event_id"] for e in arrivals.events]
    assert len(rows(settings, "latest", "k")) == len(arrivals.latest())
    found = verify_table(runtime, latest, cancellation=Cancellation(), progress=lambda message: None)
    assert found.equal, found.detail
    told = [record for record in reversed(control.refreshes(latest, 500)) if record.state != "SUCCEEDED"]
    assert [(record.state, record.mode) for record in told if record.state == "ALTERED"] == [
        ("ALTERED", mode) for _, mode in CHANGES
    ]
    # On a machine that is out of breath a freshness of seconds is found not to be feasible, too.
    assert [record.state for record in told if record.state in ("SUSPENDED", "RESUMED")] == ["SUSPENDED", "RESUMED"]
    altered = [record for record in told if record.state == "ALTERED"]
    assert altered[1].reason == "freshness 5 minutes, was 2 seconds; incremental, was continuous; by operator"
    control.close()

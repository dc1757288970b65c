"""A continuous table does not starve while its input is slow and twenty tables below become due one by one."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace

import pytest

from freshline.commit.control_store import ControlStore
from freshline.engine.declarations import Declarations
from freshline.run import open_runtime
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult
from tests.scenarios.shop import wait_until
from tests.scenarios.test_freshness_changes import loops_over

SOURCE = (
    "CREATE SOURCE log (id BIGINT) FRESHNESS = INTERVAL '2' SECOND "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = '{path}', 'settle' = '0 seconds')"
)
TABLE = "CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '{freshness}' SECOND AS SELECT id FROM {reads}"
BELOW = 20
COMMIT_SECONDS = 1.5
COMMITS = 6


def begun(record: RefreshResult) -> float:
    return record.at.timestamp() - record.seconds


@pytest.mark.long
@pytest.mark.slow
def test_a_continuous_table_is_refreshed_for_each_commit_of_a_slow_input_while_tables_below_are_due(
    spark, settings, tmp_path
):
    settings = replace(settings, continuous_below=Freshness(5))
    landing = tmp_path / "landing"
    landing.mkdir()
    settings.declarations.mkdir(parents=True)
    texts = {"log": SOURCE.format(path=landing), "clean": TABLE.format(name="clean", freshness=2, reads="log")}
    for number in range(BELOW):
        texts[f"i{number}"] = TABLE.format(name=f"i{number}", freshness=10 + number, reads="clean")
    for name, text in texts.items():
        (settings.declarations / f"{name}.sql").write_text(text)
    declarations = Declarations(settings)
    control = ControlStore.open(settings.control_store)
    slow = threading.Event()

    def delay(point: str) -> None:
        if point == "log-before-commit" and slow.is_set():
            time.sleep(COMMIT_SECONDS)  # the input is slow: this is what is tried

    runtime = open_runtime(settings, declarations.graph, spark, control, failpoint=delay)

    def commits(table: str) -> list[RefreshResult]:
        found = control.refreshes(TableName.parse(table), 500)
        return [record for record in reversed(found) if record.state == "SUCCEEDED" and record.committed]

    landed = 0

    def land() -> None:
        nonlocal landed
        landed += 1
        (landing / f"{landed}.json").write_text(json.dumps({"id": landed}))

    land()
    with loops_over(runtime, declarations):
        wait_until(lambda: all(commits(name) for name in texts))
        slow.set()
        before = len(commits("log"))
        while len(commits("log")) < before + COMMITS:
            land()
            time.sleep(0.2)  # files arrive all the time

    refreshes = [begun(record) for record in commits("clean")]
    ends = [record.at.timestamp() for record in commits("log")[before:]]
    for end, following in itertools.pairwise(ends):
        assert any(end - 0.2 <= begin < following for begin in refreshes), "a commit of the log was not taken in"
    # The tables below were refreshed meanwhile, each wave through the log and the continuous table.
    assert sum(len(commits(f"i{number}")) > 1 for number in range(BELOW)) >= 3

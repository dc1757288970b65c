"""The consumers of a commit are called from one place, all of them, whatever one of them does."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

import freshline.engine
from freshline.compute.cancellation import Cancellation
from freshline.engine.commit_consumers import CommitConsumers
from freshline.engine.work import Job
from freshline.plan.request import RefreshRequest
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

ORDERS = TableName.parse("orders")
ENGINE = Path(freshline.engine.__path__[0])


@dataclass
class Consumers:
    """Consumers that note their calls; `failing` is one that fails."""

    calls: list[tuple[str, object]] = field(default_factory=list)
    failing: str = ""

    def of(self, name):
        outer = self

        class Consumer:
            def on_outcome(self, *arguments):
                outer.take(name, arguments)

            def committed(self, *arguments):
                outer.take(name, arguments)

        return Consumer()

    def take(self, name, arguments):
        self.calls.append((name, arguments))
        if name == self.failing:
            raise RuntimeError(name)

    def call(self, outcome, *, lineage=True):
        job = Job(ORDERS, RefreshRequest(), Cancellation(), lambda message: None)
        CommitConsumers(
            self.of("metrics"),
            self.of("lineage") if lineage else None,
            self.of("catalogs"),
            self.of("loops"),
            self.of("maintenance"),
        ).call_after_refresh(job, outcome)
        return job


def outcome(*, committed=True):
    return RefreshResult(
        table=ORDERS, at=datetime(2026, 1, 1, tzinfo=UTC), state=State.SUCCEEDED, reason="", version=7,
        seconds=0.0, committed=committed,
    )  # fmt: skip


def test_each_consumer_is_called_once_with_what_happened():
    consumers, done = Consumers(), outcome()
    job = consumers.call(done)
    assert consumers.calls == [
        ("metrics", (ORDERS, done)),
        ("lineage", (done,)),
        ("catalogs", (done,)),
        ("loops", (job, done)),
        ("maintenance", (ORDERS, 7)),
    ]


@pytest.mark.parametrize("failing", ["metrics", "lineage", "catalogs", "loops"])
def test_one_that_fails_keeps_no_other_from_its_call(failing, caplog):
    consumers = Consumers(failing=failing)
    consumers.call(outcome())
    assert [name for name, _ in consumers.calls] == ["metrics", "lineage", "catalogs", "loops", "maintenance"]
    assert f"orders: the {failing}" in caplog.text


def test_without_a_commit_nothing_is_maintained_and_without_an_outcome_the_others_hear_of_it():
    for given in (outcome(committed=False), None):
        consumers = Consumers()
        consumers.call(given, lineage=False)
        assert [name for name, _ in consumers.calls] == ["metrics", "catalogs", "loops"]


def test_no_other_place_of_the_engine_calls_a_consumer():
    found = {
        (file.name, node.attr)
        for file in ENGINE.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("on_outcome", "committed", "call_after_refresh")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("outcome", "result"))
    }  # fmt: skip
    assert found == {
        ("commit_consumers.py", "on_outcome"),
        ("commit_consumers.py", "committed"),
        ("main.py", "call_after_refresh"),
    }

"""Refreshes that end at a failpoint, as if the engine were killed there, and refreshes by another engine."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.plan.request import RefreshRequest
from freshline.refresh.runtime import Runtime
from freshline.run import open_runtime, refresh_table
from freshline.testing import Crash, Lab
from freshline.values.names import TableName
from freshline.values.result import RefreshResult


def crash(lab: Lab, point: str, table: str, *, upstreams: bool = True, lose_control_store: bool = False) -> None:
    """A refresh of the table ends at the point, and another engine is there."""
    with lab.crash_at(point), pytest.raises(Crash):
        lab.refresh(table, upstreams=upstreams)
    lab.restart(lose_control_store=lose_control_store)


def refresh_through_crash(
    lab: Lab, table: str, chance: random.Random, points: Sequence[str], *, share: float, case: Any = None, **asked: Any
) -> None:
    """A refresh that succeeds; a share of them after one that ends at a random point, where it comes to it.

    `asked` are the arguments of the refresh that succeeds, and `case` is said of one that does not.
    """
    if chance.random() < share:
        with lab.crash_at(chance.choice(points)), suppress(Crash):
            lab.refresh(table)
        lab.restart(lose_control_store=chance.random() < 0.5)
    outcome: RefreshResult = lab.refresh(table, **asked)
    assert outcome.error is None, (case, outcome.error)


def another_engine(lab: Lab, epoch: int, failpoint: Callable[[str], None] = lambda point: None) -> Runtime:
    """Another engine on the same warehouse."""
    return open_runtime(
        lab.settings,
        lab.runtime.graph,
        lab.runtime.sessions.root,
        lab.runtime.control,
        clock=lab.clock,
        epoch=epoch,
        failpoint=failpoint,
    )


def refresh_by(runtime: Runtime, name: str, request: RefreshRequest | None = None) -> RefreshResult:
    """Refresh this table alone by an engine."""
    return refresh_table(
        runtime,
        TableName.parse(name),
        request or RefreshRequest(),
        cancellation=Cancellation(),
        progress=lambda message: None,
    )

"""A class with timers and state under an engine that is killed: no row twice, none missing, and each timer once."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from textwrap import dedent

import psutil
import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.reading import read_rows
from freshline.errors import FreshlineError
from tests.engine.test_process import EVENTS, TAKEOVER, Bag, Event, drawn, takeovers
from tests.scenarios.test_kill import Shop
from tests.scenarios.test_savepoint_kill import ask

FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds')"
KILLS = ("table-pinned", "table-before-commit", "table-writing", "table-keys-kept", "table-after-commit")
pytestmark = [pytest.mark.spark, pytest.mark.long]


def opened(shop: Shop, freshness: str) -> None:
    text = dedent(TAKEOVER).replace("outputs=", f'freshness="{freshness}",\n    outputs=')
    (shop.root / "assets" / "takeover.py").write_text(text)


def land(shop: Shop, number: int, batch: Sequence[Event]) -> None:
    hidden = shop.root / "in" / f"_{number}"
    hidden.write_text("".join(json.dumps(event) + "\n" for event in batch))
    hidden.rename(shop.root / "in" / f"{number:03}.json")


def stored(shop: Shop) -> tuple[Bag, Bag]:
    """The rows of both tables, read without the engine."""
    settings = read_settings(shop.root, {})
    first, second = (
        Counter(
            tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in row.values())
            for row in read_rows(name, project=settings).to_pylist()
        )
        for name in ("takeover", "refused")
    )
    return first, second


def source(freshness: str) -> dict[str, str]:
    head, watermark = EVENTS.split(", WATERMARK")
    columns = f"{head}, PRIMARY KEY (id), WATERMARK{watermark}"
    return {"act": f"CREATE SOURCE act ({columns}) FRESHNESS = INTERVAL {freshness} {FILES}"}


def test_a_kill_at_each_point_leaves_the_rows_of_a_replay(tmp_path):
    shop = Shop(tmp_path / "shop", source("'10' DAY"))
    opened(shop, "10 days")
    batches = drawn(47, len(KILLS) + 1)
    killed = []
    for number, batch in enumerate(batches):
        land(shop, number, batch)
        if number:
            kill_at = KILLS[number - 1]
            # A refresh that finds nothing to write passes some of the points.
            killed.append(ask(shop, "refresh", "takeover", kill_at=kill_at) != 0)
        if number == 3:
            # Whatever is kept beside the tables may go while no engine runs.
            shutil.rmtree(read_settings(shop.root, {}).state / "keys")
        shop.run("refresh", "takeover", "refused")
        assert stored(shop) == takeovers(batches[: number + 1]), number
        shop.run("engine", "stop")
    assert sum(killed) >= 3, killed
    assert all(item["equal"] for item in json.loads(shop.run("verify", "--json")))
    shop.run("engine", "stop")
    psutil.wait_procs(shop.processes(), timeout=30)
    assert shop.processes() == []


def test_a_continuous_class_follows_its_source_through_kills(tmp_path):
    shop = Shop(tmp_path / "shop", source("'2' SECOND"))
    opened(shop, "5 seconds")
    batches = drawn(53, 6)
    assert "continuous" in shop.run("plan", "--json")
    shop.run("engine", "start")
    for number, batch in enumerate(batches):
        land(shop, number, batch)
        if number in (2, 4):
            for process in shop.processes():
                if "freshline.engine.main" in " ".join(process.cmdline()):
                    process.send_signal(signal.SIGKILL)
            shop.run("engine", "start")
        _wait_until(partial(_has, shop, takeovers(batches[: number + 1])))
    assert all(item["equal"] for item in json.loads(shop.run("verify", "--json")))
    shop.run("engine", "stop")


def _has(shop: Shop, rows: tuple[Bag, Bag]) -> bool:
    return stored(shop) == rows


def _wait_until(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except FreshlineError:
            if time.monotonic() > deadline:
                raise  # the table is not there yet
        assert time.monotonic() < deadline, "the tables did not come to the rows in time"
        time.sleep(0.5)

"""A class with timers and state under an engine that is killed: no row twice, none missing, and each timer once."""

from __future__ import annotations

import shutil
from functools import partial
from textwrap import dedent

import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.reading import read_rows
from freshline.errors import FreshlineError
from tests.engine.test_process import EVENTS, TAKEOVER, drawn, takeovers
from tests.scenarios.shop import FILES, Bag, Shop, bag, land_file, wait_until

KILLS = ("table-pinned", "table-before-commit", "table-writing", "table-keys-kept", "table-after-commit")
pytestmark = [pytest.mark.spark, pytest.mark.long]


def opened(shop: Shop, freshness: str) -> None:
    text = dedent(TAKEOVER).replace("outputs=", f'freshness="{freshness}",\n    outputs=')
    (shop.root / "assets" / "takeover.py").write_text(text)


def stored(shop: Shop) -> tuple[Bag, Bag]:
    """The rows of both tables, read without the engine."""
    settings = read_settings(shop.root, {})
    first, second = (bag(read_rows(name, project=settings).to_pylist()) for name in ("takeover", "refused"))
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
        land_file(shop.root / "in", f"{number:03}", batch)
        if number:
            kill_at = KILLS[number - 1]
            # A refresh that finds nothing to write passes some of the points.
            killed.append(shop.exit_code("refresh", "takeover", kill_at=kill_at) != 0)
        if number == 3:
            # Whatever is kept beside the tables may go while no engine runs.
            shutil.rmtree(read_settings(shop.root, {}).state / "keys")
        shop.run("refresh", "takeover", "refused")
        assert stored(shop) == takeovers(batches[: number + 1]), number
        shop.run("engine", "stop")
    assert sum(killed) >= 3, killed
    shop.verify()
    shop.stop_engine()


def test_a_continuous_class_follows_its_source_through_kills(tmp_path):
    shop = Shop(tmp_path / "shop", source("'2' SECOND"))
    opened(shop, "5 seconds")
    batches = drawn(53, 6)
    assert "continuous" in shop.run("plan", "--json")
    shop.run("engine", "start")
    for number, batch in enumerate(batches):
        land_file(shop.root / "in", f"{number:03}", batch)
        if number in (2, 4):
            shop.kill_engines()
            shop.run("engine", "start")
        wait_until(partial(_has, shop, takeovers(batches[: number + 1])))
    shop.verify()
    shop.run("engine", "stop")


def _has(shop: Shop, rows: tuple[Bag, Bag]) -> bool:
    try:
        return stored(shop) == rows
    except FreshlineError:
        return False  # the table is not there yet

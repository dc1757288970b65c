"""Every cache is deleted while the engine is stopped: the next refresh is right, and reads no more than the changes."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.jars import jar_cache
from freshline.engine.reading import read_rows
from tests.scenarios.shop import FILES, Shop, land_file
from tests.scenarios.test_final import EVENTS, FIVE_MINUTES, drawn_batches, expected, query
from tests.scenarios.test_final_kill import stored

HEAD = "FRESHNESS = INTERVAL '10' DAY"
DECLARATIONS = {
    "ev": f"CREATE SOURCE ev ({EVENTS}) {FILES}",
    "final": f"CREATE MATERIALIZED TABLE final {HEAD} EMIT FINAL AS {query(FIVE_MINUTES)}",
    "shown": f"CREATE MATERIALIZED TABLE shown {HEAD} AS {query(FIVE_MINUTES)}",
    "rising": f"CREATE MATERIALIZED TABLE rising {HEAD} AS SELECT * FROM ev MATCH_RECOGNIZE (PARTITION BY k "
    "ORDER BY ts, id MEASURES count(*) AS n PATTERN (A B+) DEFINE B AS B.v > PREV(B.v))",
}
PYTHON = """import freshline


@freshline.table(keys={"ev": "k"}, freshness="10 days")
def totals(ev):
    return ev.groupBy("k").agg({"v": "sum"}).toDF("k", "total")
"""


@pytest.mark.spark
@pytest.mark.long
def test_a_refresh_without_any_cache_is_right(tmp_path, monkeypatch):
    # The jars stay, because not every machine that runs this can fetch them again.
    monkeypatch.setenv("FRESHLINE_JAR_CACHE", str(jar_cache()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    shop = Shop(tmp_path / "shop", DECLARATIONS)
    (shop.root / "assets" / "totals.py").write_text(PYTHON)
    settings = read_settings(shop.root, {})
    batches = drawn_batches(4, count=3)
    land_file(shop.root / "in", "1", batches[0])
    shop.run("refresh")

    for number, batch in enumerate(batches[1:], 2):
        shop.run("engine", "stop")
        assert any((settings.state / "cache").iterdir())
        # Parsed declarations, folders of sessions, the archive of Java classes, compiled Python.
        caches = [settings.state / "cache", settings.state / "spark", settings.state / "logs", tmp_path / "user"]
        caches += shop.root.rglob("__pycache__")
        if number == 3:
            # All that is not a table.
            caches += [each for each in settings.state.iterdir() if each != settings.warehouse]
        for cache in caches:
            if cache.is_dir():
                shutil.rmtree(cache)
            else:
                cache.unlink(missing_ok=True)
        assert number != 3 or list(settings.state.iterdir()) == [settings.warehouse]
        land_file(shop.root / "in", str(number), batch)

        done = {each["table"]: each for each in json.loads(shop.run("refresh", "--json"))}

        assert all(each["error"] is None for each in done.values()), done
        known = {name: done[name]["strategy"] for name in ("final", "shown", "rising", "totals")}
        assert "full" not in known.values(), {name: done[name]["reason"] for name in known}
        arrived = batches[:number]
        assert stored(shop, "final") == expected(FIVE_MINUTES, arrived, 0)
        totals: Counter[object] = Counter()
        for event in (event for each in arrived for event in each):
            totals[event["k"]] += int(str(event["v"]))
        assert {row["k"]: row["total"] for row in read_rows("totals", project=settings).to_pylist()} == totals
        assert len(shop.verify()) >= 5
    shop.stop_engine()

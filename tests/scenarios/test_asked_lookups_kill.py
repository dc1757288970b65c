"""An engine that asks a service is killed, at each point and in between: each key is asked once, with the same rows."""

from __future__ import annotations

import random
import subprocess
import time

import pytest

from tests.scenarios.shop import FILES, Project, land_file
from tests.services import running_service

KILLS = (
    "lookup-before-ask",
    "lookup-answered:7",
    "lookup-before-commit",
    "lookup-after-commit",
    "lookup-arrived",
    "table-before-commit",
    "table-after-commit",
)
pytestmark = [pytest.mark.spark, pytest.mark.long]


def project(root, service, concurrency):
    made = Project(root)
    made.declare(
        "",
        {
            "o": f"CREATE SOURCE o (id INT, customer INT) {FILES}",
            "c": "CREATE SOURCE c (id INT, name STRING, PRIMARY KEY (id)) WITH ('connector' = 'http', 'lookup' = "
            f"'true', 'url' = '{service.url}/c/{{id}}', 'lookup.concurrency' = '{concurrency}')",
            "t": "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '10' DAY AS SELECT o.id, c.name FROM o LEFT JOIN c "
            "FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = o.customer",
        },
    )
    return made


def land(made, number):
    numbers = range(number * 20, number * 20 + 20)
    land_file(made.root / "in", f"{number:03}", [{"id": each, "customer": each} for each in numbers])


def test_a_kill_at_each_point_asks_nobody_twice(tmp_path):
    with running_service(rows={str(number): {"name": f"n{number}"} for number in range(1000)}) as service:
        # One after the other: nothing is on its way when the engine is killed behind an answer.
        made = project(tmp_path / "p", service, 1)
        killed = []
        for number, point in enumerate(KILLS):
            land(made, number)
            killed.append(made.exit_code("refresh", "t", kill_at=point) != 0)
            made.run("refresh", "t")
            assert len(service.asked) == 20 * (number + 1), point
            assert set(service.asked.values()) == {1}, point
            made.run("engine", "stop")
        asked = service.requests

        assert all(killed), killed
        rows = made.rows("SELECT id, name FROM t ORDER BY id")
        assert [(row["id"], row["name"]) for row in rows] == [(n, f"n{n}") for n in range(20 * len(KILLS))]
        made.verify()
        made.run("refresh", "t", "--full")
        assert made.rows("SELECT id, name FROM t ORDER BY id") == rows
        made.verify()
        assert service.requests == asked
        made.stop_engine()


def test_kills_at_any_moment_ask_again_for_answers_on_their_way_alone(tmp_path):
    chance = random.Random(20)
    with running_service(rows={str(n): {"name": f"n{n}"} for n in range(2000)}, seconds=0.05) as service:
        made = project(tmp_path / "p", service, 4)
        kills = 0
        for number in range(100):
            land(made, number)
        while kills < 4:
            made.run("engine", "start")
            wanted = service.requests + chance.randrange(10, 400)
            asked = subprocess.Popen(made.command("refresh", "t"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            end = time.monotonic() + 120
            while service.requests < wanted:
                assert asked.poll() is None, f"the refresh ended after {service.requests} of {wanted} requests"
                assert time.monotonic() < end, f"{service.requests} of {wanted} requests came in two minutes"
                time.sleep(0.02)
            made.kill_engines()
            asked.wait(timeout=120)
            kills += 1
        made.run("refresh", "t")

        assert len(service.asked) == 2000
        assert max(service.asked.values()) <= 2
        assert service.requests - 2000 <= 4 * kills
        assert made.rows("SELECT count(DISTINCT name) AS n FROM t") == [{"n": 2000}]
        made.verify()
        made.stop_engine()

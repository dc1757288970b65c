"""The engine or a command is killed while files arrive: nothing is lost or repeated, no process is left over."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.scenarios.shop import Shop, repeated


@pytest.mark.spark
@pytest.mark.long
def test_ten_kills_lose_and_repeat_nothing(tmp_path):
    shop = Shop(tmp_path / "shop")
    with repeated(shop.land, 0.4):
        for number in range(10):
            if number % 2 == 0:
                shop.run("engine", "start")
            asked = subprocess.Popen(shop.command("refresh"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(shop.random.uniform(4, 14))  # the moment of the kill is what varies
            if number % 3 == 2:
                asked.kill()
            else:
                shop.kill_engines()
            asked.wait(timeout=120)
    shop.run("refresh")

    shop.check("event", "plain")
    shop.verify()
    shop.stop_engine()

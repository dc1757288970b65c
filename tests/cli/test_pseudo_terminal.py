"""A person at a terminal of some width: no word is cut, long texts have a pager, a live table ends with Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from freshline.report.table_text import width
from tests.report.board.shop import Shop, fill, open_shop
from tests.terminal import CONTROL, plain, start

pytestmark = pytest.mark.slow

SAID = "the landing directory of the shop was moved by somebody who did not say so"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("shop")) as shop:
        fill(shop, SAID, f"column `amont` does not exist: {SAID}")
        yield shop


def printed(shop: Shop, *command: str, columns: int) -> str:
    terminal = start(shop.root, *command, columns=columns)
    said = terminal.read_until(None)
    os.close(terminal.master)
    assert terminal.process.wait(60) == 0
    return plain(said)


@pytest.mark.parametrize("command", ["status", "plan", "explain"])
def test_no_word_is_cut_at_80_100_and_120_columns(shop, command):
    known = set(printed(shop, command, columns=500).split())
    for columns in (80, 100, 120):
        said = printed(shop, command, columns=columns)

        assert [line for line in said.split("\n") if width(line) > columns] == []
        assert [word for word in said.split() if word not in known and not word[0].isdigit()] == []


def test_a_live_status_is_drawn_without_a_cut_word_and_ends_with_ctrl_c(shop):
    known = set(printed(shop, "status", columns=500).split())
    terminal = start(shop.root, "status", "--watch", columns=80)
    drawn = CONTROL.sub("", terminal.read_until("SUSPENDED"))
    os.write(terminal.master, b"\x03")
    terminal.read_until(None)
    os.close(terminal.master)

    assert terminal.process.wait(60) == 0
    lines = [line.rstrip() for line in drawn.split("\n")]
    assert [line for line in lines if width(line) > 80] == []
    assert {word for line in lines[:3] for word in line.split() if not word[0].isdigit()} <= known


def test_a_long_text_goes_through_the_pager_and_a_short_one_does_not(shop, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho through the pager\ncat > /dev/null\n")
    pager.chmod(0o755)
    for rows, through in ((5, True), (500, False)):
        terminal = start(shop.root, "status", columns=100, rows=rows, environ={"PAGER": str(pager)})
        said = terminal.read_until(None)
        os.close(terminal.master)

        assert terminal.process.wait(60) == 0
        assert ("through the pager" in said) is through

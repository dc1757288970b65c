"""Output in a terminal of any width: no word is cut, and what matters most stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from freshline.cli.main import run
from freshline.report.table_text import width
from tests.report.board.shop import Shop, fill, open_shop

pytestmark = pytest.mark.seconds

SAID = "the landing directory of the shop was moved by somebody who did not say so"
COMMANDS = (("status",), ("plan",), ("explain",), ("explain", "--freshness"))
WIDTHS = (80, 100, 120)
STATES = ("LATE", "FAILED", "SUSPENDED", "BLOCKED", "SCHEDULED")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("shop")) as shop:
        fill(shop, SAID, f"column `amont` does not exist: {SAID}")
        yield shop


@pytest.fixture
def printed(shop, monkeypatch, capsys):
    """The output of a command in a terminal of some columns; without one where there are none."""

    def printed(*command: str, columns: int | None) -> str:
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        assert run([*command, "--project", str(shop.root)]) == 0
        return str(capsys.readouterr().out)

    return printed


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_line_fits_and_ends_between_words(printed, command, columns):
    whole = printed(*command, columns=None)
    fitted = printed(*command, columns=columns)

    known = set(whole.split())
    cut = [word for word in fitted.split() if word not in known and not word[0].isdigit()]
    assert cut == []
    longest = max(width(word) for word in known)
    assert longest < columns
    assert [line for line in fitted.split("\n") if width(line) > columns] == []


@pytest.mark.parametrize("columns", [40, 60, *WIDTHS, None])
def test_the_name_the_lag_and_the_state_of_each_table_stay(printed, columns):
    lines = printed("status", columns=columns).split("\n")

    assert {"table", "lag", "state", "last"} <= set(lines[0].split())
    for name, state in (
        ("shop.spend", "LATE"),
        ("shop.large_order", "FAILED"),
        ("crm.best_customers", "SUSPENDED,"),
        ("crm.monthly_report", "BLOCKED"),
        ("prices", "SCHEDULED"),
    ):
        (line,) = [line for line in lines[1:8] if line.split()[0] == name]
        assert state in line.split()


def test_a_pipe_gets_whole_lines(printed):
    first, *_ = printed("status", columns=None).split("\n")

    assert first.split() == [
        "table", "kind", "mode", "freshness", "lag", "state", "rows", "quarantined", "version", "last", "took", "ago",
    ]  # fmt: skip


def test_reasons_go_on_in_lines_below(printed):
    plan = printed("plan", columns=80)

    assert "reason of the mode" in plan
    assert "is not below 30 minutes" in " ".join(plan.split())

"""`freshline report`: one file, as a browser shows it from the file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshline.cli.main import run
from tests.report.board.html import Page
from tests.report.board.shop import DECLARATIONS, fill, open_shop


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    with open_shop(root):
        pass
    return root


def test_the_board_is_one_file_and_says_what_is_in_it(project, tmp_path, capsys):
    file = tmp_path / "board.html"
    file.write_text("what was there before")

    assert run(["report", str(file), "--project", str(project), "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    tables = len(DECLARATIONS)
    assert told == {"file": str(file), "bytes": file.stat().st_size, "tables": tables, "pages": tables}
    assert "shop.spend" in Page(file.read_text(encoding="utf-8")).text
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["board.html"]
    assert run(["report", str(file), "--project", str(project), "--since", "1d"]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {file}: {tables} tables and sources, ")


def test_a_mistake_in_a_declaration_is_in_the_file_and_the_other_tables_too(project, tmp_path):
    (project / "assets" / "shop" / "spend.sql").write_text("CREATE MATERIALIZED <script>")
    file = tmp_path / "board.html"

    assert run(["report", str(file), "--project", str(project)]) == 0
    text = Page(file.read_text(encoding="utf-8")).text
    assert "assets/shop/spend.sql:1" in text
    assert "shop.orders" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "31d"], "the past is kept for 30 days"),
        (["--since", "soon"], "soon is not a duration for --since"),
        (["--since", "-1d"], "is not a duration for --since"),
    ],
)
def test_a_time_that_cannot_be_shown_is_refused(project, tmp_path, capsys, options, said):
    assert run(["report", str(tmp_path / "board.html"), "--project", str(project), *options]) == 1

    assert said in capsys.readouterr().err
    assert not (tmp_path / "board.html").exists()


def test_a_file_that_cannot_be_written_is_named(project, tmp_path, capsys):
    assert run(["report", str(tmp_path / "no" / "board.html"), "--project", str(project)]) == 1

    assert "board.html cannot be written: No such file or directory." in capsys.readouterr().err


@pytest.mark.slow
def test_a_browser_shows_the_file_from_the_file_system_and_asks_for_nothing_else(tmp_path, chromium):
    root, file = tmp_path / "shop", tmp_path / "board.html"
    root.mkdir()
    with open_shop(root) as shop:
        fill(shop)
    assert run(["report", str(file), "--project", str(root)]) == 0

    for width in (1_400, 400):
        for anchor, text in (("", "shop.large_order"), ("#t0", "All tables")):
            chromium.open(f"{file.as_uri()}?{width}{anchor[1:]}{anchor}", 1_600, width)
            assert text in chromium.run("return document.body.innerText")
            # A text that had run something would have opened a dialog, and this step of the driver would fail.
            assert chromium.run("return document.querySelectorAll('img').length") == 0
            assert chromium.run("return document.documentElement.scrollWidth <= innerWidth"), "it is too wide"
    asked = [url for url in chromium.requests() if not url.startswith(("data:,", "about:"))]
    assert [url.partition("?")[0] for url in asked] == [file.as_uri()] * 4

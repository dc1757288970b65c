"""`freshline new`: a declaration is written when it can be planned, and then only."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from freshline.cli.main import run
from freshline.declare.project import read_project, read_settings
from freshline.values.spec import SourceSpec, TableSpec
from tests.cli.loaded import loaded_by_command

ORDERS = '{"order-id": "o-1", "amount": 1.5, "when": "2026-11-01T10:00:00Z", "items": [{"sku": "a", "count": 2}]}\n'
FILES = ["source", "s", "--connector", "files", "--format", "json"]


def spec_of(root: Path, name: str) -> SourceSpec | TableSpec:
    graph = read_project(read_settings(root, {}), {})
    return next(spec for each, spec in graph.specs.items() if str(each) == name)


def files(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in (root / "assets").rglob("*.sql")}


def test_a_source_of_a_sample_can_be_planned(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "sample.json").write_text(ORDERS)

    new = [
        "new",
        "source",
        "web.click",
        "--connector",
        "files",
        "--from",
        str(shop / "sample.json"),
        "--key",
        "order-id",
    ]
    assert run([*new, "--comment", "it's \\ new", "--json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    assert (answer["name"], answer["file"]) == ("web.click", str(shop / "assets" / "web" / "click.sql"))
    assert Path(answer["file"]).read_text() == answer["text"]
    spec = spec_of(shop, "web.click")
    assert isinstance(spec, SourceSpec)
    assert [(column.name, column.type) for column in spec.columns] == [
        ("order-id", "STRING"),
        ("amount", "DOUBLE"),
        ("when", "TIMESTAMP"),
        ("items", "ARRAY<STRUCT<sku: STRING, count: BIGINT>>"),
    ]
    assert (spec.primary_key, spec.comment) == (("order-id",), "it's \\ new")
    assert spec.options == {"connector": "files", "format": "json", "path": "landing/web/click"}


def test_a_table_with_a_merge_can_be_planned(shop: Path) -> None:
    new = ["new", "table", "latest", "--query", "SELECT customer, amount, ordered_at, order_id FROM orders; "]
    merge = ["--merge", "last_row", "--option", "merge.sequence=ordered_at", "--option", "merge.tie-breaker=order_id"]
    assert run([*new, *merge, "--freshness", "90 seconds", "--key", "customer"]) == 0

    spec = spec_of(shop, "latest")
    assert isinstance(spec, TableSpec)
    assert spec.primary_key == ("customer",)
    assert "FRESHNESS = INTERVAL '90' SECOND\nAS SELECT" in (shop / "assets" / "latest.sql").read_text()


def test_a_query_may_end_with_a_comment(shop: Path) -> None:
    assert run(["new", "table", "t", "--query", "SELECT customer FROM orders -- all", "--freshness", "2h"]) == 0
    assert run(["plan"]) == 0


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["source", "s"], "--connector, --columns"),
        (["source", "s", "--connector", "files"], "--format, --columns"),
        (["source", "s", "--connector", "kafka", "--columns", "a INT"], "--format, --option topic=.., --option boot"),
        (["source", "s", "--connector", "postgres", "--columns", "a INT"], "--option url=.., --option table=.., "),
        (["source", "s", "--connector", "delta", "--columns", "a INT"], "--option path=.."),
        (["table", "t"], "--query, --freshness"),
        (["table", "t", "--freshness", "5m", "--merge", "first_row"], "--query"),
    ],
)
def test_without_a_terminal_the_missing_options_are_named(
    arguments: list[str], missing: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(shop)

    assert run(["new", *arguments]) == 2

    assert f"Missing {missing}" in capsys.readouterr().err
    assert files(shop) == before


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["table", "t", "--query", "SELECT nothing FROM orders", "--freshness", "5m"], 1, "UNKNOWN_COLUMN"),
        (["table", "t", "--query", "SELECT customer FROM order", "--freshness", "5m"], 1, "orders"),
        (["table", "t", "--query", "SELECT customer FROM orders", "--freshness", "soon"], 2, "--freshness"),
        (["table", "t", "--query", "", "--freshness", "5m"], 1, "DECLARATION"),
        (["table", "spend", "--query", "SELECT 1 AS a", "--freshness", "5m"], 1, "there is spend.sql already"),
        (["table", "SPEND", "--query", "SELECT customer FROM orders", "--freshness", "5m"], 1, "DECLARATION"),
        (["table", "../t", "--query", "SELECT 1 AS a", "--freshness", "5m"], 2, "NAME"),
        (["table", "_t", "--query", "SELECT 1 AS a", "--freshness", "5m"], 2, "underscore"),
        (["table", "_n.t", "--query", "SELECT 1 AS a", "--freshness", "5m"], 2, "underscore"),
        (["table", "t'; --", "--query", "SELECT 1 AS a", "--freshness", "5m"], 2, "NAME"),
        (["table", "t", "--query", "SELECT 1 AS a", "--freshness", "5m", "--merge", "newest"], 2, "--merge"),
        (["source", "s", "--connector", "fax", "--columns", "a INT"], 2, "--connector"),
        (["source", "s", "--connector", "files", "--format", "jsno", "--columns", "a INT"], 1, "json"),
        ([*FILES, "--columns", "a INTT"], 1, "--columns:1"),
        (
            [*FILES, "--columns", "a INT, PRIMARY KEY (a)"],
            2,
            "--key",
        ),
        ([*FILES, "--columns", "`a\tb` INT"], 1, "a tab or a line end"),
        (
            [*FILES, "--columns", "a INT", "--option", "x"],
            2,
            "NAME=VALUE",
        ),
        (["source", "s", "--connector", "files", "--columns", "a INT", "--from", "../sample.txt"], 2, "exclude"),
        (["source", "s", "--connector", "files", "--from", "../sample.txt"], 1, ".json or .csv"),
        (["source", "s", "--connector", "files", "--from", "../empty.csv"], 1, "no record"),
        (["source", "s", "--connector", "files", "--from", "../latin.csv"], 1, "not UTF-8"),
        (["source", "s", "--connector", "files", "--from", "../none.csv"], 2, "does not exist"),
    ],
)
def test_a_declaration_that_cannot_be_planned_is_not_written(
    arguments: list[str], code: int, sentence: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "sample.txt").write_text("a\n1\n")
    (shop / "empty.csv").write_text("")
    (shop / "latin.csv").write_bytes("größe\n1\n".encode("latin-1"))
    before = files(shop)

    assert run(["new", *arguments]) == code

    assert sentence in capsys.readouterr().err
    assert files(shop) == before


def test_a_file_that_is_no_declaration_yet_is_not_overwritten(shop: Path) -> None:
    link = shop / "assets" / "t.sql"
    link.symlink_to(shop / "nowhere.sql")

    assert run(["new", "table", "t", "--query", "SELECT customer FROM orders", "--freshness", "5m"]) == 1
    assert link.is_symlink()
    assert not (shop / "nowhere.sql").exists()


def test_a_declaration_has_its_name_when_it_is_whole(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, seen = files(shop), []
    link = os.link

    def look(whole: Path, file: Path) -> None:
        seen.append((files(shop) == before, Path(whole).read_text()))
        # Somebody else is faster.
        Path(file).write_text("theirs")
        link(whole, file)

    monkeypatch.setattr(os, "link", look)

    assert run(["new", *FILES, "--option", "path=landing", "--columns", "id INT"]) == 1

    ((is_hidden, text),) = seen
    assert is_hidden
    assert text.startswith("CREATE SOURCE s")
    assert "there is s.sql already; nothing was written" in capsys.readouterr().err
    assert (shop / "assets" / "s.sql").read_text() == "theirs"
    assert [file.name for file in (shop / "assets").iterdir() if file.name.startswith(".")] == []


def test_a_source_may_be_written_before_and_after_the_table_that_reads_it(shop: Path) -> None:
    (shop / "assets" / "per_page.sql").write_text(
        "CREATE MATERIALIZED TABLE per_page AS SELECT page, count(*) AS n FROM click GROUP BY page;\n"
    )

    new = ["new", "source", "click", "--connector", "files", "--format", "csv", "--columns", "page STRING"]
    assert run(new) == 0
    assert run(["plan"]) == 0


@pytest.mark.seconds
def test_nothing_heavy_is_imported(shop: Path) -> None:
    new = ["new", "source", "s", "--connector", "kinesis", "--option", "stream=s", "--format", "json"]
    heavy = ("pyspark", "dagster", "deltalake", "pyarrow")

    assert loaded_by_command([*new, "--columns", "a INT"], *heavy, folder=shop) == []


def answered(shop: Path, *arguments: str, answers: str) -> tuple[int, str]:
    """The exit code and the screen of a command in a terminal, with what a person types."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "freshline.cli.main", "new", *arguments],
        stdin=slave, stdout=slave, stderr=slave, cwd=shop, env={**os.environ, "TERM": "dumb"}, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    os.write(master, answers.encode())
    screen = b""
    try:
        while data := os.read(master, 65_536):
            screen += data
    except OSError:
        pass  # The other end is closed.
    os.close(master)
    return process.wait(60), screen.decode()


@pytest.mark.slow
def test_a_person_in_a_terminal_is_asked(shop: Path) -> None:
    code, screen = answered(
        shop, "source", "click", answers="\ncsv\nlanding/web\npage STRING, at TIMESTAMP\npage\nWho saw which page\n"
    )

    assert code == 0, screen
    spec = spec_of(shop, "click")
    assert isinstance(spec, SourceSpec)
    assert (spec.primary_key, spec.comment) == (("page",), "Who saw which page")
    assert spec.options == {"connector": "files", "format": "csv", "path": "landing/web"}

    sequence = "customer\nlast_row\nordered_at\norder_id\n\n\n"
    code, screen = answered(
        shop, "table", "latest", answers=f"SELECT customer, ordered_at, order_id FROM orders\n5m\n{sequence}"
    )

    assert code == 0, screen
    assert "merge.sequence" in screen
    assert spec_of(shop, "latest").primary_key == ("customer",)


@pytest.mark.slow
def test_a_person_who_said_everything_is_asked_nothing(shop: Path) -> None:
    code, screen = answered(
        shop, "table", "t", "--query", "SELECT customer FROM orders", "--freshness", "5m", answers=""
    )

    assert code == 0, screen
    assert screen.startswith("Wrote ")


@pytest.mark.slow
def test_ctrl_d_writes_nothing(shop: Path) -> None:
    before = files(shop)

    code, _ = answered(shop, "table", "t", answers="\x04")

    assert code == 130
    assert files(shop) == before

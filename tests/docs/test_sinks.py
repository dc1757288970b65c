"""The page "Sinks", typed in an empty folder, with the systems that it sends rows to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.databases import Database
from tests.docs.test_tutorial import Shell, lines_of
from tests.postgres import PostgresServer

PAGE = (Path(__file__).parents[2] / "platform" / "docs" / "sinks.md").read_text(encoding="utf-8")


def tried_with(system: str) -> tuple[str, str]:
    """The commands of a section of the page, and the output that it shows."""
    section = PAGE.partition(f"## Try it with {system}\n")[2].partition("\n## ")[0]
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
    (shown,) = re.findall(r"^```text\n(.*?)^```$", section, re.M | re.S)
    return commands, shown


@pytest.mark.spark
@pytest.mark.slow
def test_a_database_has_the_rows_that_the_page_shows(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("psql"), "psql comes with the server"
    database = Database(postgres)
    monkeypatch.setenv("SHOP", database.url)
    commands, shown = tried_with("a database")
    shell = Shell(tmp_path)
    try:
        assert lines_of(shell.type(commands)) == lines_of(shown)
    finally:
        database.close()
    second = (tmp_path / "second.txt").read_text(encoding="utf-8")
    assert re.search(r"spend_copy +changes +2 in, 2 out", second), second

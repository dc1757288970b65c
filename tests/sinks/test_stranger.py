"""The sink of the page "Extensions", as a package of somebody else: it fulfils the claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.testing import ClaimsError, check_sink
from freshline.testing.claims import ClaimError, claims_of
from freshline.testing.sinks import SinkConformance
from tests.lanes import long_but
from tests.sinks.systems import OWN
from tests.sources.stranger import PAGES, code_of_page, on_the_path, write_package

MODULES = ("sqlite_sink", "sqlite_writer")
CLAIMS = claims_of(SinkConformance)
ENTRIES = {"freshline.sinks": {"sqlite": "sqlite_sink:SqliteSink"}}
pytestmark = pytest.mark.spark


@pytest.fixture
def install(tmp_path):
    """The package `freshline-sqlite`, with a line of it replaced by another."""
    folder: Path = tmp_path / "site"
    folder.mkdir()
    code = code_of_page("extending.md")

    def write(line: str = "", other: str = "") -> None:
        for module in MODULES:
            text = code[module]
            (folder / f"{module}.py").write_text(text.replace(line, other) if line else text, encoding="utf-8")
        assert not line or any(line in code[module] for module in MODULES)
        write_package(folder, "freshline-sqlite", ENTRIES)

    with on_the_path(folder, MODULES):
        yield write


@pytest.fixture
def system():
    """The class of the page that reads what SQLite has."""
    page = (PAGES / "extending.md").read_text(encoding="utf-8")
    code = next(block for block in page.split("```python\n") if block.startswith("import sqlite3\nfrom pathlib"))
    found: dict[str, type] = {}
    exec(compile(code.partition("```")[0].partition("def test_")[0], "extending.md", "exec"), found)
    return found["Sqlite"]


def only(claim):
    """The claims that are left out where this one is tried."""
    return [name for name in CLAIMS if name != claim]


# One by one, because all of them take minutes.
@pytest.mark.parametrize("claim", long_but(OWN, CLAIMS))
def test_the_sink_of_the_page_fulfils_every_claim(spark, install, system, claim):
    install()
    check_sink(system, spark=spark, leave_out=only(claim))


MOVE = "            self._move(connection, delivery)\n        self.host"
# Each is a line of the page with what stands in its place, and a claim that must find it.
PLANTED = {
    "the position is not in the transaction": (
        MOVE,
        MOVE.replace("            self", "        with self._transaction() as connection:\n            self", 1),
        "test_stopped_at_each_point_it_has_each_state_once",
    ),
    "an older version goes over a newer one": (
        "            self.require_position(self._held(connection), delivery)\n",
        "",
        "test_other_writers_are_refused",
    ),
    "a delete is forgotten": (
        "                self._delete(connection, batch)\n",
        "                pass\n",
        "test_rows_come_and_change_and_go",
    ),
    "rows of others stay when all are compared": (
        'connection.execute(f"DELETE FROM {self._table}").rowcount',
        "0",
        "test_a_full_refresh_removes_what_does_not_belong",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found(spark, install, system, planted):
    line, other, claim = PLANTED[planted]
    install(line, other)
    with pytest.raises(ClaimsError) as raised:
        check_sink(system, spark=spark, leave_out=only(claim))
    # By what was found, and not by another failure.
    assert isinstance(raised.value.broken[claim], ClaimError)

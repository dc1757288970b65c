"""The read door: a statement reads declared tables, and what is judged is what Spark reads in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from freshline.errors import RequestError
from freshline.reads.sql import query

pytestmark = pytest.mark.security

STATEMENTS = Path(__file__).parent / "statements.txt"
SECRET = "not-to-be-seen"


def statements() -> list[tuple[str, str, str]]:
    """Verdict, title and text of each block."""
    found = []
    for block in re.split(r"^(?=####)", STATEMENTS.read_text(encoding="utf-8"), flags=re.MULTILINE):
        head, _, text = block.partition("\n")
        if head.startswith("#### "):
            verdict, _, title = head[5:].partition(" | ")
            text = re.sub(r"<U\+(....)>", lambda match: chr(int(match[1], 16)), text.removesuffix("\n"))
            found.append((verdict, title, text))
    return found


# Text between quotes of any kind is a value or a name that is meant as it is.
QUOTED = re.compile(r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)""", re.DOTALL)


def disguised(text: str) -> tuple[str, str]:
    """The same statement in other letters, for Spark knows no case; and with each called name between backquotes."""
    parts = QUOTED.split(text)
    other = "".join(part if place % 2 else part.swapcase() for place, part in enumerate(parts))
    named = "".join(
        part if place % 2 else re.sub(r"\b([A-Za-z_]\w*)(\s*\()", r"`\1`\2", part.upper())
        for place, part in enumerate(parts)
    )
    return other, named


@pytest.fixture
def shop(lab, tmp_path):
    """The Lab with the tables that the statements read, and what they must neither see nor make."""
    lab.source("s", "id INT, t STRING")
    lab.sql("INSERT INTO s VALUES (1, 'a'), (2, 'b')")
    lab.source("b.t", "id INT, v STRING")
    lab.sql("INSERT INTO b.t VALUES (1, 'x')")
    lab.declare("CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s")
    secret = tmp_path / "secret.txt"
    secret.write_text(f"{SECRET}\n", encoding="utf-8")
    root = lab.runtime.sessions.root
    root.range(3).write.format("delta").save(str(tmp_path / "delta"))
    # An asset of the user could make these in the catalog that all sessions of the engine share.
    root.sql(f"CREATE TABLE default.undeclared (value STRING) USING text LOCATION '{secret}'")
    root.range(1).createOrReplaceGlobalTempView("freshline_global")
    yield lab
    root.sql("DROP TABLE IF EXISTS default.undeclared")
    root.catalog.dropGlobalTempView("freshline_global")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_no_statement_leaves_the_declared_tables(shop, tmp_path):
    # The content of a savepoint's file, had somebody laid one there.
    (tmp_path / "object.json").write_text('{"a": 1}')
    (tmp_path / "broken.json").write_text(SECRET)
    places = {
        "{object}": str(tmp_path / "object"),
        "{broken}": str(tmp_path / "broken"),
        "{marker}": str(tmp_path / "marker"),
        "{secret}": str(tmp_path / "secret.txt"),
        "{delta}": str(tmp_path / "delta"),
        "{declared}": shop.runtime.graph.source(
            next(n for n in shop.runtime.graph.order if str(n) == "s")
        ).connection.path,
    }
    sources = Path(places["{declared}"]).parent
    before = files(tmp_path), files(sources)
    wrong: list[str] = []
    refused: list[tuple[str, str]] = []
    for verdict, title, text in statements():
        for name, place in places.items():
            text = text.replace(name, place)
        try:
            rows = query(shop.runtime, text).rows
            assert SECRET not in str(rows), title
            said = json.dumps([json.loads(row) for row in rows], separators=(",", ":"))
            expected = verdict if verdict[0] != "[" else json.dumps(json.loads(verdict), separators=(",", ":"))
        except RequestError as error:
            said, expected = error.code, verdict
            refused.append((title, text))
            if said != expected or SECRET in str(error):
                said = f"{said}: {error}"
        if said != expected:
            wrong.append(f"{title}: {said[:300]} instead of {expected}\n    {text}")

    for title, text in refused:
        for statement in disguised(text):
            try:
                told = f"gives {query(shop.runtime, statement).rows}"
            except RequestError as error:
                told = str(error) if SECRET in str(error) else ""
            if told:
                wrong.append(f"{title}: {told}\n    {statement}")

    assert not wrong, "\n".join(wrong)
    assert (files(tmp_path), files(sources)) == before
    assert len(statements()) >= 200
    # Nothing stays behind for the next statement of the session either.
    (session,) = shop.runtime.sessions._free
    assert [row["viewName"] for row in session.sql("SHOW VIEWS").collect()] == []
    assert session.conf.get("spark.sql.variable.substitute") == "false"

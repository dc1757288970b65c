"""The page "HTTP": its declarations are a project, its post is taken, and its statuses are those of the door."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from http import HTTPStatus
from pathlib import Path

import pytest

from freshline.declare.project import read_project
from freshline.declare.project_settings import read_settings
from freshline.engine import ingest
from freshline.sources.http.landing import READ
from tests.docs.test_docs import DOCS, examples, section, text_of
from tests.engine.posting import open_door

PAGE = DOCS / "http.md"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The project of the page, with another token."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "click").write_text("0123456789abcdef\n", encoding="utf-8")
    (settings,) = examples(PAGE, "toml")
    (tmp_path / "pyproject.toml").write_text(settings, encoding="utf-8")
    for code in examples(PAGE, "sql"):
        named = re.search(r"CREATE (?:MATERIALIZED TABLE|SOURCE) (\w+)", code)
        assert named
        (tmp_path / "assets" / f"{named[1]}.sql").write_text(code, encoding="utf-8")
    return tmp_path


def test_the_post_of_the_page_is_taken_with_the_answer_that_it_shows(shop: Path) -> None:
    settings = read_settings(shop, {})
    command = next(code for code in examples(PAGE, "bash") if code.startswith("curl"))
    words = shlex.split(command.replace("$(cat secrets/click)", (shop / "secrets" / "click").read_text().strip()))
    headers = [words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H"]
    body = words[words.index("--data-binary") + 1].encode()
    with open_door(shop) as door:
        door.graph = read_project(settings, {})
        status, answer, _ = door.post(body, token=None, **{name.replace("-", "_"): value for name, value in headers})

        assert words[1] == f"http://127.0.0.1:{settings.engine_port}/ingest/click"
        assert status == 202
        assert f"`{json.dumps(answer, separators=(',', ':'))}`" in text_of(PAGE)
        assert [json.loads(line)["page"] for line in door.stored()[0].split(b"\n")[:-1]] == ["/shoes", "/hats"]


def test_the_commands_of_the_page_put_old_posts_away(shop: Path) -> None:
    folder = shop / "posts" / "click"
    folder.mkdir(parents=True)
    for name in ("post-1-old.json", "key-old.json", "post-2-new.json", ".post-part"):
        (folder / name).write_bytes(b"x")
    for name in ("post-1-old.json", "key-old.json"):
        os.utime(folder / name, (1_700_000_000, 1_700_000_000))
    commands = next(code for code in examples(PAGE, "bash") if "find " in code)
    subprocess.run(["bash", "-c", commands], cwd=shop, check=True)

    assert sorted(each.name for each in folder.iterdir()) == [".post-part", "_read", "post-2-new.json"]
    assert sorted(each.name for each in (folder / READ).iterdir()) == ["key-old.json", "post-1-old.json"]


def test_each_status_is_on_the_page() -> None:
    text = Path(ingest.__file__).read_text(encoding="utf-8")
    used = {getattr(HTTPStatus, name).value for name in re.findall(r"HTTPStatus\.([A-Z_]+)", text)}
    used.remove(500)  # the least of those that are logged
    first_cells = re.findall(r"^\| ([\d, ]+) \|", section(PAGE, "Answers"), re.MULTILINE)

    assert {int(status) for cell in first_cells for status in cell.split(", ")} == used | {403}

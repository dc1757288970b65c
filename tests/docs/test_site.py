"""The documentation as a site: it builds without a warning, has every page, and loads nothing from another host."""

from __future__ import annotations

import doctest
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import load_pictures
from tests.scripts import load_script

pytestmark = pytest.mark.seconds

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "platform" / "docs"
PAGES = sorted(page.stem for page in DOCS.glob("*.md"))
# Scripts, styles, fonts and pictures that a browser would load by itself.
LOADED = re.compile(r"<(?:script|img|iframe)[^>]*\ssrc=[\"']?([^\"'\s>]+)|<link[^>]*\shref=[\"']?([^\"'\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # The theme announces its successor in a warning, which is no warning about a page.
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]

    built = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)

    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_on_the_site(site: Path, page: str) -> None:
    title = re.search(r"^# (.+)$", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert title

    assert f'<h1 id="{title[1].lower().replace(" ", "-")}">{title[1]}' in (site / f"{page}.html").read_text()


def test_the_search_index_has_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))

    assert {entry["location"].partition("#")[0] for entry in index["docs"]} == {f"{page}.html" for page in PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_nothing_from_another_host(site: Path, page: str) -> None:
    loaded = [one or other for one, other in LOADED.findall((site / f"{page}.html").read_text(encoding="utf-8"))]

    assert len(loaded) > 2
    assert [address for address in loaded if re.match(r"(?:[a-z]+:)?//", address)] == []


def test_every_picture_that_is_taken_is_shown_and_is_as_wide_as_its_window() -> None:
    pictures = load_pictures()
    taken = {**pictures.pages("id"), **pictures.board_pages("shop.spend")}
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))

    for name, picture in taken.items():
        assert f"(pictures/{name}.png)" in pages
        (width,) = struct.unpack(">I", (DOCS / "pictures" / f"{name}.png").read_bytes()[16:20])
        assert width == picture.width, name
    assert {file.stem for file in (DOCS / "pictures").iterdir()} == taken.keys()


def test_types_in_a_sentence_are_text(site: Path) -> None:
    text = (DOCS / "declarations.md").read_text(encoding="utf-8")
    assert "STRUCT<" in text

    assert "STRUCT&lt;" in (site / "declarations.html").read_text(encoding="utf-8")


def test_the_programs_of_the_folder_are_no_part_of_the_site(site: Path) -> None:
    assert list(DOCS.glob("*.py"))
    assert list(site.rglob("*.py")) == []


def test_the_examples_of_the_hooks_run() -> None:
    assert doctest.testmod(load_script(DOCS / "mkdocs_hooks.py")) == (0, 2)

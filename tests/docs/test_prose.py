"""The prose of docs, docstrings and comments: no sentence begins with `What`, and cited rules exist.

Words are rare for which the field has others, and in the docs semicolons too. Only prose counts. Examples, code in
backquotes and the addresses of links are left out.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "platform" / "docs"
LIBRARY = ROOT / "platform" / "freshline"

PAGES = [*sorted(DOCS.glob("*.md")), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
MOST_SEMICOLONS = 1
# Folders of code whose docstrings and comments follow the rules.
CODE = ("platform/freshline", "platform/examples", "tests", "resources", "assets")
# The field has other words for these: report, check, inspect, distinguish, match. Some are right, as in "holds a lock".
VAGUE = re.compile(
    r"\b(?:tell(?:s|ing)?|told|look(?:s|ed|ing)?|apart|held|holds?|met|meets?|settle[sd]?)\b", re.IGNORECASE
)
MOST_VAGUE_IN_A_THOUSAND = 2

NOT_PROSE = re.compile(
    r"^```.*?^```$"  # examples
    r"|``.+?``|`[^`]*`"  # code
    r"|(?<=\])\([^)\s]*\)"  # addresses of links
    r"|<[^>\n]*>|&\w+;",  # HTML
    re.MULTILINE | re.DOTALL,
)
# With a capital letter the word stands at the beginning of a sentence, a cell or a heading.
WHAT = re.compile(r"\bWhat\b.{0,60}")
CITED = re.compile(r"\brules? (\d+(?:(?:, | and )\d+)*)(?P<page> of docs/rules\.md)?", re.IGNORECASE)


def prose(text: str) -> str:
    return NOT_PROSE.sub("", text)


def prose_of_code(code: str) -> Iterator[str]:
    """The docstrings of a module, without their examples, and its comments."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prose(re.sub(r"^ *(?:>>>|\.\.\.).*$", "", ast.get_docstring(node) or "", flags=re.MULTILINE))
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield prose(token.string)


def cited_rules(text: str) -> list[tuple[int, bool]]:
    """The number of each rule that a module names, and whether the page stands beside it."""
    return [
        (int(number), match["page"] is not None)
        # A docstring may break the line anywhere within the reference.
        for match in CITED.finditer(re.sub(r"\s+(?:#\s+)?", " ", text))
        for number in re.findall(r"\d+", match[1])
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_begins_with_what(page: Path) -> None:
    assert WHAT.findall(prose(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_semicolons_are_rare(page: Path) -> None:
    lines = [line for line in prose(page.read_text(encoding="utf-8")).split("\n") if ";" in line]

    assert sum(line.count(";") for line in lines) <= MOST_SEMICOLONS, lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_vague_words_are_rare(page: Path) -> None:
    text = prose(page.read_text(encoding="utf-8"))
    vague = VAGUE.findall(text)

    # One is right on the shortest page.
    assert len(vague) <= max(1, MOST_VAGUE_IN_A_THOUSAND * len(text.split()) / 1_000), vague


@pytest.mark.seconds
def test_docstrings_and_comments_follow_the_rules_of_the_docs() -> None:
    begun, words, vague = [], 0, []
    for file in (file for folder in CODE for file in sorted((ROOT / folder).rglob("*.py"))):
        place = str(file.relative_to(ROOT))
        for text in prose_of_code(file.read_text(encoding="utf-8")):
            begun += [(place, found) for found in WHAT.findall(text)]
            words += len(text.split())
            vague += [(place, found) for found in VAGUE.findall(text)]

    assert begun == []
    assert words > 100_000
    assert len(vague) <= MOST_VAGUE_IN_A_THOUSAND * words / 1_000, vague


def test_names_of_tests_follow_them_too() -> None:
    named = [
        name
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    words = sum(len(name.split("_")) for name in named)

    assert [name for name in named if name.startswith("test_what_")] == []
    assert len(VAGUE.findall(" ".join(named).replace("_", " "))) <= MOST_VAGUE_IN_A_THOUSAND * words / 1_000


def test_comments_and_docstrings_are_the_prose_of_code() -> None:
    example = ">" * 3 + " What()"
    code = f'"""One.\n\n{example}\n"""\nx = "What"  # two `What`\n'

    assert [text.split() for text in prose_of_code(code)] == [["One."], ["#", "two"]]


def test_only_prose_is_read() -> None:
    text = (
        "It is so; yes. What now?\n\n```sql\nSELECT 1; -- What\n```\n`a; What` [What](b;c) &amp; <a id='What;'></a>\n"
    )

    assert re.findall("What|;", prose(text)) == [";", "What", "What"]


def test_each_rule_that_the_library_cites_is_on_the_page() -> None:
    rules = {int(number) for number in re.findall(r"^(\d+)\. ", (DOCS / "rules.md").read_text("utf-8"), re.MULTILINE)}
    cited = {
        (f"{file.relative_to(LIBRARY)}", number, has_page)
        for file in sorted(LIBRARY.rglob("*.py"))
        for number, has_page in cited_rules(file.read_text(encoding="utf-8"))
    }

    assert rules == set(range(1, len(rules) + 1))
    assert len(cited) > 20
    assert sorted(each for each in cited if each[1] not in rules or not each[2]) == []


def test_references_to_rules_are_found() -> None:
    text = '"""Wait (rules 4, 11 and 13 of\n    docs/rules.md)."""\n# Rule 9\n'

    assert cited_rules(text) == [(4, True), (11, True), (13, True), (9, False)]

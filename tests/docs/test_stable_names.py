"""The names that extensions may import: they are there, and the code of the pages needs no others."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.test_public_names import PUBLIC

DOCS = Path(__file__).parents[2] / "platform" / "docs"
ROW = re.compile(r"^\| `(freshline[\w.]*)` \| (.+) \|$", re.MULTILINE)


def stable_names() -> dict[str, set[str]]:
    page = (DOCS / "extending.md").read_text(encoding="utf-8").partition("## Stable names")[2]
    return {module: set(re.findall(r"`(\w+)`", names)) for module, names in ROW.findall(page)}


def test_each_stable_name_is_there():
    missing = [
        f"{module}.{name}"
        for module, names in stable_names().items()
        for name in names
        if not hasattr(importlib.import_module(module), name)
    ]

    assert missing == []
    assert stable_names()["freshline.testing"] == set(PUBLIC["freshline.testing"].split())


@pytest.mark.parametrize("page", ["connectors.md", "extending.md", "lookups.md", "testing.md"])
def test_the_code_of_a_page_imports_stable_names_only(page):
    stable = stable_names()
    code = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    imported = [
        (node.module or "", alias.name)
        for text in code
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    own = [(module, name) for module, name in imported if module.partition(".")[0] == "freshline"]

    assert own
    assert [f"{m}.{n}" for m, n in own if m != "freshline.errors" and n not in stable.get(m, ())] == []

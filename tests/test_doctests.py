"""The examples in docstrings run: one claim for each module that has any."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Where modules with examples are, and what their names begin with.
PLACES = {"platform/freshline": "platform", "tests": "."}
# These have the sign in other texts.
WITHOUT = frozenset({"freshline.sql.functions"})


def modules_with_examples() -> list[str]:
    """The names of the modules whose text has an example; none is imported to find it."""
    found = []
    for place, root in PLACES.items():
        for file in sorted((ROOT / place).rglob("*.py")):
            if ">>> " in file.read_text(encoding="utf-8") and file != Path(__file__).resolve():
                name = ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
                found.append(name.removesuffix(".__init__"))
    return found


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    """The examples of a module, with those of functions whose results are cached, which doctest does not search."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(module)
    for name, value in vars(module).items():
        wrapped = getattr(value, "__wrapped__", None)
        if not inspect.isfunction(value) and inspect.isfunction(wrapped) and wrapped.__module__ == module.__name__:
            found += finder.find(wrapped, f"{module.__name__}.{name}", module)
    return [each for each in found if each.examples]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_are_true(name):
    examples = examples_of(importlib.import_module(name))

    # A module may have the sign in a text that is no docstring, as tests of prompts do.
    assert examples or name in WITHOUT
    assert sum(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(each).failed for each in examples) == 0

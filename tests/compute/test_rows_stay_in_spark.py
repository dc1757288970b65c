"""Rows do not come to Python to be counted: it has not all times that Spark has."""

from __future__ import annotations

import ast
from pathlib import Path

import freshline

ROOT = Path(freshline.__file__).parent


def test_whether_there_are_rows_is_asked_in_one_place_that_takes_none_of_their_values():
    found = {
        str(file.relative_to(ROOT))
        for file in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("take", "head")
        if [argument.value for argument in node.args if isinstance(argument, ast.Constant)] == [1]
    }
    # The second is room for values of a class.
    assert found == {"compute/materialize.py", "keyed/state_types.py"}

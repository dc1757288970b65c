"""The state that a class of `freshline.process` declares: its attributes and their types, read from its text.

An attribute is declared in the class, as `total: int = 0`, or where it is set, as `self.total: int = 0`. Classes from
which it is derived declare theirs.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import deque
from collections.abc import Iterator
from textwrap import dedent
from types import MemberDescriptorType

from freshline.keyed.state_types import state_type


class DeclaredState:
    """`state` has the types of attributes by name, `problems` have lines, None for another file, and sentences."""

    def __init__(self, made: type, text: str) -> None:
        self.state: dict[str, str] = {}
        self.problems: list[tuple[int | None, str]] = []
        self._set: dict[str, int | None] = {}
        for kind in reversed(made.__mro__):
            is_here = kind.__module__ == made.__module__
            node = None if kind is object else _text_of(kind, text if is_here else None)
            if node is not None:
                self._read(node, is_here)
        for name, line in self._set.items():
            default = inspect.getattr_static(made, name, None)
            is_property = hasattr(type(default), "__set__") and not isinstance(default, MemberDescriptorType)
            if name not in self.state and not is_property:
                said = f"self.{name} is set, and the class does not declare it. Write `{name}: ..` with its type there."
                self.problems.append((line, said))
        for name in self.state:
            if isinstance(inspect.getattr_static(made, name, None), (list, dict, set, deque, bytearray)):
                said = f"{name} has a default that all keys would share. Set it in `__init__`."
                self.problems.append((None, said))

    def _read(self, node: ast.ClassDef, is_here: bool) -> None:
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                self._declare(node, each.target.id, each.annotation, is_here)
            elif isinstance(each, ast.FunctionDef):
                for within in _of_instance(each):
                    if isinstance(within, ast.AnnAssign) and isinstance(within.target, ast.Attribute):
                        self._declare(node, within.target.attr, within.annotation, is_here)
                    elif isinstance(within, ast.Attribute):
                        self._set.setdefault(_mangled(node, within.attr), within.lineno if is_here else None)

    def _declare(self, node: ast.ClassDef, name: str, annotation: ast.expr, is_here: bool) -> None:
        said = ast.unparse(annotation).partition("[")[0]
        if said.rpartition(".")[2] == "ClassVar":
            return
        name = _mangled(node, name)
        try:
            self.state[name] = str(state_type(annotation))
        except (ValueError, SyntaxError) as error:
            self.state[name] = ""
            self.problems.append((annotation.lineno if is_here else None, f"{name}: {error}."))


def _text_of(kind: type, text: str | None) -> ast.ClassDef | None:
    """The class in the text, or where there is none in that of its module; None for a class that Python has."""
    if text is None:
        if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
            return None
        try:
            text = dedent(inspect.getsource(kind))
        except (OSError, TypeError):
            return None
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    return next((node for node in reversed(classes) if node.name == kind.__name__), None)


def _of_instance(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Where a method sets attributes of its instance: annotated assignments, and the attributes that are set."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    others = {getattr(decorator, "id", "") for decorator in function.decorator_list} & {"staticmethod", "classmethod"}
    if others or not arguments:
        return
    own = arguments[0].arg
    for node in ast.walk(function):
        match node.target if isinstance(node, ast.AnnAssign) else node:
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()) if name == own:
                yield node


def _mangled(node: ast.ClassDef, name: str) -> str:
    """The name of an attribute as instances have it: `__total` belongs to one class."""
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{node.name.lstrip('_')}{name}" if is_private else name

"""Laws of the source itself: what reads data runs nothing, and nothing is handed to a shell or waited for openly."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml

import freshline
from freshline.declare.yaml_table import COMPONENT, find_tables
from freshline.errors import DeclarationError

pytestmark = [pytest.mark.security, pytest.mark.seconds]

# The one that is imported, which may be a copy with a planted hole.
LIBRARY = Path(freshline.__file__).parent

# The only places that may call each function that runs what it is given, with the reason.
RUNS = {
    # The engine wrote it for the process that it started.
    "pickle.load": {"sources/files/separate_process.py"},
    "pickle.loads": set(),
    "cloudpickle.load": set(),
    "cloudpickle.loads": set(),
    "marshal.load": set(),
    "marshal.loads": set(),
    "shelve.open": set(),
    "eval": set(),
    # A declaration in Python is a program: whoever may change it decides which code runs.
    "exec": {"declare/python_file.py"},
    "os.system": set(),
    "os.popen": set(),
    "yaml.load": set(),
    "yaml.load_all": set(),
    "yaml.unsafe_load": set(),
    "yaml.full_load": set(),
    "yaml.compose_all": {"declare/yaml_table.py"},
    "tempfile.mktemp": set(),
    "xml.etree.ElementTree.parse": set(),
}
# Not `*`, which is also a word of SQL and of patterns.
ANYWHERE = ("0.0.0.0", "::", "[::]")


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    """Each module with its tree, parsed once."""
    files = sorted(LIBRARY.rglob("*.py"))
    return tuple((file.relative_to(LIBRARY).as_posix(), ast.parse(file.read_text("utf-8"))) for file in files)


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def places(is_one: Callable[[ast.AST], bool]) -> list[str]:
    """Where the library has such a node, as file and line."""
    return [
        f"{file}:{getattr(node, 'lineno', 0)}" for file, tree in modules() for node in ast.walk(tree) if is_one(node)
    ]


def test_nothing_that_runs_what_it_reads_is_called_but_where_it_is_meant() -> None:
    found: dict[str, set[str]] = {name: set() for name in RUNS}
    for file, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and name_of(node.func) in RUNS:
                found[name_of(node.func)].add(file)

    assert found == RUNS


def test_no_command_goes_through_a_shell() -> None:
    assert places(lambda node: isinstance(node, ast.keyword) and node.arg == "shell") == []


def test_yaml_is_read_by_the_safe_loader_only() -> None:
    loaders = {
        name_of(node.value)
        for _, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "Loader"
    }

    assert loaders == {"yaml.SafeLoader"}


def test_certificates_are_checked_everywhere() -> None:
    names = ("_create_unverified_context", "CERT_NONE", "check_hostname")

    assert places(lambda node: isinstance(node, ast.Attribute) and node.attr in names) == []


def test_no_text_of_the_library_is_the_address_of_all_interfaces() -> None:
    assert places(lambda node: isinstance(node, ast.Constant) and node.value in ANYWHERE) == []


@pytest.mark.parametrize(
    "tag",
    [
        *(
            "!!python/object/apply:os.system ['id']",
            "!!python/object/new:os.system ['id']",
            "!!python/name:os.system ''",
        ),
        *("!!python/module:os ''", "!!python/object:os.system {}", "!!python/tuple [1]", "!local {a: b}"),
    ],
)
def test_a_tag_of_yaml_runs_nothing(tag: str) -> None:
    head = f"type: {COMPONENT}\nattributes:\n  tables:\n    - name: t\n      query: "

    for table in find_tables(head + tag, "defs.yaml"):
        with pytest.raises(DeclarationError):
            table.clauses()
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(tag)


def test_aliases_of_yaml_that_grow_without_end_take_no_time() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    text = f"type: {COMPONENT}\nattributes:\n  tables:\n    - name: t\n      query: *a29\n"

    for table in find_tables("\n".join(lines) + "\n" + text, "defs.yaml"):
        with pytest.raises(DeclarationError):
            table.clauses()

"""The folders say the sentence, and their imports keep its order."""

from __future__ import annotations

import ast
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import freshline

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "platform" / "freshline"

SENTENCE = ("values", "sql", "declare", "freshness", "query", "plan", "compute", "commit", "report")
# Packages that compose the sentence, and then those who call it. A door may import another door's client, not the
# reverse of the order here, except that `engine` is what every other door talks to.
AFTER_THE_SENTENCE = (
    "catalogs",
    "sources",
    "sinks",
    "merges",
    "refresh",
    "strategies",
    "ingest",
    "run",
    "reads",
    "manage",
)
DOORS = ("engine", "dagster", "cli", "testing")
# They import nothing else of the library.
ANYWHERE = ("errors", "version", "patterns", "keyed")


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """The modules a file imports, at any depth, with their lines."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            yield node.lineno, node.module or ""
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def part_of(module: str) -> str | None:
    """The folder of the library that a module is in, or None for other modules and the package itself."""
    names = module.split(".")
    return names[1] if names[0] == "freshline" and len(names) > 1 and not names[1].startswith("__") else None


def test_platform_is_still_pythons():
    assert platform.system() in {"Linux", "Darwin"}
    assert Path(platform.__file__).parent != ROOT
    assert not (ROOT / "platform" / "__init__.py").exists()
    assert not list((ROOT / "platform").glob("*.py"))


def test_every_folder_of_the_library_has_a_place_in_the_order():
    folders = {file.parent.name for file in LIBRARY.glob("*/__init__.py")}

    assert folders <= {*SENTENCE, *AFTER_THE_SENTENCE, *DOORS, *ANYWHERE}
    assert set(SENTENCE) <= folders


@pytest.mark.seconds
def test_a_folder_imports_from_those_before_it_only():
    allowed_in = {folder: {*ANYWHERE, *SENTENCE[: place + 1]} for place, folder in enumerate(SENTENCE)} | {
        "errors": {"errors"},
        "patterns": {"patterns"},
        "keyed": {"keyed"},
        "catalogs": {*ANYWHERE, *SENTENCE, "catalogs"},
        "sources": {*ANYWHERE, *SENTENCE[:-1], "sources"},
        "sinks": {*ANYWHERE, *SENTENCE, "sources", "sinks"},
        "merges": {*ANYWHERE, *SENTENCE[:-2], "merges"},
        "refresh": {*ANYWHERE, *SENTENCE, "sources", "sinks", "merges", "refresh"},
        "strategies": {*ANYWHERE, *SENTENCE, "sinks", "refresh", "strategies"},
        "ingest": {*ANYWHERE, *SENTENCE, "sources", "merges", "refresh", "ingest"},
        "run": {*ANYWHERE, *SENTENCE, "sources", "sinks", "merges", "refresh", "ingest", "run"},
        "reads": {*ANYWHERE, *SENTENCE, "sources", "refresh", "ingest", "run", "reads"},
        "manage": {*ANYWHERE, *SENTENCE, "manage"},
    }
    wrong = []
    for part, allowed in allowed_in.items():
        files = sorted((LIBRARY / part).rglob("*.py")) or [LIBRARY / f"{part}.py"]
        for file in files:
            if file.is_file():
                wrong += [
                    f"{file.relative_to(ROOT)}:{line} imports {module}"
                    for line, module in imports_of(file)
                    if part_of(module) is not None and part_of(module) not in allowed
                ]

    assert wrong == []


def test_no_folder_hides_a_public_name():
    """An imported folder is an attribute of the package: `freshline.read` would be a folder instead of the function."""
    folders = {file.parent.name for file in LIBRARY.glob("*/__init__.py")}

    assert folders.isdisjoint(freshline.__all__)


def test_no_module_is_a_drawer():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}

    assert not [file for file in LIBRARY.rglob("*.py") if file.stem in drawers]


@pytest.mark.seconds
def test_no_text_is_cut_by_splitlines():
    """`splitlines` also cuts at U+2028, U+2029, U+0085, 0B, 0C, 1C, 1D and 1E, which stand in values and names."""
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sorted(LIBRARY.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file)))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    ]

    assert wrong == [], "cut at the line feed: text.split('\\n')"


@pytest.mark.seconds
def test_private_modules_of_dagster_are_imported_in_one_place():
    """Each with its reason: the list is what an upgrade of Dagster has to go through."""
    place = LIBRARY / "dagster" / "internals.py"
    private = {
        f"{file.relative_to(ROOT)}:{line}": file
        for file in sorted(LIBRARY.rglob("*.py"))
        for line, module in imports_of(file)
        if re.match(r"dagster\w*(\.\w+)*\._(?!_)", module)
    }

    assert set(private.values()) == {place}, sorted(line for line, file in private.items() if file != place)
    lines = place.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines):
        if line.startswith("from dagster._"):
            module = line.split(" import ")[0]
            # A comment above it, or above the line before it of the same module.
            before = lines[number - 1]
            while before.startswith(("from dagster._", "    ", ")")):
                number -= 1
                before = lines[number - 1]
            assert before.startswith("# "), f"{module} has no reason"


HEAVY = ("pyspark", "dagster", "deltalake", "py4j", "pandas", "pyarrow", "opentelemetry", "openlineage", "thrift")


# Of connectors and formats the half that declarations and receipts need; reading them needs Spark.
LIGHT_SOURCES = (
    "sources/*/connector.py",
    "sources/*/position.py",
    *(
        f"sources/formats/{name}.py"
        for name in ("json", "csv", "avro", "json_schema", "debezium", "debezium_avro", "protobuf", "registry")
    ),
)
# Of catalogs the half that settings need.
LIGHT_CATALOGS = ("catalogs/*/registrar.py",)
# Of strategies the rules, which EXPLAIN asks, and of merges the half that declarations need.
RULES = (
    "strategies/*/rule.py",
    "merges/*_row.py",
    "merges/versioned.py",
    "merges/aggregate.py",
    "merges/partial_update.py",
)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "files",
    [
        *(f"{room}/**/*.py" for room in ("values", "sql", "declare", "freshness", "query", "plan", "manage", "cli")),
        *RULES,
        *LIGHT_SOURCES,
        *LIGHT_CATALOGS,
    ],
)
def test_importing_it_loads_nothing_heavy(files):
    modules = [
        ".".join(file.relative_to(LIBRARY.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in sorted(LIBRARY.glob(files))
    ]
    assert modules
    code = f"import sys\nfor name in {modules!r}: __import__(name)\nprint(sorted(set(sys.modules) & set({HEAVY!r})))"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert said.stdout.strip() == "[]", said.stderr

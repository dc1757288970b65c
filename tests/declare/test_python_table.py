"""Declarations in Python: what is read from them, and what each mistake gets."""

from __future__ import annotations

import importlib
import sys

import pytest

import freshline
from freshline.declare import project
from freshline.declare.python_file import load_function
from freshline.sources.formats.csv import Csv
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.query import PythonInput, PythonQuery, SqlQuery
from freshline.values.spec import Constraint, Downstream, Mode, OnViolation, SourceSpec, TableSpec
from tests.declared_project import Project

T = TableName(None, "t")

TABLE = """\
from datetime import timedelta

import freshline


@freshline.table(
    freshness=timedelta(minutes=5),
    primary_key=["id"],
    partitioned_by="day",
    mode="batch",
    options={"incremental": "strict", "history": timedelta(days=2), "owner": "ann"},
)
def t(orders, buyer=freshline.lookup("customers"), back=freshline.read("sales.returns")):
    \"\"\"What came back.\"\"\"
    return orders
"""


class LoadedHere:
    """Loads files in this process, which is the same without its start; the other one has tests of its own."""

    def __init__(self, settings) -> None:
        self._root = settings.root

    def __enter__(self) -> LoadedHere:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def read(self, file, text, path, name):
        return project.declare_python(self._root, file, text, path, name)


@pytest.fixture(autouse=True)
def loaded_here(monkeypatch) -> None:
    monkeypatch.setattr(project, "_python_loader", LoadedHere)


def table(project: Project, name: TableName = T) -> TableSpec:
    return project.read().table(name)


def test_a_decorated_function_is_a_table(shop):
    shop.table("sales.returns", "SELECT id FROM orders", header="FRESHNESS = INTERVAL '1' MINUTE")
    shop.declare("t.py", TABLE)
    spec = table(shop)

    assert isinstance(spec.query, PythonQuery)
    assert (spec.query.path, spec.query.function) == ("assets/t.py", "t")
    assert spec.query.inputs == (
        PythonInput("orders", TableName(None, "orders")),
        PythonInput("buyer", TableName(None, "customers"), lookup=True),
        PythonInput("back", TableName("sales", "returns")),
    )
    assert (spec.freshness, spec.refresh_mode, spec.columns) == (Freshness(300), Mode.BATCH, None)
    assert (spec.primary_key, spec.partitioned_by, spec.comment) == (("id",), ("day",), "What came back.")
    assert (spec.incremental_strict, spec.history_seconds, spec.owner) == (True, 172_800, "ann")
    assert str(spec.written_at) == "assets/t.py:6"


def test_a_function_in_a_namespace_folder_is_in_that_namespace(shop):
    shop.declare("sales/t.py", "import freshline\n\n@freshline.table\ndef t(orders):\n    return orders\n")
    assert str(table(shop, TableName("sales", "t")).name) == "sales.t"


def test_sql_may_be_written_in_python(shop):
    shop.declare(
        "t.py",
        'import freshline\n\n\nfreshline.table(\n    freshness="DOWNSTREAM",\n    query="""\n'
        '    SELECT id, customer\n    FROM orders\n""",\n    primary_key=\'id\',\n)\n',
    )
    shop.table("u", "SELECT id FROM t", header="FRESHNESS = INTERVAL '20' SECOND")
    spec = table(shop)

    assert isinstance(spec.query, SqlQuery)
    assert (spec.query.line, spec.columns, spec.primary_key) == (7, ("id", "customer"), ("id",))
    assert spec.freshness is Downstream.DOWNSTREAM
    assert shop.read().freshness(T) == Freshness(20)


def test_sql_in_python_is_reported_with_its_own_line(shop):
    shop.declare("t.py", 'import freshline\n\nfreshline.table(query="""\nSELECT id,\n  amont\nFROM orders""")\n')
    assert shop.error()[:2] == ("UNKNOWN_COLUMN", "assets/t.py:5")


def test_a_merge_of_sql_in_python_is_a_merge(shop):
    shop.declare(
        "t.py",
        "import freshline\nfreshline.table(query='SELECT id FROM orders', primary_key='id', "
        "options={'merge': 'first_row'})",
    )
    assert table(shop).merge is not None


def test_a_source_may_be_written_in_python(project):
    project.declare(
        "s.py",
        "import freshline\nfreshline.source(\n  columns=\"id INT, at TIMESTAMP METADATA FROM 'ingested_at'\",\n"
        "  connector='files', format='csv', path='landing/s', primary_key=['id'],\n"
        "  options={'header': False, 'max-record-bytes': 100}, freshness='1 minute', comment='c')\n",
    )
    source = project.read().spec(TableName(None, "s"))

    assert isinstance(source, SourceSpec)
    assert [column.name for column in source.columns] == ["id", "at"]
    assert isinstance(source.format, Csv)
    assert (source.format.header, source.max_record_bytes, source.primary_key) == (False, 100, ("id",))
    assert source.freshness == Freshness(60)
    assert source.comment == "c"


def test_a_declaration_that_is_imported_elsewhere_declares_nothing():
    @freshline.table(freshness="1 minute")
    def other(orders):
        return orders

    assert other(3) == 3
    assert freshline.table(query="SELECT 1 AS a") is None


HEAD = "import freshline\n\n"


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("text", "rule", "line", "said"),
    [
        ("def f():\n    return 1 / 0\n\nf()\n", "PYTHON_FILE", 4, "ZeroDivisionError: division by zero"),
        ("import not_there_at_all\n", "PYTHON_FILE", 3, "ModuleNotFoundError"),
        ("def f(:\n", "PYTHON_FILE", 3, "SyntaxError"),
        ("raise SystemExit(3)\n", "PYTHON_FILE", 3, "it ends the process"),
        ("freshline.table(quer='x')\n", "PYTHON_FILE", 3, "TypeError"),
        ("freshline.table(name='t', query=3)\n", "PYTHON_DECLARATION", 3, "query is 3"),
        ("@freshline.table\ndef u(orders):\n    return orders\n", "FILE_NAME", 3, "is that of t, and declares u"),
        ("@freshline.table\ndef t(*orders):\n    return orders\n", "PYTHON_DECLARATION", 3, "*orders"),
        ("@freshline.table\ndef t(orders=3):\n    return orders\n", "PYTHON_DECLARATION", 3, "has the default 3"),
        ("@freshline.table\ndef t(o=freshline.read('a.b.c')):\n    return o\n", "NAME", 3, "'a.b.c' is not a name"),
        ("@freshline.table\nasync def t(orders):\n    return orders\n", "PYTHON_DECLARATION", 3, "coroutine"),
        ("@freshline.table\ndef t(orders):\n    yield orders\n", "PYTHON_DECLARATION", 3, "generator"),
        ("@freshline.table\nclass t:\n    pass\n", "PYTHON_DECLARATION", 3, "decorates a function"),
        ("@freshline.table\ndef t(nothing):\n    return nothing\n", "UNKNOWN_UPSTREAM", 3, "t reads nothing"),
        (
            "freshline.table(query='SELECT 1 AS a')\n\nfreshline.table(query='SELECT 2 AS a')\n",
            "TWO_DECLARATIONS",
            5,
            "lines 3 and 5",
        ),
        (
            "def f():\n    @freshline.table\n    def t(orders):\n        return orders\nf()\n",
            "PYTHON_DECLARATION",
            4,
            "top level",
        ),
    ],
)
def test_a_mistake_is_reported_with_file_and_line(shop, text, rule, line, said):
    refused(shop, HEAD + text, rule, line, said)


def test_a_file_without_a_declaration_is_reported(shop):
    refused(shop, "x = 1\n", "NO_DECLARATION", 1, "declares nothing")


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("arguments", "rule", "said"),
    [
        ("freshness=30", "FRESHNESS_VALUE", "30 is not a freshness: it has no unit"),
        ("freshness='1 MONTH'", "FRESHNESS_VALUE", "1 MONTH"),
        ("primary_key=[1]", "PYTHON_DECLARATION", "a list of names"),
        ("comment=1", "PYTHON_DECLARATION", "comment is 1"),
        ("mode='fast'", "REFRESH_MODE", "there is no mode FAST"),
        ("options={'ownr': 'x'}", "UNKNOWN_OPTION", "owner"),
        ("options={'owner': 1.5}", "PYTHON_DECLARATION", "'owner' is 1.5"),
        ("options=['x']", "PYTHON_DECLARATION", "options is"),
        ("query='SELECT 1 AS a'", "PYTHON_FILE", "TypeError"),
        ("primary_key='id', options={'merge': 'first_row'}", "NOT_BUILT", "a merge over a table written in Python is"),
    ],
)
def test_a_mistake_in_an_argument_is_reported_with_file_and_line(shop, arguments, rule, said):
    refused(shop, f"{HEAD}@freshline.table({arguments})\ndef t(orders):\n    return orders\n", rule, 3, said)


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("columns", "rule", "said"),
    [("id TEXT", "COLUMN_TYPE", "no type TEXT"), ("id INT)", "SYNTAX", "a comma or the end")],
)
def test_a_mistake_in_the_columns_of_a_source_is_reported_with_file_and_line(shop, columns, rule, said):
    written = f"freshline.source(columns='{columns}', connector='files', format='json', path='x')\n"
    refused(shop, HEAD + written, rule, 3, said)


def refused(shop: Project, text: str, rule: str, line: int, said: str) -> None:
    shop.declare("t.py", text)
    shop.check_error(rule, said, at=f"assets/t.py:{line}")


def test_an_error_in_a_module_of_the_project_is_reported_where_it_was_raised(shop):
    shop.write("lib/__init__.py", "")
    shop.write("lib/broken.py", "a = 1\nb = {}['x']\n")
    shop.declare("t.py", HEAD + "from lib.broken import a\n")
    assert shop.error()[:2] == ("PYTHON_FILE", "lib/broken.py:2")


USES_LIB = (
    HEAD + "from lib.rate import RATE\n\n@freshline.table(comment=str(RATE))\ndef t(orders):\n    return orders\n"
)


def test_a_change_of_an_imported_module_is_picked_up_at_once(shop):
    shop.write("lib/rate.py", "RATE = 1\n")
    shop.declare("t.py", USES_LIB)
    first = table(shop)
    shop.write("lib/rate.py", "RATE = 2\n")
    second = table(shop)

    assert (first.comment, second.comment) == ("1", "2")
    assert first.fingerprint != second.fingerprint


def test_the_code_hash_covers_what_is_imported_near_and_far(shop):
    shop.write("lib/__init__.py", "")
    shop.write("lib/rate.py", "from . import deep\nRATE = 1\n")
    shop.write("lib/deep.py", "X = 1\n")
    shop.write("lib/other.py", "X = 1\n")
    shop.declare("t.py", USES_LIB)
    first = table(shop).fingerprint

    shop.write("lib/other.py", "X = 2\n")
    assert table(shop).fingerprint == first
    shop.write("lib/deep.py", "X = 2\n")
    assert table(shop).fingerprint != first


def test_freshness_comments_and_blank_lines_are_not_part_of_what_is_computed(shop):
    shop.declare("t.py", HEAD + "@freshline.table(\n  freshness='1 hour',\n)\ndef t(orders):\n    return orders\n")
    first = table(shop)
    shop.declare(
        "t.py",
        HEAD + "\n# why\n@freshline.table(freshness='1 day', comment='é')\ndef t(orders):\n    return orders  # all\n",
    )
    second = table(shop)
    shop.declare("t.py", HEAD + "@freshline.table(freshness='1 day')\ndef t(orders):\n    return orders.limit(1)\n")

    assert first.freshness != second.freshness
    assert first.fingerprint == second.fingerprint
    assert table(shop).fingerprint != first.fingerprint


@pytest.mark.seconds
@pytest.mark.parametrize("changed", ["a\n\nb", "a \nb", "a\nb\n"])
def test_a_text_of_several_lines_is_part_of_what_is_computed(shop, changed):
    text = HEAD + "TEXT = {q}{text}{q}  \n\n@freshline.table(freshness='1 hour')\ndef t(orders):\n    return orders\n"
    shop.declare("t.py", text.format(q='"""', text="a\nb"))
    first = table(shop).fingerprint
    shop.declare("t.py", text.format(q='"""', text=changed))

    assert table(shop).fingerprint != first


def test_reading_leaves_no_modules_and_no_path_behind(shop):
    shop.write("lib/rate.py", "RATE = 1\n")
    shop.declare("t.py", USES_LIB)
    modules, path = set(sys.modules), list(sys.path)
    table(shop)

    assert {
        name for name in set(sys.modules) - modules if name.startswith(("lib", "freshline_declaration", "t"))
    } == set()
    assert sys.path == path
    assert not list(shop.root.rglob("__pycache__"))


def test_modules_of_that_name_that_are_loaded_already_are_left_alone(shop, tmp_path, monkeypatch):
    other = tmp_path / "elsewhere"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "__init__.py").write_text("WHERE = 'elsewhere'\n")
    monkeypatch.syspath_prepend(str(other))
    lib = importlib.import_module("lib")

    try:
        shop.write("lib/rate.py", "RATE = 1\n")
        shop.write("lib/__init__.py", "")
        shop.declare("t.py", USES_LIB)
        table(shop)
        assert sys.modules["lib"] is lib
    finally:
        del sys.modules["lib"]


def test_two_files_of_one_name_do_not_collide(shop):
    text = HEAD + "SAID = '{0}'\n@freshline.table(comment=SAID)\ndef t(orders):\n    return orders\n"
    shop.declare("a/t.py", text.format("a"))
    shop.declare("b/t.py", text.format("b"))
    graph = shop.read()

    assert [graph.table(TableName(ns, "t")).comment for ns in ("a", "b")] == ["a", "b"]


def test_a_dataclass_in_a_declaration_loads(shop):
    shop.declare(
        "t.py",
        "from __future__ import annotations\nimport dataclasses, freshline\n\n@dataclasses.dataclass\nclass P:\n"
        "    a: int\n\n@freshline.table\ndef t(orders):\n    return orders\n",
    )
    assert shop.errors() == []


def test_the_function_is_loaded_for_whoever_computes_it(shop, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    shop.write("late_module.py", "def double(x):\n    return x * 2\n")
    shop.declare(
        "t.py",
        HEAD + "@freshline.table\ndef t(orders):\n    from late_module import double\n    return double(orders)\n",
    )
    query = table(shop).query
    assert isinstance(query, PythonQuery)

    try:
        function = load_function(shop.root, query)
        assert function(21) == 42
        assert function.__module__ not in sys.modules
    finally:
        sys.modules.pop("late_module", None)


def test_constraints_are_conditions_by_name(shop):
    shop.declare(
        "t.py",
        "import freshline\n\n@freshline.table(constraints={'named': 'customer IS NOT NULL', "
        "'positive': ('id > 0', 'drop row')})\ndef t(orders):\n    return orders\n",
    )

    assert table(shop).constraints == (
        Constraint("named", "customer IS NOT NULL"),
        Constraint("positive", "id > 0", OnViolation.DROP_ROW),
    )


@pytest.mark.seconds
@pytest.mark.parametrize("given", ["['id > 0']", "{'c': ('id > 0', 'IGNORE')}", "{'c': 1}", "{'a b': 'id > 0'}"])
def test_constraints_that_are_none_are_refused(shop, given):
    shop.declare("t.py", f"{HEAD}@freshline.table(constraints={given})\ndef t(orders):\n    return orders\n")

    assert shop.rules() == ["PYTHON_DECLARATION"]

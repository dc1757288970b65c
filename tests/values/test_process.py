"""`freshline.process`: the values read from its declaration, and the mistakes reported before any work."""

from __future__ import annotations

import pytest

from freshline.declare import project
from freshline.declare.project_settings import read_settings
from freshline.errors import DeclarationErrors
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.spec import TableSpec
from tests.declare.test_python_table import LoadedHere
from tests.declared_project import Project

ACT = """\
CREATE SOURCE act (id BIGINT, customer STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'files', 'path' = 'landing/act', 'format' = 'json')
"""
PLACE = """\
CREATE SOURCE place (id BIGINT, customer STRING, ts TIMESTAMP)
WITH ('connector' = 'delta', 'path' = 'place')
"""
TAKEOVER = """\
import freshline


@freshline.process(
    reads="act",
    keys=["customer"],
    order=["ts", "id"],
    columns="customer STRING, at TIMESTAMP",
    outputs={"refused": "id BIGINT, why STRING"},
    primary_key="customer",
    freshness="5 minutes",
)
class Takeover:
    \"\"\"Who lost an account.\"\"\"

    def row(self, row, out):
        out.emit(row.id, "late", to="refused")

    def timer(self, at, out):
        pass
"""


@pytest.fixture(autouse=True)
def loaded_here(monkeypatch) -> None:
    monkeypatch.setattr(project, "_python_loader", LoadedHere)


@pytest.fixture
def act(project: Project) -> Project:
    """A project with a log, a table that is read in place, and a class over the log."""
    project.declare("act.sql", ACT)
    project.declare("place.sql", PLACE)
    project.declare("takeover.py", TAKEOVER)
    return project


def table(act: Project, name: str) -> TableSpec:
    return open_project(read_settings(act.root, act.environ)).table(TableName.parse(name))


def errors(act: Project) -> list[tuple[str, str]]:
    with pytest.raises(DeclarationErrors) as raised:
        open_project(read_settings(act.root, act.environ))
    return [(error.rule, str(error.where)) for error in raised.value.errors]


def test_a_decorated_class_is_a_table_and_its_outputs_are_tables(act: Project) -> None:
    spec = table(act, "takeover")
    assert isinstance(spec.query, PythonQuery)
    process = spec.query.process
    assert process is not None
    assert (process.keys, process.order, process.has_timer) == (("customer",), ("ts", "id"), True)
    assert (spec.reads, spec.columns) == ((TableName.parse("act"),), ("customer", "at"))
    assert (spec.primary_key, spec.comment, spec.has_timers) == (("customer",), "Who lost an account.", True)
    side = table(act, "refused")
    assert (side.columns, side.primary_key, side.side_output_of) == (("id", "why"), (), spec.name)
    assert side.freshness == spec.freshness
    assert side.fingerprint != spec.fingerprint


@pytest.mark.seconds
def test_the_fingerprint_is_that_of_code_keys_order_and_columns(act: Project) -> None:
    before = table(act, "takeover").fingerprint
    for old, new, same in (
        ('freshness="5 minutes"', 'freshness="6 minutes"', True),
        ("# nothing\n", "", True),
        ('order=["ts", "id"]', 'order="ts"', False),
        ('keys=["customer"]', 'keys=["customer", "id"]', False),
        ("at TIMESTAMP", "at TIMESTAMP, n INT", False),
        ("row.id, ", "row.id + 1, ", False),
    ):
        act.declare("takeover.py", TAKEOVER.replace(old, new))
        assert (table(act, "takeover").fingerprint == before) is same, new


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [
        ('order=["ts", "id"]', "order=[]", "PROCESS_ORDER", 4),
        ('order=["ts", "id"]', 'order=["ts", "nr"]', "PROCESS_ORDER", 4),
        ('order=["ts", "id"]', 'order=["id"]', "PROCESS_ORDER", 4),
        ('keys=["customer"]', 'keys=["nobody"]', "UNKNOWN_COLUMN", 4),
        ('keys=["customer"]', "keys=[]", "PYTHON_DECLARATION", 4),
        ('reads="act"', 'reads="place"', "WATERMARK_MISSING", 4),
        ('reads="act"', 'reads="nothing"', "UNKNOWN_UPSTREAM", 4),
        ("at TIMESTAMP", "at WHEN", "COLUMN_TYPE", 8),
        ("at TIMESTAMP", "`at\\tonce` TIMESTAMP", "COLUMN_NAME", 8),
        ("at TIMESTAMP", "_Freshline_at TIMESTAMP", "RESERVED_NAME", 8),
        ("at TIMESTAMP", "_change_type TIMESTAMP", "RESERVED_NAME", 8),
        ("why STRING", "_Commit_Version STRING", "RESERVED_NAME", 9),
        ("at TIMESTAMP", "at TIMESTAMP, PRIMARY KEY (at)", "PYTHON_DECLARATION", 4),
        ("customer STRING, at", "customer INT, at", "PROCESS_KEY", 4),
        ("customer STRING, at", "customer BINARY, at", "PROCESS_KEY", 4),
        ('"id BIGINT, why STRING"', '"Customer DATE, why STRING"', "PROCESS_KEY", 4),
        ('primary_key="customer"', 'primary_key="id"', "PRIMARY_KEY", 4),
        ('to="refused"', 'to="declined"', "SIDE_OUTPUT", 17),
        ('"refused": "id', '"not a name": "id', "SIDE_OUTPUT", 4),
        ("outputs={", 'outputs={"takeover": "id INT", ', "DUPLICATE_NAME", 4),
        ("        pass", "        out.timer(datetime.now())", "PROCESS_CLOCK", 20),
        ("def row(", "def rows(", "PYTHON_DECLARATION", 4),
        ("def row(", "async def row(", "PYTHON_DECLARATION", 4),
        ("        pass", "        yield at", "PYTHON_DECLARATION", 4),
        ("why STRING", "to STRING", "PYTHON_DECLARATION", 4),
        ("        pass", "        self.n = 1", "PROCESS_STATE", 20),
        ("        pass", "        self.n += 1", "PROCESS_STATE", 20),
        ("        pass", "        for self.n, _ in at: pass", "PROCESS_STATE", 20),
        ("        pass", "        self.n: object = 1", "PROCESS_STATE", 20),
        ("    def timer(", "    n: dict[str] = None\n\n    def timer(", "PROCESS_STATE", 19),
        ("    def timer(", "    n: 'list[' = None\n\n    def timer(", "PROCESS_STATE", 19),
        ("    def timer(", "    n: list[int] = []\n\n    def timer(", "PROCESS_STATE", 4),
        ("primary_key=", "options={'merge': 'first_row'}, primary_key=", "NOT_BUILT", 4),
    ],
)
def test_a_mistake_is_reported_at_its_line(act: Project, old: str, new: str, rule: str, line: int) -> None:
    text = TAKEOVER.replace(old, new)
    assert text != TAKEOVER
    act.declare("takeover.py", text)
    found = errors(act)
    assert (rule, f"assets/takeover.py:{line}") in found, found


@pytest.mark.seconds
def test_a_column_with_the_name_of_a_key_takes_each_of_its_values(act: Project) -> None:
    text = TAKEOVER.replace('keys=["customer"]', 'keys=["id"]').replace("customer STRING, at", "id BIGINT, at")
    text = text.replace('primary_key="customer"', 'primary_key="ID"')
    for kind in ("BIGINT", "long", "DECIMAL(19,0)", "DECIMAL(25,4)"):
        act.declare("takeover.py", text.replace("id BIGINT", f"Id {kind}"))
        assert table(act, "takeover").columns == ("Id", "at")
    for kind in ("INT", "DECIMAL(18,0)", "DOUBLE", "STRING"):
        act.declare("takeover.py", text.replace("id BIGINT, at", f"id {kind}, at"))
        assert errors(act) == [("PROCESS_KEY", "assets/takeover.py:4")]
    # A table without all columns of the key has no key of its own.
    act.declare("takeover.py", text.replace("id BIGINT", "id INT").replace('["id"]', '["id", "customer"]'))
    assert table(act, "takeover").columns == ("id", "at")


@pytest.mark.seconds
def test_the_types_of_a_key_are_those_of_the_class_that_is_read(act: Project) -> None:
    text = TAKEOVER.replace('reads="act"', 'reads="takeover"').replace('order=["ts", "id"]', 'order="at"')
    text = text.replace("def timer(", "def other(").replace('    outputs={"refused": "id BIGINT, why STRING"},\n', "")
    text = text.replace(', to="refused"', "")
    act.declare("again.py", text)
    assert table(act, "again").columns == ("customer", "at")
    act.declare("again.py", text.replace("customer STRING", "customer INT"))
    assert errors(act) == [("PROCESS_KEY", "assets/again.py:4")]


def test_a_class_without_timers_needs_no_watermark(act: Project) -> None:
    text = TAKEOVER.replace("def timer(", "def other(").replace('reads="act"', 'reads="place"')
    act.declare("takeover.py", text)
    assert not table(act, "takeover").has_timers


def test_timers_run_by_the_windows_of_a_final_table(act: Project) -> None:
    act.table(
        "per_hour",
        "SELECT window_end, customer, count(*) AS acts FROM TUMBLE(TABLE act, DESCRIPTOR(ts), INTERVAL '1' HOUR)\n"
        "GROUP BY window_end, customer",
        header="FRESHNESS = DOWNSTREAM EMIT FINAL",
    )
    text = TAKEOVER.replace('reads="act"', 'reads="per_hour"').replace('["ts", "id"]', '["window_end"]')
    act.declare("takeover.py", text)
    assert table(act, "takeover").has_timers
    act.declare("takeover.py", text.replace('["window_end"]', '["acts"]'))
    assert errors(act) == [("WATERMARK_MISSING", "assets/takeover.py:4")]


def test_an_output_that_nobody_reads_is_as_fresh_as_its_table(act: Project) -> None:
    act.declare("takeover.py", TAKEOVER.replace('freshness="5 minutes"', 'freshness="DOWNSTREAM"'))
    assert errors(act) == [("FRESHNESS_DOWNSTREAM", "assets/takeover.py:4")] * 2
    act.table("alarm", "SELECT customer FROM takeover", header="FRESHNESS = INTERVAL '3' MINUTE")
    graph = open_project(read_settings(act.root, act.environ))
    assert {graph.freshness(TableName.parse(name)).seconds for name in ("takeover", "refused", "act")} == {180}


BASE = """\
class Base:
    total: int = 0

    def add(self, n):
        self.total += n
        self._last: int | None = n
"""
STATE = """\
from typing import ClassVar, Optional

import freshline
from base import Base


@freshline.process(reads="act", keys="id", order="ts", columns="id BIGINT, n INT")
class Stateful(Base):
    NAMES: ClassVar[list[str]] = []
    seen: "Optional[dict[str, int]]" = None

    def __init__(self):
        self.__hidden: tuple[int, ...] = ()
        self.half = 2

    @property
    def half(self):
        return self.total // 2

    @half.setter
    def half(self, n):
        self.total = 2 * n

    @staticmethod
    def helped(other):
        other.any = 1

    def row(self, row, out):
        self.add(1)
        row.n = 5
"""


def test_the_state_is_declared_in_the_class_where_it_is_set_and_in_classes_above(act: Project) -> None:
    (act.root / "base.py").write_text(BASE)
    act.declare("stateful.py", STATE)
    spec = table(act, "stateful")
    assert isinstance(spec.query, PythonQuery)
    assert spec.query.process is not None
    assert dict(spec.query.process.state) == {
        "total": "int",
        "_last": "int | None",
        "seen": "dict[str, int] | None",
        "_Stateful__hidden": "tuple[int, ...]",
    }


def test_an_attribute_that_a_class_above_does_not_declare_is_reported_at_the_decorator(act: Project) -> None:
    (act.root / "base.py").write_text(BASE.replace("_last: int | None", "_last"))
    act.declare("stateful.py", STATE)
    assert errors(act) == [("PROCESS_STATE", "assets/stateful.py:7")]

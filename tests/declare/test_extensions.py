"""An extension that is wrong is named: its package, the class and the method, and nothing else takes the blame."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from freshline.declare.project_settings import read_settings
from freshline.errors import DeclarationErrors, ExtensionFailedError
from freshline.plan.project import open_project
from freshline.values import extension, registry
from freshline.values.position import UnknownPosition, position_from_json, require_known, require_lasting
from freshline.values.receipt import Receipt
from freshline.values.registry import ExtensionError, find_connector
from tests.sources.stranger import on_the_path, stranger, write_package

SOURCE = """CREATE SOURCE s (id INT)
WITH ('connector' = 'spool', 'format' = 'pairs', 'path' = 'm', 'token' = '${env:T}')"""
TABLE = "CREATE MATERIALIZED TABLE m (PRIMARY KEY (id))\nWITH ('merge' = 'it')\nAS SELECT id FROM orders"
OLD = {"kind": "spool", "queue": "queue-1", "next": 3}
MERGE = """
from dataclasses import dataclass
from freshline.values.merge import Merge
from freshline.values.options import Option

@dataclass(frozen=True)
class It(Merge):
    by: str = ""
    name = "it"
    options = (Option("it.by", "the order", required="the column of the order", field="by"),)

    def fold(self, rows, spec):
        return rows
"""


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    extension._logged.clear()
    return folder


def put_merge(site, code=MERGE):
    (site / "merging.py").write_text(code)
    write_package(site, "merging", {"freshline.merges": {"it": "merging:It"}}, version="3.1")
    return on_the_path(site, ("merging",))


def changed(site, **modules):
    """The package of the page with some of its text put otherwise: old and new, by module."""
    installed = stranger(site)
    installed.__enter__()
    for module, pairs in modules.items():
        file = site / f"{module}.py"
        code = file.read_text()
        for old, new in pairs:
            assert old in code
            code = code.replace(old, new)
        file.write_text(code)
    installed.__exit__(None, None, None)
    return on_the_path(site)


def as_freshline(call, kind):
    """A call as a module of freshline makes it."""
    exec(compile(call, "anywhere.py", "exec"), {"kind": kind, "__name__": "freshline.anywhere"})


# -- positions


def test_a_position_that_its_package_cannot_read_is_kept_and_the_receipt_stays_readable(site, caplog):
    text = json.dumps(
        {
            "freshline": 3, "table": "s", "fingerprint": "f", "epoch": 1, "seq": 1, "mode": "continuous",
            "strategy": "append", "reason": "NEW_RECORDS(3)", "data_timestamp": None, "positions": {"s": OLD},
            "rows_in": 3, "rows_out": 3, "rejected": 0, "attempt": "a",
        }
    )  # fmt: skip
    with changed(site, spool=[('value["queue"]', 'value["queue_id"]')]), caplog.at_level(logging.ERROR):
        receipt = Receipt.from_json(text)
        assert receipt is not None
        (position,) = receipt.positions.values()
        assert isinstance(position, UnknownPosition)
        assert json.loads(receipt.to_json())["positions"] == {"s": OLD}
        with pytest.raises(ExtensionFailedError) as raised:
            require_known(position, None)

    said = str(raised.value)
    assert raised.value.code == "EXTENSION_FAILED"
    assert said.startswith("SpoolPosition.from_json of freshline-spool 1.0 cannot read the position")
    assert "it raised KeyError: 'queue_id' (spool.py:23)" in said
    assert "move the table" not in said
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.getMessage().startswith("SpoolPosition.from_json of freshline-spool 1.0 raised KeyError")


@pytest.mark.parametrize("given", ["None", "(1, 2)"])
def test_a_position_that_reading_turns_into_something_else_is_not_taken_for_the_beginning(site, given):
    with changed(site, spool=[("return cls(str(value", f"return {given}\n        return cls(str(value")]):
        position = position_from_json(OLD)
        with pytest.raises(ExtensionFailedError, match=rf"gives {re.escape(given)}, which is no SpoolPosition"):
            require_known(position, None)
        connector = find_connector("spool")
        with pytest.raises(ExtensionFailedError, match="Spool.position of freshline-spool 1.0 gives 5, which is no"):
            require_lasting(None, 5, connector, None)  # type: ignore[arg-type]


def test_a_traceback_is_logged_once_and_not_at_each_check(site, caplog):
    with changed(site, spool=[('value["queue"]', 'value["queue_id"]')]), caplog.at_level(logging.ERROR):
        for _ in range(5):
            position_from_json(OLD)

    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_call_by_the_package_itself_is_left_as_it_is(site):
    with changed(site, spool=[('value["queue"]', 'value["queue_id"]')]):
        kind = find_connector("spool").position
        assert kind is not None
        with pytest.raises(KeyError):
            kind.from_json(OLD)


@pytest.mark.parametrize(
    ("pairs", "method", "said"),
    [
        (
            [('"next": self.next}', '"next": self.next - 1}')],
            "from_json",
            "gives another position than `as_json` wrote",
        ),
        ([('{"kind": self.kind, ', "{")], "as_json", "does not have the kind 'spool'"),
        ([('"next": self.next}', '"next": {self.next}}')], "as_json", "which JSON cannot have"),
        ([('value["queue"]', 'value["queue_id"]')], "from_json", "KeyError: 'queue_id'"),
        ([("@dataclass(frozen=True)\nclass SpoolP", "@dataclass(eq=False)\nclass SpoolP")], "from_json", "another pos"),
        (
            [("    def as_json", "    def __eq__(self, other):\n        return True\n\n    def as_json")],
            "__eq__",
            "equal",
        ),
    ],
    ids=["does not come back", "no kind", "no JSON", "raises", "compared as objects", "all are equal"],
)
def test_a_position_that_would_not_come_back_is_refused_before_it_is_committed(site, pairs, method, said):
    with changed(site, spool=pairs):
        connector = find_connector("spool")
        kind: Any = connector.position
        with pytest.raises(ExtensionFailedError, match="of freshline-spool 1.0") as raised:
            require_lasting(kind("queue-1", 2), kind("queue-1", 3), connector, None)

    assert raised.value.method == f"SpoolPosition.{method}"
    assert said in str(raised.value)


def test_positions_as_the_page_shows_them_are_committed(site):
    with stranger(site):
        connector = find_connector("spool")
        kind: Any = connector.position
        require_lasting(None, kind("queue-1", 2), connector, None)
        require_lasting(kind("queue-1", 2), kind("queue-1", 2), connector, None)


# -- declarations


BAD_DECLARE = "    @classmethod\n    def declare(cls, options):\n        return cls(1)\n\n"
BAD_FORMAT = "    @classmethod\n    def find_problems(cls, columns):\n        return 1 / 0\n\n"
BAD_CONNECTOR = "    def find_problems(self, *, has_key):\n        return self.nothing\n\n"
BAD_VALUE = "    def __post_init__(self):\n        raise OSError('no licence')\n\n"


def before(method, code):
    """A method that is put before another one."""
    return [(f"    def {method}", f"{code}    def {method}")]


@pytest.mark.parametrize(
    ("module", "pairs", "said"),
    [
        ("spool", before("resolve", BAD_CONNECTOR), "Spool.find_problems of {} raised AttributeError: "),
        ("spool", before("resolve", BAD_VALUE), "Spool.declare of {} raised OSError: no licence (spool.py:"),
        ("spool", [("(self, path=", "(self, paths=")], "Spool.resolve of {} raised TypeError"),
        ("pairs", before("decode", BAD_FORMAT), "Pairs.find_problems of {} raised ZeroDivisionError: "),
        ("pairs", before("decode", BAD_DECLARE), "Pairs.declare of {} raised TypeError"),
    ],
    ids=["find_problems", "post_init", "resolve", "of a format", "declare of a format"],
)
def test_an_exception_in_a_declaration_is_an_error_at_its_line(project, site, module, pairs, said):
    project.inputs()
    project.declare("s.sql", SOURCE)
    with changed(site, **{module: pairs}):
        rule, where, message = project.error()

    assert (rule, where.partition(":")[0]) == ("EXTENSION", "assets/s.sql")
    assert message.startswith(said.format("freshline-spool 1.0"))
    assert message.endswith("Correct the package, or install another version of it.")


def test_other_mistakes_of_the_declaration_are_reported_beside_it(project, site):
    project.declare("s.sql", SOURCE.replace("'path' = 'm'", "'bach' = '5'"))
    declare = "    @classmethod\n    def declare(cls, options):\n        return cls(1)\n\n"
    with changed(site, pairs=[("    def decode", declare + "    def decode")]):
        rules = project.rules()

    assert sorted(rules) == ["EXTENSION", "OPTION_NEEDS", "UNKNOWN_OPTION"]


def test_a_merge_names_the_options_that_it_needs(project, site):
    project.inputs()
    project.declare("m.sql", TABLE)
    with put_merge(site):
        message = project.check_error("OPTION_NEEDS", at="assets/m.sql:2")
        project.declare("m.sql", TABLE.replace("'it'", "'it', 'it.by' = 'id'"))
        assert project.errors() == []

    assert message == "'merge' = 'it' needs the option 'it.by': the column of the order."


FAILING = {
    "declare": "    @classmethod\n    def declare(cls, options):",
    "find_problems": "    def find_problems(self, spec):",
    "why_not_ignore": "    def why_not_ignore(self, spec):",
    "expressions": "    @property\n    def expressions(self):",
    "meaning": "    @property\n    def meaning(self):",
    "helpers": "    @property\n    def helpers(self):",
}


@pytest.mark.parametrize("method", FAILING)
def test_an_exception_of_a_merge_is_an_error_at_its_table(project, site, method):
    code = MERGE.replace(', required="the column of the order"', "")
    project.inputs()
    project.declare("m.sql", TABLE.replace("'it'", "'it', 'upstream-deletes' = 'ignore'"))
    with (
        put_merge(site, f"{code}\n{FAILING[method]}\n        raise KeyError('nothing')\n"),
        pytest.raises(DeclarationErrors) as raised,
    ):
        open_project(read_settings(project.root, {}))

    (error,) = raised.value.errors
    assert (error.rule, (error.where or "").partition(":")[0]) == ("EXTENSION", "assets/m.sql")
    assert error.message.startswith(f"It.{method} of merging 3.1 raised KeyError: 'nothing' (merging.py:")


@pytest.mark.parametrize("name", ["shown", "meaning", "left_behind", "dataset", "retained_above"])
def test_a_property_that_only_people_see_is_tried_when_the_source_is_declared(project, site, name):
    project.declare("s.sql", SOURCE)
    last = '        return {"path": self.path}\n'
    code = f"\n    @property\n    def {name}(self):\n        raise KeyError('nothing')\n"
    with changed(site, spool=[(last, last + code)]):
        message = project.check_error("EXTENSION")

    assert message.startswith(f"Spool.{name} of freshline-spool 1.0 raised KeyError: 'nothing'")


# -- what cannot be used at all

CLASSES = {
    "connectors": "from freshline.values.connector import Connector as Base, Position\n",
    "formats": "from freshline.values.format import Format as Base\n",
    "merges": "from freshline.values.merge import Merge as Base\n",
    "strategies": "from freshline.plan.strategy import RefreshStrategy as Base\n",
}


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no licence')", "'it' of odd 1.0 does not load: odd:It: RuntimeError: no licence"),
        ("import not_there", "'it' of odd 1.0 does not load: odd:It: ModuleNotFoundError"),
        ("raise SystemExit('no licence')", "'it' of odd 1.0 does not load: odd:It: SystemExit: no licence"),
        ("It = 5", "'it' of odd 1.0 is no "),
        ("class It(Base):\n    pass", "'it' of odd 1.0 calls itself 'None'"),
    ],
)
def test_each_kind_of_extension_that_does_not_load_is_named(site, kind, code, said):
    group = f"freshline.{kind}"
    (site / "odd.py").write_text(CLASSES[kind] + code)
    write_package(site, "odd", {group: {"it": "odd:It"}})
    with on_the_path(site, ("odd",)), pytest.raises(ExtensionError) as raised:
        registry._from_outside("it", group)

    assert said in str(raised.value)


@pytest.mark.parametrize("kind", CLASSES)
def test_each_kind_of_extension_that_two_packages_have_is_refused_with_both(site, kind):
    group = f"freshline.{kind}"
    for name in ("one", "two"):
        write_package(site, name, {group: {"it": f"{name}:It"}})
    with on_the_path(site), pytest.raises(ExtensionError, match="'it' is in one 1.0 and two 1.0. Uninstall all but"):
        registry._from_outside("it", group)


DECODE = "    def decode(self, records, spec, columns): ...\n"
TITLED = "    title = 'it'\n"


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("formats", "    rejections = {'A': 'b'}", "lacks decode"),
        ("formats", DECODE, "has no `rejections`"),
        ("formats", f"    rejections = {{}}\n{DECODE}", "has no `rejections`"),
        ("formats", f"    rejections = {{'A': ''}}\n{DECODE}", "has no `rejections`"),
        ("merges", "    pass", "lacks fold"),
        ("strategies", "    pass", "lacks find_step"),
        ("connectors", "    pass", "has no `title`"),
        ("connectors", TITLED, "has no `position`"),
        ("connectors", f"{TITLED}    class position(Position):\n        kind = 'that'", "positions of the kind 'that'"),
        ("connectors", f"{TITLED}    is_log = False\n    options = 5", "has `options` that are no tuple of Option"),
    ],
)
def test_a_class_that_lacks_a_part_of_its_seam_is_refused_when_it_is_declared(site, kind, body, said):
    group = f"freshline.{kind}"
    (site / "odd.py").write_text(f"{CLASSES[kind]}class It(Base):\n    name = 'it'\n{body}\n")
    write_package(site, "odd", {group: {"it": "odd:It"}})
    with on_the_path(site, ("odd",)), pytest.raises(ExtensionError) as raised:
        registry._from_outside("it", group)

    assert "'it' of odd 1.0 cannot be used: odd:It" in str(raised.value)
    assert said in str(raised.value)


# -- the guard


def test_members_of_every_kind_are_guarded_and_stay_what_they_are(site):
    code = """
from dataclasses import dataclass
from functools import cached_property
from freshline.values.merge import Merge

class Mixin:
    def complete(self, rows, spec):
        "Its own words."
        raise LookupError("mixed in")

@dataclass(frozen=True)
class It(Mixin, Merge):
    name = "it"

    @classmethod
    def declare(cls, options):
        raise LookupError("of the class")

    @property
    def helpers(self):
        raise LookupError("a property")

    @cached_property
    def expressions(self):
        raise LookupError("kept")

    def fold(self, rows, spec):
        return self.helpers

    def own(self):
        raise LookupError("no part of the seam")
"""
    with put_merge(site, code):
        kind = registry.find_merge("it")
        assert kind.complete.__doc__ == "Its own words."
        calls = {
            "declare": "kind.declare(None)",
            "helpers": "kind().helpers",
            "expressions": "kind().expressions",
            "complete": "kind().complete(None, None)",
            # The method that freshline called is the one that is named.
            "fold": "kind().fold(None, None)",
        }
        for method, call in calls.items():
            with pytest.raises(ExtensionFailedError, match=f"^It.{method} of merging 3.1 raised LookupError"):
                as_freshline(call, kind)
        with pytest.raises(LookupError, match="no part of the seam"):
            as_freshline("kind().own()", kind)


def test_classes_of_freshline_are_left_as_they_are():
    for kind in (*registry.shipped_connectors(), *registry.shipped_formats(), *registry.shipped_merges()):
        assert not [name for name, member in vars(kind).items() if hasattr(member, extension._GUARDED)]

"""A connector, format or merge of another package that fails in a refresh is named, and costs no committed row."""

from __future__ import annotations

import logging

import pytest

from freshline.errors import ExtensionFailedError, RequestError
from freshline.reads.sql import query
from freshline.testing.claims import ClaimError
from freshline.testing.connectors import SECRET
from freshline.testing.formats import FormatClaims
from freshline.values import extension
from tests.merges.test_stranger import ENTRIES as MERGES
from tests.sources.stranger import ENTRIES, MODULES, code_of_page, on_the_path, write_package
from tests.sources.test_conformance import PairsInFiles, SpoolFile

# Each method of the page's classes begins with a check of a variable, which names the one that fails.
FAIL = "__import__('os').environ.get('FAILS') == {name!r} and {{}}['nothing']"
PACKAGE = "freshline-spool 1.0"


def failing(code):
    """The module with a check of the variable at the beginning of each method."""
    lines = []
    for line in code.split("\n"):
        lines.append(line)
        if line.startswith("    def ") and line.endswith(":"):
            name = line.split("def ")[1].split("(")[0]
            lines.append(" " * 8 + FAIL.format(name=name))
    return "\n".join(lines)


@pytest.fixture
def spool(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("SYSTEM_SECRET", SECRET)
    monkeypatch.delenv("FAILS", raising=False)
    extension._logged.clear()
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for name, code in code_of_page().items():
        code = failing(code) if name == "spool_reader" else code
        if name == "spool_reader":
            for method in ("finish(self, spark)", "waiting(self, left)", "close(self)", "partitions(self, *a)"):
                call = method.replace("self, ", "").replace("self", "")
                code += f"\n    def {method}:\n        {FAIL.format(name=method.split('(')[0])}\n"
                code += f"        return super().{call}\n"
        if name == "spool":
            opened = "    def open(self, spec, host):\n        return super().open(spec, host)\n\n"
            code = code.replace("    def resolve(", f"{opened}    def resolve(")
            code = failing(code).replace(FAIL.format(name="shown"), "pass")
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    write_package(folder, "freshline-spool", ENTRIES)
    with on_the_path(folder, MODULES):
        yield SpoolFile(lab, tmp_path)


def test_a_reader_that_is_not_where_its_connector_says_is_named(spool, lab, monkeypatch):
    spool.declare()
    kind = type(lab.runtime.graph.sources[0].connection)
    monkeypatch.setattr(kind, "reader", "spool_writer:SpoolReader")
    spool.send({"id": 1, "a": "x"})
    error = lab.refresh("s").error

    assert (error.code, error.message.partition(" (")[0]) == (
        "EXTENSION_FAILED",
        f"Spool.open of {PACKAGE} raised ModuleNotFoundError: No module named 'spool_writer'",
    )


def test_each_method_of_a_connector_that_fails_is_named_and_the_next_refresh_goes_on(spool, lab, monkeypatch, caplog):
    spool.declare(batch="2")
    spool.send({"id": 1, "a": "x"})
    for method, name in (
        ("open", "Spool.open"),
        ("inspect", "SpoolReader.inspect"),
        ("cut", "SpoolReader.cut"),
        ("read", "SpoolReader.read"),
        ("as_json", "SpoolPosition.as_json"),
        ("waiting", None),
    ):
        monkeypatch.setenv("FAILS", method)
        with caplog.at_level(logging.ERROR):
            outcome = lab.refresh("s")
        if name is None:
            continue
        assert (outcome.state, outcome.rows_out, outcome.error.code) == ("FAILED", 0, "EXTENSION_FAILED"), method
        assert outcome.error.message.startswith(f"{name} of {PACKAGE} raised KeyError: 'nothing' (spool"), method
        assert outcome.error.where.startswith("s (assets/s.sql:1)"), method
        assert outcome.error.message in outcome.reason
        lab.restart()
    monkeypatch.delenv("FAILS")
    reader = lab.runtime.reader(lab.runtime.graph.sources[0])
    spool.send({"id": 2, "a": "x"})
    for method in ("inspect", "cut", "read"):
        with monkeypatch.context() as patch:
            patch.setattr(type(reader), method, lambda self, *about: 5)
            message = lab.refresh("s").error.message
        assert message.startswith(f"SpoolReader.{method} of {PACKAGE} gives 5, which is no ")
    assert any(record.exc_info for record in caplog.records)

    assert lab.refresh("s").rows_out == 1
    assert [row["id"] for row in lab.rows("s")] == [1, 2]


def test_a_receipt_that_the_package_cannot_read_fails_the_source_alone(spool, lab, monkeypatch):
    spool.declare()
    spool.send({"id": 1, "a": "x"})
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '5' MINUTE AS SELECT count(*) AS n FROM s")
    lab.refresh("t")
    spool.send({"id": 2, "a": "y"})
    monkeypatch.setenv("FAILS", "from_json")
    lab.restart(lose_control_store=True)
    outcome = lab.refresh("s")

    assert (outcome.state, outcome.error.code) == ("FAILED", "EXTENSION_FAILED")
    said = outcome.error.message
    assert said.startswith(f"SpoolPosition.from_json of {PACKAGE} cannot read the position that the newest receipt has")
    assert "move the table" not in said
    # Everything else goes on: rows, the status, and the table over it.
    assert [row["id"] for row in lab.rows("s")] == [1]
    assert {str(status.table) for status in lab.status()} == {"s", "t"}
    assert lab.refresh("t", upstreams=False).error is None
    with pytest.raises(ExtensionFailedError, match="SpoolPosition.from_json of freshline-spool 1.0 cannot read"):
        lab.union("s")

    monkeypatch.delenv("FAILS")
    assert lab.refresh("s").rows_out == 1
    assert [row["id"] for row in lab.rows("s")] == [1, 2]


def test_a_failure_after_a_commit_does_not_hide_the_rows(spool, lab, monkeypatch):
    spool.declare(batch="2")
    spool.send({"id": 1, "a": "x"})
    for method in ("release", "finish"):
        monkeypatch.setenv("FAILS", method)
        outcome = lab.refresh("s")
        assert (outcome.state, outcome.rows_out, outcome.committed) == ("SUCCEEDED", 1, True), method
        (problem,) = outcome.problems
        assert problem.message.startswith(f"SpoolReader.{method} of {PACKAGE} raised KeyError: 'nothing'")
        spool.send({"id": 2, "a": "y"})
    monkeypatch.delenv("FAILS")
    spool.send({"id": 3, "a": "x"}, {"id": 4, "a": "y"})
    reader = lab.runtime.reader(lab.runtime.graph.sources[0])
    read, calls = type(reader).read, []

    def second(self, spark, portion):
        calls.append(portion)
        if len(calls) == 2:
            raise OSError("the queue is gone")
        return read(self, spark, portion)

    # As the class has it, with the guard.
    guarded = type("SpoolReader", (type(reader),), {"read": second, "__module__": type(reader).__module__})
    reader.__class__ = guarded
    outcome = lab.refresh("s")

    assert (outcome.state, outcome.rows_out, outcome.committed) == ("FAILED", 2, True)
    assert outcome.error.message.startswith(f"SpoolReader.read of {PACKAGE} raised OSError: the queue is gone")
    assert outcome.version == lab.refresh("s", upstreams=False).version - 1
    assert [row["id"] for row in lab.rows("s")] == [1, 2, 2, 3, 4]


def test_open_has_to_return_a_reader_and_one_that_does_not_close_is_replaced(spool, lab, monkeypatch, caplog):
    spool.declare()
    spool.send({"id": 1, "a": "x"})
    lab.refresh("s")
    monkeypatch.setenv("FAILS", "close")
    # Declared otherwise, so that another reader is opened.
    spool.declare(batch="7")
    assert lab.refresh("s").error is None
    assert "the connection of s is not closed: " in caplog.text
    monkeypatch.delenv("FAILS")

    spec = lab.runtime.graph.sources[0]
    lab.runtime.forget_reader(spec.name)
    monkeypatch.setattr(type(spec.connection), "open", lambda self, spec, host: 5)
    outcome = lab.refresh("s")
    assert outcome.error.message.startswith(f"Spool.open of {PACKAGE} gives 5, which is no Reader")


def test_a_union_read_names_the_method_that_failed(spool, lab, monkeypatch):
    spool.declare()
    spool.send({"id": 1, "a": "x"})
    lab.refresh("s")
    spool.send({"id": 2, "a": "y"})
    for method in ("find_tail", "tail"):
        monkeypatch.setenv("FAILS", method)
        with pytest.raises(
            ExtensionFailedError, match=rf"SpoolReader.{method} of {PACKAGE} raised KeyError: 'nothing'"
        ):
            lab.union("s")


def test_a_format_that_fails_is_named_in_the_engine_and_in_its_tasks(lab, tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    pairs = code_of_page()["pairs"]
    begins = "        pairs = F.split"
    in_task = "        fail = F.udf(lambda text: {}[text])\n        records = records.withColumn('x', fail(VALUE))\n"
    in_task += "        records = records.where('x IS NULL')\n"
    refused = "        records = records.select('nothing')\n"
    write_package(folder, "freshline-spool", ENTRIES)
    for extra, method, said in (
        ("        {}['nothing']\n", "Pairs.decode", "raised KeyError: 'nothing' (pairs.py:"),
        (refused, "Pairs.decode", "raised AnalysisException: [UNRESOLVED_COLUMN"),
        (in_task, "Pairs.<lambda>", "raised KeyError: 'id=1|a=x' (pairs.py:"),
    ):
        (folder / "pairs.py").write_text(pairs.replace(begins, extra + begins), encoding="utf-8")
        with on_the_path(folder, MODULES):
            lab.restart()
            system = PairsInFiles(lab, tmp_path / method[-8:] / str(len(extra)))
            system.declare()
            system.send({"id": 1, "a": "x"})
            outcome = lab.refresh("s")
        assert (outcome.state, outcome.error.code) == ("FAILED", "EXTENSION_FAILED"), outcome.error
        assert outcome.error.message.startswith(f"{method} of {PACKAGE} {said}")


def test_a_code_that_a_format_does_not_declare_is_in_quarantine_with_a_sentence(lab, tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    pairs = code_of_page()["pairs"].replace('F.lit("NOT_PAIRS")', 'F.lit("NOT_DECLARED")')
    (folder / "pairs.py").write_text(pairs, encoding="utf-8")
    write_package(folder, "freshline-spool", ENTRIES)
    with on_the_path(folder, MODULES):
        system = PairsInFiles(lab, tmp_path)
        system.declare()
        system.send({"id": 1, "a": "x"}, system.broken)
        outcome = lab.refresh("s")
        with pytest.raises(
            ClaimError, match=r"codes in quarantine that are not in `rejections`: found \['NOT_DECLARED'\]"
        ):
            FormatClaims().test_every_code_of_quarantine_is_one_that_it_declares(lab, system)

    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 1, 1)
    (rejected,) = lab.quarantine("s")[:1]
    assert (rejected["error"], rejected["message"]) == (
        "NOT_DECLARED",
        "the format gives this code, and has no sentence for it in `rejections`",
    )


# -- merges

MAJORITY = "freshline-majority 1.0"
TABLE = """CREATE MATERIALIZED TABLE m (PRIMARY KEY (k)) WITH ('merge' = 'majority'{})
FRESHNESS = INTERVAL '1' MINUTE AS SELECT k, v FROM s"""


@pytest.fixture
def majority(lab, tmp_path, monkeypatch):
    """The merge of the page, whose fold does what a variable says."""
    monkeypatch.delenv("FAILS", raising=False)
    extension._logged.clear()
    folder = tmp_path / "site"
    folder.mkdir()
    code = code_of_page("extending.md")
    code["majority"] = code["majority"].replace(
        "        return most_common(rows, spec, self.at_least)\n",
        """        import os
        from pyspark.sql import functions as F
        found = most_common(rows, spec, self.at_least)
        match os.environ.get("FAILS"):
            case "raises":
                raise LookupError("no rows")
            case "twice":
                return found.unionByName(found.where("k = 2").withColumn("v", F.lit("second")))
            case "null":
                return found.withColumn("k", F.lit(None).cast("int"))
            case "column":
                return found.select("k")
            case "refused":
                return found.select("nothing")
            case "task":
                return found.withColumn("v", F.udf(lambda v: {}[v])("v"))
            case "none":
                return None
        return found
""",
    )
    for module in ("majority", "majority_rows"):
        (folder / f"{module}.py").write_text(code[module], encoding="utf-8")
    write_package(folder, "freshline-majority", MERGES)
    with on_the_path(folder, ("majority", "majority_rows")):
        lab.files("s", "k INT, v STRING")
        lab.declare(TABLE.format(""))
        lab.land("s", "1.json", [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}])
        yield lab


WRONG = {
    "raises": "Majority.fold of freshline-majority 1.0 raised LookupError: no rows (majority.py:",
    "twice": "Majority.fold of freshline-majority 1.0 gives more than one row for the key k = 2",
    "null": "Majority.fold of freshline-majority 1.0 gives no row that has a key for the key k = None",
    "column": "Majority.fold of freshline-majority 1.0 gives rows without the column v",
    "refused": "Majority.fold of freshline-majority 1.0 raised AnalysisException: [UNRESOLVED_COLUMN",
    "task": "Majority.<lambda> of freshline-majority 1.0 raised KeyError: '",
    "none": "Majority.fold of freshline-majority 1.0 gives NoneType, which is no DataFrame",
}


def test_a_merge_that_fails_is_named_and_nothing_is_stored(majority, monkeypatch):
    lab = majority
    for wrong, said in WRONG.items():
        monkeypatch.setenv("FAILS", wrong)
        outcome = lab.refresh("m")
        assert (outcome.state, outcome.error.code) == ("FAILED", "EXTENSION_FAILED"), (wrong, outcome.error)
        assert outcome.error.message.startswith(said)
        assert outcome.error.where.startswith("m (assets/m.sql:1)"), wrong
    assert lab.receipt("m") is None

    monkeypatch.delenv("FAILS")
    assert lab.refresh("m").rows_out == 2


def test_two_rows_of_a_key_are_refused_wherever_keys_are_folded(majority, monkeypatch):
    lab = majority
    lab.refresh("m")
    lab.land("s", "2.json", [{"k": 2, "v": "d"}, {"k": 2, "v": "d"}, {"k": 3, "v": "e"}])
    monkeypatch.setenv("FAILS", "twice")
    outcome = lab.refresh("m")
    assert outcome.error.message.startswith(WRONG["twice"])
    assert lab.rows("m") == [{"k": 1, "v": "a"}, {"k": 2, "v": "c"}]

    with pytest.raises(RequestError, match="Majority.fold of freshline-majority 1.0 gives more than one row"):
        lab.diff("m")
    with pytest.raises(ExtensionFailedError, match="Majority.fold of freshline-majority 1.0 gives more than one row"):
        query(lab.runtime, "SELECT * FROM union_read('m')")

    monkeypatch.delenv("FAILS")
    assert lab.refresh("m").strategy == "keys"
    assert lab.rows("m") == [{"k": 1, "v": "a"}, {"k": 2, "v": "d"}, {"k": 3, "v": "e"}]
    assert lab.diff("m") == []

"""Connectors and formats of other packages: found by entry points, and refused where that is not certain."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest

from freshline.cli.doctor import examine
from freshline.values import registry
from freshline.values.names import TableName
from tests.sources.stranger import ENTRIES, PAGES, on_the_path, stranger, write_package

SPOOL = (
    "CREATE SOURCE s (\nid INT, at TIMESTAMP METADATA FROM 'sent_at'\n)\nWITH ('connector' = 'spool', "
    "'format' = 'json', 'path' = 'spool/messages', 'token' = '${env:TOKEN}'{})"
)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return folder


def declare(project, more=""):
    project.declare("s.sql", SPOOL.replace("{})", f"{more})"))


def test_a_connector_of_another_package_is_declared_like_any_other(project, site):
    declare(project, ", 'batch' = '5'")
    with stranger(site):
        source = project.read().spec(TableName(None, "s"))

        assert (source.connector, source.is_log, source.format.name) == ("spool", True, "json")
        assert source.connection.path == str(project.root / "spool/messages")
        assert (source.connection.token, source.connection.batch) == ("${env:TOKEN}", 5)
        # The spec from the cache is the same.
        assert project.read().spec(TableName(None, "s")) == source


def test_a_declaration_is_read_anew_when_its_package_has_changed(project, site):
    declare(project)
    with stranger(site):
        assert project.read().spec(TableName(None, "s")).connection.batch == 10_000
        module = site / "spool.py"
        changed = module.read_text().replace("10_000", "77")
    module.write_text(changed)
    with on_the_path(site):
        assert project.read().spec(TableName(None, "s")).connection.batch == 77


@pytest.mark.parametrize(
    ("more", "rule", "said"),
    [
        (", 'batch' = 'many'", "OPTION_VALUE", "a whole number from 1"),
        (", 'bach' = '5'", "UNKNOWN_OPTION", "Did you mean batch?"),
        (", 'topic' = 't'", "OPTION_NEEDS", "needs connector = kafka"),
        (", 'header' = 'true'", "OPTION_NEEDS", "needs format = csv"),
    ],
)
def test_its_options_are_judged_as_all_are(project, site, more, rule, said):
    declare(project, more)
    with stranger(site):
        project.check_error(rule, said)


def test_options_that_a_connector_needs_are_asked_for(project, site):
    project.declare("s.sql", "CREATE SOURCE s (id INT) WITH ('connector' = 'spool')")
    with stranger(site):
        messages = [message for _, _, message in project.errors()]

    assert "a source of a spool needs the option 'path': the file of the queue." in messages
    assert "a source of a spool needs the option 'token': the word that opens it." in messages
    formats = "json, avro, text, protobuf, json-schema, debezium-json or debezium-avro"
    assert f"a source of a spool needs the option 'format': {formats}." in messages


def test_a_name_that_no_package_has_is_refused_with_those_that_there_are(project, site):
    project.declare("s.sql", "CREATE SOURCE s (id INT) WITH ('connector' = 'spol', 'format' = 'json')")
    with stranger(site):
        message = project.check_error("EXTENSION", at="assets/s.sql:1")

    assert message == (
        "connector 'spol' does not come with freshline, and no installed package has it. Did you mean spool? Install "
        "the package that it is of, or correct the name. "
        "There are files, delta, kafka, postgres, jdbc, rabbitmq, kinesis, http or spool."
    )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("connector", "'connector' = 'spool', 'dir' = 'in', 'batch' = '3', 'format' = 'json'"),
        ("format", "'connector' = 'files', 'path' = 'in', 'format' = 'lines', 'separator' = '|'"),
    ],
)
def test_a_name_that_an_uninstalled_package_had_is_one_mistake_that_names_it(project, kind, options):
    project.declare("s.sql", f"CREATE SOURCE s (id INT) WITH ({options})")
    message = project.check_error("EXTENSION", at="assets/s.sql:1")

    name = "spool" if kind == "connector" else "lines"
    assert message.startswith(f"{kind} '{name}' does not come with freshline, and no installed package has it.")


def test_a_name_in_two_packages_is_refused_with_both(project, site):
    declare(project)
    write_package(site, "other-spool", {"freshline.connectors": {"spool": "spool:Spool"}}, version="2.3")
    with stranger(site):
        message = project.check_error("EXTENSION", at="assets/s.sql:4")

    assert message == "connector 'spool' is in freshline-spool 1.0 and other-spool 2.3. Uninstall all but one of them."


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no licence')", "does not load: broken:It: RuntimeError: no licence"),
        ("import not_there", "does not load: broken:It: ModuleNotFoundError: No module named 'not_there'"),
        ("Other = 1", "does not load: broken:It: AttributeError"),
        ("It = int", "is no Connector: broken:It is <class 'int'>"),
        (
            "from freshline.values.connector import Connector\nclass It(Connector):\n    name = 'that'",
            "calls itself 'that'",
        ),
    ],
)
def test_a_package_that_does_not_load_is_named_with_the_reason(project, site, code, said):
    (site / "broken.py").write_text(code)
    write_package(site, "broken-package", {"freshline.connectors": {"it": "broken:It"}})
    project.declare("s.sql", "CREATE SOURCE s (id INT) WITH ('connector' = 'it', 'format' = 'json')")
    with on_the_path(site, ("broken",)):
        project.check_error("EXTENSION", "'it' of broken-package 1.0", said)


def test_shipped_names_are_found_without_a_search_of_other_packages(monkeypatch):
    def look(group):
        raise AssertionError(group)

    monkeypatch.setattr(registry, "entry_points", look)

    assert [registry.find_connector(name).name for name in registry.CONNECTORS] == list(registry.CONNECTORS)
    assert [registry.find_format(name).name for name in registry.FORMATS] == list(registry.FORMATS)


@pytest.mark.seconds
def test_declaring_a_source_of_another_package_loads_nothing_heavy(project, site):
    declare(project)
    with stranger(site):
        code = (
            "import sys\nfrom pathlib import Path\nfrom freshline.declare.project import read_project\n"
            "from freshline.declare.project_settings import read_settings\n"
            f"read_project(read_settings(Path({str(project.root)!r}), {{}}), {{}})\n"
            "print(sorted(set(sys.modules) & {'pyspark', 'dagster', 'deltalake', 'py4j', 'pandas', 'pyarrow'}))"
        )
        path = [str(site), *[entry for entry in sys.path if entry]]
        environ = {"PYTHONPATH": ":".join(path)}
        run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)

    assert run.stdout.strip() == "[]", run.stderr


def test_the_doctor_lists_what_other_packages_have(site, tmp_path):
    (site / "broken.py").write_text("raise RuntimeError('no licence')")
    write_package(site, "broken-package", {"freshline.connectors": {"it": "broken:It"}})
    with stranger(site):
        checks = [(check.name, check.ok, check.message) for check in examine(tmp_path, False, lambda message: None)]

    assert ("connector", True, "spool, of freshline-spool 1.0") in checks
    assert ("format", True, "pairs, of freshline-spool 1.0") in checks
    (problem,) = [message for name, ok, message in checks if name == "connector" and not ok]
    assert problem.startswith("'it' of broken-package 1.0 does not load: broken:It: RuntimeError: no licence.")


def test_the_declaration_and_the_entry_points_of_the_page_are_right(project, site):
    page = (PAGES / "connectors.md").read_text(encoding="utf-8")
    (declared,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    project.declare("message.sql", declared)
    with stranger(site):
        assert project.read().spec(TableName(None, "message")).connection.token == "${env:SPOOL_TOKEN}"

    shown = [tomllib.loads(text) for text in re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    found = {group: named for each in shown for group, named in each["project"]["entry-points"].items()}
    assert found == ENTRIES


def test_an_unknown_option_names_the_three_nearest_and_not_all(project):
    options = "'connector' = 'files', 'path' = 'in', 'format' = 'json', 'multiline' = 'true'"
    project.declare("s.sql", f"CREATE SOURCE s (id INT) WITH ({options})")
    rule, _, message = project.error()

    assert rule == "UNKNOWN_OPTION"
    assert message.startswith(
        "there is no option 'multiline'. Did you mean multi-line? The nearest options are multi-line, "
    )
    assert message.count(",") == 2

"""Finding a project, and its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.declare.project_settings import find_project, read_settings
from freshline.errors import SettingsError
from freshline.values.freshness import Freshness
from freshline.values.settings import Settings
from tests.declared_project import settings_of, settings_refused


def test_a_project_is_found_from_any_folder_below_it(project):
    below = project.root / "assets" / "sales"
    below.mkdir(parents=True)
    assert find_project(below) == project.root


def test_a_pyproject_of_something_else_is_passed_by(project):
    inner = project.root / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    assert find_project(inner) == project.root


def test_a_project_is_found_from_here_by_default(project, monkeypatch):
    monkeypatch.chdir(project.root)
    assert find_project() == project.root


def test_where_there_is_no_project_it_says_what_to_do(tmp_path):
    with pytest.raises(SettingsError, match=r"no project in .* `freshline init DIR`"):
        find_project(tmp_path)


def test_an_empty_section_has_every_default(project):
    settings = settings_of(project)
    state = project.root / ".freshline" / "local"

    assert settings == Settings(
        root=project.root,
        environment="local",
        declarations=project.root / "assets",
        state=state,
        warehouse=state / "warehouse",
        control_store=f"sqlite:///{state}/control.db",
        default_freshness=Freshness(3600),
        continuous_below=Freshness(60),
        incremental_below=Freshness(1800),
    )


def test_every_setting_is_read(project):
    settings = settings_of(
        project,
        """
declarations = "tables"
state = "/var/state"
warehouse = "/var/warehouse"
control-store = "postgresql://db/x"
default-freshness = "2 hours"
continuous-below = "PT30S"
incremental-below = "1 hour"
spark-master = "local[2]"
driver-memory = "4g"
maven-mirror = "https://mirror"
jar-directory = "jars"
jar-cache = "~/cache"
java-home = "/usr/java"
engine-port = 1
connect-port = 2
dagster-port = 3
idle-seconds = 12.5
parallel-refreshes = 4
[tool.freshline.spark-confs]
"spark.sql.shuffle.partitions" = 4
"spark.x" = true
""",
    )

    assert settings == Settings(
        root=project.root,
        environment="local",
        declarations=project.root / "tables",
        state=Path("/var/state"),
        warehouse=Path("/var/warehouse"),
        control_store="postgresql://db/x",
        default_freshness=Freshness(7200),
        continuous_below=Freshness(30),
        incremental_below=Freshness(3600),
        spark_master="local[2]",
        spark_confs={"spark.sql.shuffle.partitions": "4", "spark.x": "true"},
        driver_memory="4g",
        maven_mirror="https://mirror",
        jar_directory=project.root / "jars",
        jar_cache=Path.home() / "cache",
        java_home=Path("/usr/java"),
        engine_port=1,
        connect_port=2,
        dagster_port=3,
        idle_seconds=12.5,
        parallel_refreshes=4,
    )


def test_an_environment_says_what_is_different_in_it(project):
    text = """
driver-memory = "1g"
spark-confs = { "a" = "1", "b" = "2" }
[tool.freshline.environments.production]
warehouse = "/data"
spark-confs = { "b" = "3" }
"""
    production = settings_of(project, text, FRESHLINE_ENV="production")
    local = settings_of(project, text)

    assert (production.environment, production.warehouse) == ("production", Path("/data"))
    assert production.state == project.root / ".freshline" / "production"
    assert production.control_store.endswith("/.freshline/production/control.db")
    assert (production.driver_memory, dict(production.spark_confs)) == ("1g", {"a": "1", "b": "3"})
    assert local.warehouse == project.root / ".freshline" / "local" / "warehouse"


def test_the_machine_may_give_some_settings(project):
    settings = settings_of(
        project,
        'maven-mirror = "https://a"',
        FRESHLINE_MAVEN_MIRROR="https://b",
        FRESHLINE_JAR_DIRECTORY="/jars",
        FRESHLINE_JAR_CACHE="/cache",
        FRESHLINE_WAREHOUSE="/warehouse",
    )
    assert settings.maven_mirror == "https://b"
    assert (settings.jar_directory, settings.jar_cache) == (Path("/jars"), Path("/cache"))
    assert settings.warehouse == Path("/warehouse")


@pytest.mark.parametrize(
    ("text", "environ", "said"),
    [
        ("deflt-freshness = '1 hour'", {}, "no setting deflt-freshness. Did you mean default-freshness?"),
        ("default_freshness = '1 hour'", {}, "Did you mean default-freshness?"),
        (
            "[tool.freshline.environments.x]\nwarehose = '/x'",
            {},
            "[tool.freshline.environments.x] has no setting warehose. Did you mean warehouse?",
        ),
        ("[tool.freshline.environments.'a/b']", {}, "environment 'a/b'"),
        ("environments = 3", {}, "environments are tables"),
        ("default-freshness = '1 month'", {}, "default-freshness: 1 month is not a freshness"),
        ("default-freshness = 3600", {}, "3600 is not a freshness: it has no unit"),
        ("continuous-below = '2 hours'", {}, "not above incremental-below"),
        ("engine-port = 70000", {}, "engine-port is 70000. Accepted is a whole number from 0 to 65535"),
        ("engine-port = true", {}, "engine-port is True"),
        ("parallel-refreshes = 0", {}, "a whole number from 1"),
        ("idle-seconds = -1", {}, "a positive number"),
        ("dagster-hosts = 'a'", {}, "a list of names"),
        ("dagster-hosts = ['https://a']", {}, "'https://a' is no host"),
        ("dagster-hosts = ['*.example.com']", {}, "there are no wildcards"),
        ("dagster-hosts = ['a:0']", {}, "'a:0' is no host"),
        ("dagster-hosts = [3]", {}, "3 is no host"),
        ("dagster-token = 3", {}, "dagster-token is not a reference"),
        ("dagster-read-only = 'yes'", {}, "dagster-read-only is 'yes'. Accepted is true or false"),
        ("warehouse = ''", {}, "a text that is not empty"),
        ("warehouse = 's3://bucket'", {}, "Shared storage is not built yet"),
        ("warehouse = '/a%20b'", {}, "has '%20' in its path"),
        ("warehouse = '/a[b]'", {}, "has '[' in its path"),
        ("warehouse = '/a\\b'", {}, "in its path, with which tables cannot be written"),
        ("spark-master = 3", {}, "a text"),
        ("spark-confs = 3", {}, "a table of names and values"),
        ("umask = 77", {}, "three octal digits in quotes"),
        ("umask = '277'", {}, "leave the owner everything"),
        ("umask = '028'", {}, "three octal digits"),
        ("[tool.freshline.spark-confs]\nspark.x = '1'", {}, "Write the name in quotes"),
        ("spark-confs = { 'spark.sql.session.timeZone' = 'Europe/Berlin' }", {}, "computes days and dates in UTC"),
        ("spark-confs = { 'spark.sql.parser.escapedStringLiterals' = true }", {}, "a quote or a backslash"),
        ("", {"FRESHLINE_ENV": "prod"}, "FRESHLINE_ENV is prod, which is not an environment"),
        ("[tool.freshline.environments.prod]", {"FRESHLINE_ENV": "prd"}, "Did you mean prod?"),
        ("", {"FRESHLINE_ENV": "../x"}, "A name has letters, digits"),
        ("x = ", {}, "the file is not TOML"),
        (
            "warehouse = '/w'\n[tool.freshline.environments.prod]",
            {},
            "environments local and prod have the same warehouse, /w",
        ),
        (
            "[tool.freshline.environments.a]\nstate = 's'\n[tool.freshline.environments.b]\nstate = 's'",
            {"FRESHLINE_ENV": "b"},
            "environments a and b have the same state",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_reported_in_a_sentence(project, text, environ, said):
    message = settings_refused(project, text, **environ)
    assert said in message
    assert "\n" not in message


def test_the_root_must_be_a_project(tmp_path):
    with pytest.raises(SettingsError, match="no pyproject.toml with"):
        read_settings(tmp_path, {})


def test_the_form_of_logs_is_text_or_json(project):
    assert settings_of(project, "log-format = 'json'").log_format == "json"
    assert settings_of(project).log_format == "text"
    assert "text or json" in settings_refused(project, "log-format = 'xml'")
    assert "text or json" in settings_refused(project, "log-format = ['json']")


def test_who_may_use_the_ui_is_read(project):
    settings = settings_of(
        project,
        """
        dagster-hosts = ["Dagster.example.com", "localhost:8000", "[::1]:8000", "localhost:8000"]
        dagster-token = "${env:UI_TOKEN}"
        dagster-read-only = true
        """,
    )

    assert settings.dagster_hosts == ("dagster.example.com", "localhost:8000", "[::1]:8000")
    assert (settings.dagster_token, settings.dagster_read_only) == ("${env:UI_TOKEN}", True)


def test_a_token_that_is_written_into_the_settings_is_refused_and_not_shown(project):
    message = settings_refused(project, "dagster-token = 'correct horse battery'")

    assert "dagster-token is not a reference" in message
    assert "horse" not in message


@pytest.mark.parametrize("text", ["engine-port = " + "9" * 5_000, "declarations = " + "[" * 20_000])
def test_a_text_that_the_reader_of_toml_gives_up_is_refused(project, text):
    assert "the file is not TOML" in settings_refused(project, text)


def test_the_settings_of_what_people_are_shown_are_read(project):
    settings = settings_of(
        project,
        """
sample-rows = 0
masked-columns = ["email", "shop.customer.phone"]
declaration-link = "https://git.example.com/{path}#L{line}"
""",
    )

    assert settings.sample_rows == 0
    assert settings.masked_columns == ("email", "shop.customer.phone")
    assert settings.declaration_link == "https://git.example.com/{path}#L{line}"
    assert settings_of(project, 'declaration-link = "none"').declaration_link is None


@pytest.mark.parametrize(
    "text",
    [
        "sample-rows = 101",
        "sample-rows = -1",
        "sample-rows = true",
        'masked-columns = "email"',
        'masked-columns = [""]',
        'masked-columns = ["a.b.c.d"]',
        "masked-columns = [1]",
        'declaration-link = "javascript://{path}"',
        'declaration-link = "https://git.example.com/main"',
        "declaration-link = 'https://x/{path}\" onclick=x'",
    ],
)
def test_a_setting_that_cannot_be_shown_like_that_is_refused(project, text):
    assert text.partition(" ")[0] in settings_refused(project, text)

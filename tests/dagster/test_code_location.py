"""A project as Dagster loads it: from files to one graph of assets."""

from __future__ import annotations

import runpy
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from dagster import AssetKey, AssetSpec, DefaultSensorStatus, Definitions
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

from freshline.dagster import FreshlineProject, build_definitions
from freshline.errors import DeclarationErrors, SettingsError

pytestmark = pytest.mark.slow  # code locations are loaded in processes of their own

ROOT = Path(__file__).parents[2]


def load(project: Path) -> Definitions:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = build_definitions(FreshlineProject(project))
        Definitions.validate_loadable(loaded)
    # As a code server hands them to the webserver: values of our own classes in tags or metadata do not pass.
    assert serialize_value(RepositorySnap.from_def(loaded.get_repository_def()))
    return loaded


def specs(loaded: Definitions) -> dict[str, AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in loaded.resolve_all_asset_specs()}


def test_every_table_and_source_is_an_asset_of_one_graph(project):
    loaded = specs(load(project()))

    assert {key: sorted(dep.asset_key.to_user_string() for dep in spec.deps) for key, spec in loaded.items()} == {
        "touch_event": [],
        "campaign_load": [],
        "first_touch": ["touch_event"],
        "sales/campaign": ["campaign_load"],
    }


def test_each_asset_shows_its_mode_freshness_and_columns(project):
    loaded = specs(load(project()))

    shown = loaded["first_touch"].metadata
    assert (shown["mode"], shown["freshness_seconds"]) == ("continuous", 10)
    assert "10 seconds" in shown["mode_reason"]
    assert [column.name for column in shown["dagster/column_schema"].columns] == ["customer_id", "event_id", "event_ts"]
    assert loaded["sales/campaign"].metadata["mode"] == "batch"
    assert loaded["touch_event"].metadata["freshness_seconds"] == 10
    for spec in loaded.values():
        assert {"mode", "mode_reason", "freshness_seconds", "dagster/code_references"} <= set(spec.metadata)


def test_a_promised_table_has_a_policy_of_its_freshness_and_two_turns_of_reports(project):
    loaded = specs(load(project()))

    def window(spec: AssetSpec) -> float | None:
        policy = spec.freshness_policy
        if policy is None:
            return None
        assert isinstance(policy, TimeWindowFreshnessPolicy)
        return policy.fail_window.to_timedelta().total_seconds()

    windows = {key: window(spec) for key, spec in loaded.items()}
    assert windows == {
        "touch_event": 10 + 2 * 60,
        "first_touch": 10 + 2 * 60,
        "sales/campaign": 2 * 6 * 3600,
        "campaign_load": None,
    }


def test_each_table_has_the_checks_that_can_be_made_of_it_and_none_blocks(project):
    root = project(
        judged="CREATE MATERIALIZED TABLE judged (CONSTRAINT named EXPECT (event_id <> '') ON VIOLATION QUARANTINE) "
        "FRESHNESS = INTERVAL '1' DAY AS SELECT event_id FROM touch_event;"
    )
    graph = load(root).resolve_asset_graph()

    found: dict[str, set[str]] = {}
    for key in graph.asset_check_keys:
        found.setdefault(key.asset_key.to_user_string(), set()).add(key.name)
    assert found == {
        "touch_event": {"freshness", "quarantine_rate", "alive"},
        "first_touch": {"freshness", "unique_key", "alive", "verify"},
        "sales/campaign": {"freshness", "unique_key", "verify"},
        "judged": {"freshness", "constraint_named", "quarantine_rate", "verify"},
    }
    assert not any(graph.get_check_spec(key).blocking for key in graph.asset_check_keys)


def test_the_sensors_run_from_the_start(project):
    loaded = load(project())

    assert loaded.sensors is not None
    assert {sensor.name: sensor.default_status for sensor in loaded.sensors} == {
        "freshline_supervisor": DefaultSensorStatus.RUNNING,
        "freshline_batch": DefaultSensorStatus.RUNNING,
        "freshline_verify": DefaultSensorStatus.RUNNING,
        "freshline_janitor": DefaultSensorStatus.RUNNING,
    }


def test_a_project_without_tables_has_no_sensors(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()

    assert not load(tmp_path).sensors


def test_each_asset_shows_from_which_columns_its_own_are_computed(project):
    root = project(
        counted="CREATE MATERIALIZED TABLE counted AS SELECT t.customer_id AS who, count(*) AS n, "
        "max(greatest(t.event_ts, f.event_ts)) AS latest FROM touch_event t JOIN first_touch f "
        "ON f.customer_id = t.customer_id WHERE t.event_id <> '' GROUP BY t.customer_id;"
    )

    shown = specs(load(root))
    lineage = {
        column: sorted((dep.asset_key.to_user_string(), dep.column_name) for dep in deps)
        for column, deps in shown["counted"].metadata["dagster/column_lineage"].deps_by_column.items()
    }
    assert lineage == {
        "who": [("touch_event", "customer_id")],
        "latest": [("first_touch", "event_ts"), ("touch_event", "event_ts")],
    }
    # It is read once, and then known by the declaration.
    assert (
        specs(load(root))["counted"].metadata["dagster/column_lineage"]
        == shown["counted"].metadata["dagster/column_lineage"]
    )
    assert "dagster/column_lineage" not in shown["touch_event"].metadata


def test_the_code_reference_leads_to_the_declaring_file(project):
    root = project()

    [reference] = specs(load(root))["sales/campaign"].metadata["dagster/code_references"].code_references
    assert reference.source == f"{root / 'assets' / 'sales' / 'campaign.sql'}:1"


def test_tables_and_logs_can_be_materialized_and_sources_in_place_cannot(project):
    graph = load(project()).resolve_asset_graph()

    assert graph.executable_asset_keys == {
        AssetKey("touch_event"),
        AssetKey("first_touch"),
        AssetKey(["sales", "campaign"]),
    }


def test_every_table_has_a_step_of_its_own_in_the_order_of_the_graph(project):
    job = load(project()).resolve_implicit_global_asset_job_def()

    assert {node.name for node in job.nodes} == {"touch_event", "first_touch", "sales__campaign", "freshline_checks"}
    assert job.executor_def.name == "in_process"
    assert job.graph.dependency_structure.all_upstream_outputs_from_node("first_touch")[0].node_name == "touch_event"


def test_the_project_is_found_from_a_folder_below_it(project):
    root = project()

    assert set(specs(load(root / "assets" / "sales"))) == set(specs(load(root)))


def test_without_a_project_the_error_says_so(tmp_path):
    with pytest.raises(SettingsError):
        build_definitions(FreshlineProject(tmp_path))


BROKEN = "CREATE MATERIALIZED TABLE broken\nFRESHNESS = INTERVAL '0' SECOND\nAS SELECT a FROM nowhere;"


@pytest.mark.parametrize("options", [{"strict": True}, {"select": "first_touch"}, {"exclude": "first_touch"}])
def test_declaration_errors_are_reported_all_at_once_with_file_and_line(project, options):
    root = project(broken=BROKEN)

    with pytest.raises(DeclarationErrors) as told:
        build_definitions(FreshlineProject(root), **options)

    assert "assets/broken.sql:2" in str(told.value)


def test_a_declaration_with_a_mistake_is_an_asset_that_shows_it_and_the_others_stay(project):
    before = specs(load(project()))
    root = project(
        broken=BROKEN,
        reader="CREATE MATERIALIZED TABLE reader (PRIMARY KEY (a)) AS SELECT a FROM broken;",
        other="CREATE MATERIALIZED TABLE other WITH ('group' = 'a b') AS SELECT customer_id FROM touch_event;",
    )
    (root / "assets" / "no name.sql").write_text("CREATE MATERIALIZED TABLE x AS SELECT `<script>` FROM y")
    loaded = load(root)
    found = specs(loaded)

    mistakes = {key: spec for key, spec in found.items() if spec.kinds == {"mistake"}}
    assert found.keys() - mistakes.keys() == before.keys()
    assert set(mistakes) == {"broken", "reader", "other", "no name.sql"}
    said = {key: spec.description or "" for key, spec in mistakes.items()}
    assert "`assets/broken.sql:2: " in said["broken"]
    assert "reads tables whose declarations have mistakes:\n\n- `broken`" in said["reader"]
    assert [dep.asset_key for dep in mistakes["reader"].deps] == [AssetKey("broken")]
    assert "cannot be a group in Dagster" in said["other"]
    assert "`assets/no name.sql:1: " in said["no name.sql"]
    graph = loaded.resolve_asset_graph()
    assert not graph.materializable_asset_keys & {spec.key for spec in mistakes.values()}
    assert {key.to_user_string() for key in graph.materializable_asset_keys} == set(before) - {"campaign_load"}


def test_an_option_that_dagster_cannot_have_is_reported_with_file_and_line(project):
    query = "AS SELECT customer_id FROM touch_event"
    root = project(
        one=f"CREATE MATERIALIZED TABLE one WITH ('group' = 'a b') {query};",
        two=f"CREATE MATERIALIZED TABLE two WITH ('group' = 'c-d') {query};",
    )

    with pytest.raises(DeclarationErrors) as told:
        build_definitions(FreshlineProject(root), strict=True)

    assert "assets/one.sql:1" in str(told.value)
    assert "assets/two.sql:1" in str(told.value)


def test_loading_needs_no_spark_and_no_engine(project):
    root = project()
    program = f"""
        import sys
        from freshline.dagster import FreshlineProject, build_definitions
        build_definitions(FreshlineProject({str(root)!r})).resolve_asset_graph()
        heavy = [name for name in ("pyspark", "py4j", "delta", "pandas", "grpc") if name in sys.modules]
        assert "pyspark" not in heavy and "py4j" not in heavy, heavy
    """

    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:freshline", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not (root / ".freshline" / "local" / "engine.json").exists()


def test_the_reference_deployment_has_resources_for_assets_of_your_own():
    # By its file: another claim may have loaded another project's module `assets` into this process.
    defs = runpy.run_path(str(ROOT / "assets" / "definitions.py"))["defs"]

    resources = {type(each).__name__ for each in (defs.resources or {}).values()}

    assert resources == {"FreshlineResource", "SparkResource"}
    assert defs.executor is not None


def test_the_reference_deployment_has_owners_one_group_and_texts_of_its_columns():
    defs = build_definitions(FreshlineProject(ROOT), checks=False, sensors=False)
    specs = {spec.key.path[-1]: spec for spec in defs.resolve_all_asset_specs()}

    assert {spec.group_name for spec in specs.values()} == {"attribution"}
    assert {owner for spec in specs.values() for owner in spec.owners} == {"team:crm", "team:marketing", "team:sales"}
    assert all(spec.owners and spec.description for spec in specs.values())
    columns = {
        name: {column.name: column.description for column in spec.metadata["dagster/column_schema"].columns}
        for name, spec in specs.items()
    }
    for name in (
        "customer_change",
        "touch_event",
        "sale_order",
        "campaign_load",
        "customer",
        "first_touch",
        "campaign",
    ):
        assert all(columns[name].values()), name
    assert columns["enriched_orders"]["total_amount"] == "The amount of the order in the currency of the shop, with tax"


def test_the_reference_deployment_loads_as_dagster_loads_it(tmp_path):
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "DAGSTER_HOME": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "Validation successful for code location freshline" in told
    warned = [line for line in told.splitlines() if "warning" in line.lower()]
    # Dagster calls this command superseded by `dg`, which is not a dependency; every other warning would be ours.
    assert [line for line in warned if "definitions_validate_command" not in line] == []

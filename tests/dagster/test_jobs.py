"""The job that gives a table another freshness, with real declarations and a real control store."""

from __future__ import annotations

import pytest
from dagster import DagsterInstance

from freshline.commit.control_store import ControlStore
from freshline.dagster import FreshlineProject, build_definitions
from freshline.declare.project import read_settings

SOURCE = "CREATE SOURCE ev (id STRING) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')"
TABLE = "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM ev"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "ev.sql").write_text(SOURCE)
    (tmp_path / "assets" / "t.sql").write_text(TABLE)
    settings = read_settings(tmp_path, {})
    settings.state.mkdir(parents=True)
    ControlStore.open(settings.control_store)
    return tmp_path


def run(root, **config):
    job = build_definitions(FreshlineProject(root)).resolve_job_def("freshline_set_freshness")
    with DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            run_config={"ops": {"set_freshness": {"config": config}}}, instance=instance, raise_on_error=False
        )


def overrides(root):
    control = ControlStore.open(read_settings(root, {}).control_store)
    return {str(name): each for name, each in control.intentions.read().overrides.items()}


def failed(result):
    [event] = [event for event in result.all_events if event.is_step_failure]
    return event.step_failure_data.user_failure_data


def test_a_table_gets_another_freshness_for_a_time_and_its_own_again(root):
    changed = run(root, table="t", freshness="5 minutes", **{"for": "2 hours"})

    assert changed.success
    override = overrides(root)["t"]
    assert override.freshness.seconds == 300
    assert override.until is not None
    assert override.by == f"Dagster run {changed.run_id}"
    assert run(root, table="t").success
    assert overrides(root) == {}


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"table": "nothing", "freshness": "5 minutes"}, "nothing"),
        ({"table": "ev", "freshness": "5 minutes"}, "ev"),
        ({"table": "t", "freshness": "often"}, "often"),
        ({"table": "t", "freshness": "5 minutes", "for": "a while"}, "a while"),
        ({"table": "t", "for": "2 hours"}, "give a `freshness` too"),
        ({"table": "'; DROP TABLE t --\u202e<script>", "freshness": "5 minutes"}, "DROP TABLE"),
    ],
)
def test_a_freshness_that_cannot_be_set_is_one_sentence_and_changes_nothing(root, config, says):
    result = run(root, **config)

    assert not result.success
    assert says in failed(result).description
    assert "Traceback" not in failed(result).description
    assert overrides(root) == {}


def test_the_job_comes_with_the_sensors_which_a_code_location_has_once(root):
    with_sensors = build_definitions(FreshlineProject(root))
    without = build_definitions(FreshlineProject(root), sensors=False)

    assert [job.name for job in with_sensors.jobs or ()] == ["freshline_set_freshness"]
    assert list(without.jobs or ()) == []

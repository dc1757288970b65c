"""One declaration as an asset, from values alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from dagster import AssetKey, AssetSpec, CodeReferencesMetadataValue
from dagster._core.definitions.utils import DISALLOWED_NAMES

from freshline.dagster.asset import (
    FORBIDDEN,
    asset_spec,
    declaration_markdown,
    declaration_text,
    step_name,
)
from freshline.dagster.keys import AssetKeys
from freshline.dagster.translator import FreshlineTranslator, owner
from freshline.declare.graph import Graph
from freshline.errors import DeclarationError
from freshline.report.table_text import duration_text
from freshline.sources.delta.connector import Delta
from freshline.sources.files.connector import Files
from freshline.sources.formats.json import Json
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.query import PythonInput, PythonQuery
from freshline.values.settings import Settings
from freshline.values.spec import Column, Mode, SourceSpec, Spec, TableSpec

SOURCE = SourceSpec(
    name=TableName(None, "touch_event"),
    connection=Files("/landing/touch_event"),
    format=Json(),
    columns=(Column("event_id", "STRING"), Column("arrived_at", "TIMESTAMP", "ingested_at")),
    written_at=Location("assets/touch_event.sql", 1),
    primary_key=("event_id",),
    comment="Touches of customers",
)


@pytest.fixture
def root(settings: Settings) -> Path:
    settings.declarations.mkdir()
    (settings.declarations / "touch_event.sql").write_text("CREATE SOURCE touch_event (event_id STRING)\n")
    return settings.root


@pytest.fixture
def show(root: Path, settings: Settings) -> Callable[..., AssetSpec]:
    """The asset of a declaration with a freshness of ten seconds; a warning is an error."""

    def asset_of(spec: Spec, *reads: Spec) -> AssetSpec:
        names = tuple(each.name for each in (*reads, spec))
        graph = Graph(
            specs={each.name: each for each in (*reads, spec)},
            order=names,
            freshnesses=dict.fromkeys(names, Freshness(10)),
            modes=dict.fromkeys(names, (Mode.CONTINUOUS, "freshness 10 seconds is below 1 minute")),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return asset_spec(graph, spec.name, settings, AssetKeys.of(graph), FreshlineTranslator())

    return asset_of


def test_a_source_shows_what_it_is_and_where_it_was_written(show, root, settings):
    spec = show(SOURCE)

    assert spec.key == AssetKey(["touch_event"])
    assert spec.kinds == {"spark", "deltalake", "json"}
    assert spec.group_name == "default"
    assert spec.tags["freshline/mode"] == "continuous"
    assert spec.tags["freshline/kind"] == "log"
    assert spec.code_version == SOURCE.fingerprint
    assert spec.metadata["mode"] == "continuous"
    assert spec.metadata["mode_reason"] == "freshness 10 seconds is below 1 minute"
    assert spec.metadata["freshness_seconds"] == 10
    assert spec.metadata["dagster/table_name"] == "touch_event"
    assert spec.metadata["dagster/uri"] == (settings.warehouse / "touch_event").as_uri()
    columns = {column.name: column for column in spec.metadata["dagster/column_schema"].columns}
    assert (columns["event_id"].type, columns["arrived_at"].type) == ("STRING", "TIMESTAMP")
    assert columns["arrived_at"].description == "METADATA FROM 'ingested_at'"
    references = spec.metadata["dagster/code_references"]
    assert isinstance(references, CodeReferencesMetadataValue)
    assert references.code_references[0].source == f"{root / 'assets' / 'touch_event.sql'}:1"


def test_a_source_read_in_place_is_shown_where_it_is(show):
    spec = show(replace(SOURCE, connection=Delta("/landing/touch_event"), format=None))

    assert spec.kinds == {"deltalake"}
    assert spec.metadata["dagster/uri"] == "file:///landing/touch_event"
    assert spec.tags["freshline/kind"] == "source"


def test_a_table_depends_on_its_inputs_under_the_names_that_they_declare(show):
    query = PythonQuery("assets/touch_event.sql", "count", (PythonInput("a", TableName(None, "TOUCH_EVENT")),), "0")
    table = TableSpec(
        TableName("web", "counted"), query, Location("assets/touch_event.sql", 1), Freshness(10), owner="growth"
    )

    spec = show(table, SOURCE)

    assert spec.key == AssetKey(["web", "counted"])
    assert [dep.asset_key for dep in spec.deps] == [AssetKey(["touch_event"])]
    assert spec.kinds == {"spark", "deltalake", "python"}
    assert spec.group_name == "web"
    assert spec.owners == ["team:growth"]
    assert "dagster/column_schema" not in spec.metadata


def test_a_log_that_cannot_be_read_is_reported_at_its_table(show, settings):
    query = PythonQuery("assets/touch_event.sql", "count", (), "0")
    table = TableSpec(TableName(None, "counted"), query, Location("assets/touch_event.sql", 1), Freshness(10))
    log = settings.warehouse / "counted" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("not JSON")

    assert str(settings.warehouse / "counted") in show(table).metadata["columns_problem"]


def test_the_description_is_the_comment_and_the_declaration_is_metadata_with_its_place(root, show):
    assert show(SOURCE).description == "Touches of customers"
    assert show(SOURCE).metadata["declaration"].value == (
        "```sql\nCREATE SOURCE touch_event (event_id STRING)\n```\n\nDeclared in `assets/touch_event.sql:1`."
    )


def test_a_fence_inside_the_declaration_does_not_end_the_code_block(root):
    (root / "assets" / "touch_event.sql").write_text("SELECT '```' AS fence")

    assert "````sql\nSELECT '```' AS fence\n````" in declaration_markdown(SOURCE, root)


def test_the_page_says_how_the_policy_follows_from_the_promise(show):
    """A promise of ten seconds is judged exactly by the check, and by Dagster's policy after two reports."""
    shown = show(SOURCE)

    assert shown.freshness_policy is not None
    window = shown.freshness_policy.fail_window.to_timedelta().total_seconds()
    assert f"{duration_text(window)} without an event" in shown.metadata["freshness_policy"]
    assert "the check `freshness` compares the lag" in shown.metadata["freshness_policy"]


def test_of_a_python_file_the_declaring_function_is_shown_with_its_decorators(tmp_path):
    file = tmp_path / "score.py"
    file.write_text(
        "import math\n\n@table(\n    freshness='1 hour',\n)\ndef score(orders):\n    return orders\n\nx = 1\n"
    )

    text = "@table(\n    freshness='1 hour',\n)\ndef score(orders):\n    return orders"
    assert declaration_text(file, 3) == text
    assert declaration_text(file, 6) == text


def test_the_group_is_declared_or_the_namespace_or_the_default(show):
    assert show(SOURCE).group_name == "default"
    assert show(replace(SOURCE, name=TableName("web", "touch"))).group_name == "web"
    assert show(replace(SOURCE, group="marketing/touches")).group_name == "marketing/touches"


def test_a_group_that_dagster_refuses_is_an_error_with_its_place(show):
    with pytest.raises(DeclarationError, match=r"assets/touch_event.sql:1: 'group' = 'my group' cannot be a group"):
        show(replace(SOURCE, group="my group"))


def test_an_owner_is_a_person_or_a_team():
    assert owner("ann@example.com") == "ann@example.com"
    assert owner("team:growth") == "team:growth"
    assert owner("growth") == "team:growth"
    assert owner("@growth") == "team:@growth"


def test_names_that_dagster_would_join_to_one_get_steps_of_their_own():
    names = [
        TableName(*parts)
        for parts in [("a", "b_c"), ("a_b", "c"), (None, "a__b_c"), ("a", "_b_c"), ("a_", "b_c"), (None, "a___b_c")]
    ]

    assert len({step_name(name) for name in names}) == len(names)


def test_no_step_has_a_name_that_dagster_forbids():
    assert {name for name in DISALLOWED_NAMES if step_name(TableName(None, name)) == name} == set()
    assert FORBIDDEN <= DISALLOWED_NAMES

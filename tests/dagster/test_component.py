"""The project as a component: from attributes in YAML to definitions, by Dagster's loader and by `dg` itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dagster import AssetKey
from dagster.components.core.component_tree import ComponentTree
from dagster.components.resolved.errors import ResolutionException

from freshline.cli.templates import project_files
from freshline.dagster import FreshlineProjectComponent
from freshline.errors import DeclarationErrors, SettingsError

ROOT = Path(__file__).parents[2]
LOADS_COMPONENTS = """
from pathlib import Path

from dagster.components import load_from_defs_folder

defs = load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The project that `freshline init` makes."""
    folder = tmp_path / "shop"
    for name, text in project_files("shop").items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def load(shop: Path, **attributes: object):
    component = FreshlineProjectComponent.from_attributes_dict(attributes={"project": str(shop), **attributes})
    return component.build_defs(ComponentTree.for_test().load_context)


def specs(loaded):
    return {spec.key.to_user_string(): spec for spec in loaded.resolve_all_asset_specs()}


def test_without_attributes_the_whole_project_is_loaded_with_checks_and_sensors(shop):
    loaded = load(shop)

    assert set(specs(loaded)) == {"orders", "spend"}
    assert len(loaded.sensors) == 4
    assert loaded.asset_checks


def test_attributes_select_translate_and_leave_out(shop):
    loaded = load(
        shop,
        select=["+spend"],
        exclude="kind:source",
        checks=False,
        sensors=False,
        translation={
            "key_prefix": "lake",
            "group_name": "layer_{{ table.kind }}",
            "tags": {"tier": "{{ 'gold' if table.kind == 'table' else 'raw' }}"},
            "owners": ["team:finance"],
            "kinds": ["delta"],
            "description": "{{ table.name }}, every {{ table.freshness_seconds }} s",
            "metadata": {"cost_center": 7},
        },
    )

    found = specs(loaded)
    assert set(found) == {"lake/orders", "lake/spend"}
    spend = found["lake/spend"]
    assert [dep.asset_key for dep in spend.deps] == [AssetKey(["lake", "orders"])]
    assert (spend.group_name, found["lake/orders"].group_name) == ("layer_table", "layer_log")
    assert (spend.tags["tier"], spend.tags["freshline/mode"]) == ("gold", "incremental")
    assert spend.owners == ["team:finance"]
    assert spend.kinds == {"delta"}
    assert spend.description == "spend, every 300 s"
    assert spend.metadata["declaration"].value.startswith("```sql\n")
    assert spend.metadata["cost_center"] == 7
    assert not loaded.sensors
    assert not loaded.asset_checks


def test_without_a_translation_each_fact_is_the_default(shop):
    [orders] = [spec for key, spec in specs(load(shop, select="orders")).items() if key == "orders"]
    [translated] = specs(load(shop, select="orders", translation={"key": "{{ spec.key.path[0] }}"})).values()

    for fact in ("key", "group_name", "kinds", "owners", "tags", "description"):
        assert getattr(orders, fact) == getattr(translated, fact), fact


def test_the_environment_is_an_attribute(shop):
    with pytest.raises(SettingsError, match="FRESHLINE_ENV is production"):
        load(shop, environment="production")


def test_mistakes_in_declarations_and_selections_are_reported_as_in_python(shop):
    with pytest.raises(SettingsError, match="the selection names spent"):
        load(shop, select="spent")
    (shop / "assets" / "wrong.sql").write_text("CREATE MATERIALIZED TABLE wrong AS SELECT nothing FROM spend")
    with pytest.raises(DeclarationErrors, match=r"assets/wrong.sql:1"):
        load(shop, select="spend")
    (wrong,) = [spec for spec in load(shop).resolve_all_asset_specs() if spec.kinds == {"mistake"}]
    assert "there is no column nothing" in (wrong.description or "")


TABLES = """
type: freshline.dagster.FreshlineProjectComponent
attributes:
  tables:
    - name: busy
      freshness: 1 hour
      primary_key: customer
      constraints:
        several: {expect: order_count > 1, on_violation: DROP ROW}
      options: {group: marketing}
      query: |
        SELECT customer, order_count
        FROM spend
"""


def test_a_table_in_yaml_is_an_asset_with_its_text_and_line(shop):
    file = shop / "assets" / "defs" / "shop" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(TABLES.lstrip())
    attributes = yaml.safe_load(TABLES)["attributes"]

    loaded = load(shop, **attributes)

    busy = specs(loaded)["busy"]
    assert [dep.asset_key for dep in busy.deps] == [AssetKey("spend")]
    assert (busy.group_name, busy.metadata["freshness_seconds"]) == ("marketing", 3600)
    assert "```yaml\nname: busy\nfreshness: 1 hour\n" in busy.metadata["declaration"].value
    [reference] = busy.metadata["dagster/code_references"].code_references
    assert reference.source == f"{file}:4"
    assert {key.name for key in loaded.resolve_asset_graph().asset_check_keys if key.asset_key == AssetKey("busy")} > {
        "constraint_several",
        "unique_key",
    }


MORE = """\
    - name: sales.second
      frehsness: 1 hour
      query: SELECT customer FROM spend
    - name: third
      query: SELECT custmer FROM spend
      options: {group: finance}
    - name: fourth
      query: SELECT customer FROM third
    - name: fifth
      query: SELECT customer FROM busy
"""


def test_a_mistake_in_a_table_in_yaml_costs_that_table_and_its_readers_only(shop):
    file = shop / "assets" / "defs" / "shop" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(TABLES.lstrip() + MORE)
    attributes = yaml.safe_load(TABLES + MORE)["attributes"]
    translation = {"key_prefix": "lake", "group_name": "layer_{{ table.group or table.namespace }}"}

    found = specs(load(shop, **attributes, translation=translation))

    mistakes = {key: spec for key, spec in found.items() if spec.kinds == {"mistake"}}
    assert set(mistakes) == {"lake/sales/second", "lake/third", "lake/fourth"}
    assert set(found) - set(mistakes) == {"lake/orders", "lake/spend", "lake/busy", "lake/fifth"}
    assert "assets/defs/shop/defs.yaml:14" in (mistakes["lake/sales/second"].description or "")
    assert "there is no column custmer" in (mistakes["lake/third"].description or "")
    assert [dep.asset_key for dep in mistakes["lake/fourth"].deps] == [AssetKey(["lake", "third"])]
    groups = {key: spec.group_name for key, spec in mistakes.items()}
    assert groups == {"lake/sales/second": "layer_sales", "lake/third": "layer_finance", "lake/fourth": "layer_None"}


def test_a_file_of_tables_that_is_no_yaml_costs_its_tables_only(shop):
    file = shop / "assets" / "defs" / "shop" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(TABLES.lstrip() + "    - {name: [\n")

    found = specs(load(shop, **yaml.safe_load(TABLES)["attributes"]))

    assert {key for key, spec in found.items() if spec.kinds == {"mistake"}} == {"defs.yaml"}
    assert {"orders", "spend"} <= set(found)


def test_a_translator_that_cannot_do_with_a_name_alone_leaves_the_name(shop):
    (shop / "assets" / "wrong.sql").write_text("CREATE MATERIALIZED TABLE wrong AS SELECT nothing FROM spend")
    translation = {"key": "{{ table.reads[0] + table.name if table.kind == 'table' else table.name }}"}

    found = specs(load(shop, translation=translation, select="*"))

    assert {key for key, spec in found.items() if spec.kinds == {"mistake"}} == {"wrong"}


def test_tables_in_a_file_that_the_project_does_not_read_are_refused(shop):
    with pytest.raises(SettingsError, match=r"busy: tables in YAML are read from defs.yaml files below .*assets/defs"):
        load(shop, **yaml.safe_load(TABLES)["attributes"])


def test_a_translation_that_cannot_be_rendered_is_an_error(shop):
    with pytest.raises(ResolutionException, match="'nothing' not found in scope"):
        load(shop, translation={"group_name": "{{ nothing.name }}"})


def dg(home: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "dg"), *arguments],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DAGSTER_HOME": "",
            "DO_NOT_TRACK": "1",
            "COLUMNS": "200",
            # Names the environment in use, which `dg` would ask about.
            "VIRTUAL_ENV": sys.prefix,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.long
def test_dg_scaffolds_checks_and_lists_the_component_in_a_project_of_init(shop, tmp_path):
    checked = dg(tmp_path, shop, "check", "defs")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    component = "freshline.dagster.FreshlineProjectComponent"
    assert component in dg(tmp_path, shop, "list", "components", "--json").stdout

    made = dg(tmp_path, shop, "scaffold", "defs", component, "lake", "--select", "spend")
    assert made.returncode == 0, made.stdout + made.stderr
    file = shop / "assets" / "defs" / "lake" / "defs.yaml"
    assert file.read_text().split() == ["type:", component, "attributes:", "select:", "spend"]
    (shop / "assets" / "definitions.py").write_text(LOADS_COMPONENTS)
    file.write_text(f"type: {component}\nattributes:\n  select: spend\n  translation:\n    key_prefix: lake\n")

    checked = dg(tmp_path, shop, "check", "defs")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = json.loads(dg(tmp_path, shop, "list", "defs", "--json").stdout)
    assert [asset["asset_key"] for asset in listed["assets"] if asset["is_executable"]] == ["lake/spend"]

    file.write_text(TABLES.lstrip())
    listed = json.loads(dg(tmp_path, shop, "list", "defs", "--json").stdout)
    assert "busy" in {asset["asset_key"] for asset in listed["assets"]}

    file.write_text(f"type: {component}\nattributes:\n  slect: spend\n")
    refused = dg(tmp_path, shop, "check", "yaml")
    assert refused.returncode == 1
    assert "defs.yaml:3" in refused.stdout + refused.stderr


@pytest.mark.long
def test_dg_checks_and_lists_the_reference_deployment(tmp_path):
    checked = dg(tmp_path, ROOT, "check", "defs")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    listed = json.loads(dg(tmp_path, ROOT, "list", "defs", "--json").stdout)
    assert "first_touch" in {asset["asset_key"] for asset in listed["assets"]}


def test_a_file_that_init_writes_for_dg_is_no_declaration(shop):
    assert "assets/defs/__init__.py" in project_files("shop")
    (shop / "assets" / "defs" / "own.py").write_text("raise RuntimeError('Python of a component is no declaration')")

    assert set(specs(load(shop))) == {"orders", "spend"}

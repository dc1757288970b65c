"""The public doors: what users may import is a list, and a change of it is a decision."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

PUBLIC = {
    "freshline": """
        __version__ alter_query consumers create_savepoint create_table drop_consumer drop_savepoint drop_table lookup
        open_reader process read read_changes read_rows read_snapshot read_union refresh_tables register_consumer
        reset_freshness restore_savepoint resume savepoints set_freshness sink source suspend table verify_tables
    """,
    "freshline.dagster": """
        FreshlineProject FreshlineProjectComponent FreshlineResource FreshlineTable FreshlineTranslator SparkResource
        asset_key_for build_asset_selection build_assets build_checks build_definitions build_sensors
    """,
    "freshline.testing": """
        AskedSystem CatalogSystem ClaimsError Crash Lab LabClock LandingFolder MergedTable Service SinkSystem System
        check_channel check_connector check_format check_lookup check_merge check_registrar check_sink
    """,
}


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_these(package):
    assert importlib.import_module(package).__all__ == PUBLIC[package].split()


@pytest.mark.parametrize("package", PUBLIC)
def test_each_public_name_is_there_and_says_what_it_is(package):
    module = importlib.import_module(package)

    for name in module.__all__:
        found = getattr(module, name)
        assert isinstance(found, str) or found.__doc__, name
    with pytest.raises(AttributeError):
        module.nothing_of_the_kind  # noqa: B018


def test_functions_return_values_and_not_dictionaries():
    """A key is checked when it is read, a field by the type checker. Rows of a query are keyed by its columns."""
    functions = {
        f"{package}.{name}": str(inspect.signature(found).return_annotation)
        for package in PUBLIC
        for name in importlib.import_module(package).__all__
        if inspect.isfunction(found := getattr(importlib.import_module(package), name))
    }

    assert len(functions) > 25
    assert {name: returned for name, returned in functions.items() if "dict" in returned.lower()} == {}


@pytest.mark.seconds
def test_names_that_dg_loads_of_the_door_are_not_spark():
    """Each code server that loads components asks for every name that `dir` returns."""
    code = (
        "import sys, freshline.dagster as door\n"
        "names = [name for name in dir(door) if hasattr(getattr(door, name), '__dg_package_entry__')]\n"
        "print(names, 'pyspark' in sys.modules)"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert said.stdout.strip() == "['FreshlineProjectComponent'] False", said.stderr

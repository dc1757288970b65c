"""Catalogs in the settings: what is accepted, and the sentences of what is not."""

from __future__ import annotations

import pytest

from freshline.values.settings import CatalogSettings
from tests.declared_project import project, settings_of, settings_refused  # noqa: F401

HIVE = '[tool.freshline.catalogs.lake]\ntype = "hive"\nuri = "thrift://metastore:9083"\n'


def test_catalogs_are_tables_of_settings(project):  # noqa: F811
    found = settings_of(project, HIVE + 'tls = true\ntimeout = "30 seconds"').catalogs

    options = {"uri": "thrift://metastore:9083", "tls": "true", "timeout": "30 seconds"}
    assert found == (CatalogSettings("lake", "hive", options),)
    assert settings_of(project).catalogs == ()


def test_an_environment_changes_one_catalog_and_keeps_the_others(project):  # noqa: F811
    own = (
        HIVE
        + '[tool.freshline.catalogs.desk]\ntype = "duckdb"\nfile = "views.sql"\n'
        + '[tool.freshline.environments.test.catalogs.lake]\ntype = "hive"\nuri = "thrift://test:9083"\n'
    )

    found = {each.name: each.options for each in settings_of(project, own, FRESHLINE_ENV="test").catalogs}

    assert found == {"lake": {"uri": "thrift://test:9083"}, "desk": {"file": "views.sql"}}
    assert settings_of(project, own).catalogs[0].options == {"uri": "thrift://metastore:9083"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalogs = 3", "catalogs are tables: [tool.freshline.catalogs.<name>]."),
        ("[tool.freshline.catalogs]\nlake = 3", "catalogs are tables: [tool.freshline.catalogs.lake]."),
        ('[tool.freshline.catalogs."a b"]\ntype = "hive"', "catalog 'a b': a name has letters, digits, _ and - only"),
        ("[tool.freshline.catalogs.lake]", "type is None. Accepted is hive or duckdb, or the registrar of another"),
        ('[tool.freshline.catalogs.lake]\ntype = "hive"', "needs the option 'uri': the address of the metastore"),
        (HIVE + "url = 'x'", "[tool.freshline.catalogs.lake] has no setting url. Did you mean uri?"),
        (HIVE.replace("thrift://", "http://"), "Accepted is addresses such as thrift://metastore:9083"),
        (HIVE.replace("metastore:9083", "user:secret@m:1"), "Accepted is addresses such as thrift://metastore:9083"),
        (HIVE + 'database = "a.b"', "Accepted is a name of letters, digits and underscores"),
        (HIVE + 'tls-ca = "ca.pem"', "option 'tls-ca' needs tls = true"),
        (HIVE + "timeout = [1]", "timeout is a text, a whole number, true or false"),
        (HIVE + 'database = "${env:X}"', "option 'database' cannot take a reference"),
        ('[tool.freshline.catalogs.x]\ntype = "duckdb"\nfile = "a"\nschema = "x\\ny"', "a name of letters, digits and"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(project, text, said):  # noqa: F811
    assert said in settings_refused(project, text)


def test_an_address_may_be_a_reference(project):  # noqa: F811
    assert settings_of(project, HIVE.replace("thrift://metastore:9083", "${env:METASTORE}")).catalogs


def test_the_registrar_of_another_package_is_not_loaded_with_the_settings(project):  # noqa: F811
    found = settings_of(project, '[tool.freshline.catalogs.glue]\ntype = "glue"\nregion = "eu"\n').catalogs

    assert found == (CatalogSettings("glue", "glue", {"region": "eu"}),)

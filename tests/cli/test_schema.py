"""`freshline schema` prints what `declare` makes, without a project and without anything heavy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshline.cli.main import run
from freshline.declare.schema import settings_schema, yaml_schema
from tests.cli.loaded import loaded_by_command


@pytest.mark.parametrize(("kind", "schema"), [("settings", settings_schema()), ("yaml", yaml_schema())])
def test_a_schema_is_printed(
    kind: str,
    schema: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(["schema", kind]) == 0
    assert json.loads(capsys.readouterr().out) == schema
    assert run(["schema", kind, "--json"]) == 0
    assert capsys.readouterr().out == json.dumps(schema) + "\n"


def test_another_kind_is_misused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "sql"]) == 2
    assert "'settings', 'yaml'" in capsys.readouterr().err


def test_nothing_heavy_is_imported() -> None:
    assert loaded_by_command(["schema", "yaml"], "pyspark", "dagster", "deltalake", "pyarrow") == []

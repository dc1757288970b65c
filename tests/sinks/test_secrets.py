"""A password that is not where its reference says: a person has to act, and is told where."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.errors import SinkRefusedError
from tests.sinks.delivering import Host, declared_sink

OPTIONS = "'connector' = 'clickhouse', 'url' = 'http://127.0.0.1:1', 'table' = 't', 'password' = '{reference}'"


def refusal(root: Path, reference: str) -> str:
    spec = declared_sink(root, OPTIONS.format(reference=reference))
    assert spec.sink is not None
    with pytest.raises(SinkRefusedError) as caught:
        spec.sink.open(spec, Host(root)).position()
    # An alert is sent at once.
    assert not caught.value.retry_helps
    return str(caught.value)


def test_a_variable_that_is_not_there_has_to_be_set_for_the_engine(tmp_path: Path) -> None:
    said = refusal(tmp_path, "${env:SURELY_NOT_SET}")

    assert "option 'password': there is no environment variable SURELY_NOT_SET." in said
    assert "`freshline engine stop`" in said


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = refusal(tmp_path, "${file:secrets/click}")

    assert "the file secrets/click of a secret cannot be read: No such file or directory." in said
    assert "engine" not in said

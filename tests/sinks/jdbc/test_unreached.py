"""A database whose address is wrong: the error says how it is not reached, and shows nothing of the address."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.errors import DatabaseError
from tests.sinks.delivering import Host, declared_sink


@pytest.mark.security
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
@pytest.mark.parametrize(
    ("host", "reason"),
    [("127.0.0.1:1", "connection refused"), ("hunter2.invalid", "name|resolution")],
)
def test_the_reason_is_named_and_nothing_of_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, host: str, reason: str
) -> None:
    monkeypatch.setenv("SHOP", f"{scheme}://hunter2:hunter2-secret@{host}/hunter2")
    spec = declared_sink(tmp_path, "'connector' = 'jdbc', 'url' = '${env:SHOP}', 'table' = 't'")
    assert spec.sink is not None

    with pytest.raises(DatabaseError, match=rf"\(.*({reason}).*; is the address in `url` right\?\)") as caught:
        spec.sink.open(spec, Host(tmp_path)).position()

    assert caught.value.retry_helps
    assert "hunter2" not in str(caught.value)

"""An address of OpenSearch with a path that is none of its interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.errors import SinkRefusedError
from tests.servers.web import Answer, web_server
from tests.sinks.delivering import Host, declared_sink


def test_the_sentence_of_the_server_is_shown(tmp_path: Path) -> None:
    said = b'{"error":"no handler found for uri [/nowhere/freshline_sink/_doc/orders] and method [GET]"}'
    with web_server() as server:
        server.answer = Answer(400, said)
        spec = declared_sink(
            tmp_path, f"'connector' = 'opensearch', 'url' = '{server.url}/nowhere', 'index' = 'orders'"
        )
        assert spec.sink is not None
        with pytest.raises(SinkRefusedError, match=r"\(400\): no handler found for uri \[/nowhere/"):
            spec.sink.open(spec, Host(tmp_path)).position()

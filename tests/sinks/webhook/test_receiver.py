"""The receiver of the docs, as it is written there: it has the rows of the table, whatever is repeated or lost."""

from __future__ import annotations

import json
import re
import threading
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshline.errors import SinkRefusedError
from freshline.sinks.webhook.sink import WebhookSink
from tests.servers.web import Fault, web_server
from tests.sinks.delivering import Host, Rows, Sending, sink_spec

PAGE = Path(__file__).parents[3] / "platform" / "docs" / "sinks.md"


@pytest.fixture
def receiver(tmp_path, monkeypatch):
    """The names of the receiver's block, served behind a server that a test scripts."""
    monkeypatch.setenv("STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("HOOK_SECRET", "hunter2")
    (block,) = re.findall(r"```python\n(import hashlib.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    names["Receiver"].log_message = lambda *arguments: None
    server = HTTPServer(("127.0.0.1", 0), names["Receiver"])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    with web_server(behind=server.server_address[1]) as front:
        monkeypatch.setenv("HOOK", f"{front.url}/in")
        yield (
            front,
            lambda: [
                json.loads(row) for (row,) in names["store"].execute("SELECT row FROM orders ORDER BY id").fetchall()
            ],
        )
    server.shutdown()
    server.server_close()
    thread.join()
    names["store"].close()


def rows(*values):
    return pa.table({"id": pa.array([v for v, _ in values], pa.int64()), "note": pa.array([n for _, n in values])})


def test_the_receiver_of_the_docs_has_the_rows_of_the_table(receiver, tmp_path, monkeypatch):
    front, there = receiver
    sink = WebhookSink("${env:HOOK}", "${env:HOOK_SECRET}", rows_per_request=2, private_addresses=True)
    out = Sending(sink_spec(sink), Host(tmp_path))
    # The service has the second post, and its answer gets lost.
    front.next(200, then_fail=True)
    front.next(Fault.CUT, then_fail=True)
    out.whole(rows((1, "a\u2028\n"), (2, "b"), (3, "c")), 1)
    assert there() == [{"id": 1, "note": "a\u2028\n"}, {"id": 2, "note": "b"}, {"id": 3, "note": "c"}]
    with out.stopping_at("sink-post-confirmed"):
        out.changes(Rows(rows((1, "x"), (4, "d")), rows((2, "b"))), 1, 2)
    out.writer.position()
    assert there() == [{"id": 1, "note": "x"}, {"id": 3, "note": "c"}, {"id": 4, "note": "d"}]
    out.whole(rows((4, "d"), (5, "e")), 3)
    assert there() == [{"id": 4, "note": "d"}, {"id": 5, "note": "e"}]
    monkeypatch.setenv("HOOK_SECRET", "another")
    sent = Sending(sink_spec(WebhookSink("${env:HOOK}", "${file:wrong}", private_addresses=True)), Host(tmp_path))
    (tmp_path / "wrong").write_text("wrong")
    with pytest.raises(SinkRefusedError, match="401"):
        sent.changes(Rows(rows((6, "f"))), 3, 4)

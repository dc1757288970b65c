"""A service that takes the posts of a webhook's sink, and keeps the rows that they are about."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HookService:
    """A service on loopback; `port` stays the same when it is started again.

    It takes a post as a whole or not at all: 401 without the signature, and 422 for one with a row whose `v` is one of
    `refused`. `rows` are those of the table by their key `k`. A post that comes again has no effect.
    """

    def __init__(self, secret: str, *, refused: Collection[str] = ()) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.port = 0
        self._secret = secret.encode()
        self._refused = refused
        self._taken: dict[str, bytes] = {}
        self._seen: set[int] = set()
        self._listener: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = service.take(self.headers["Freshline-Signature"], self.headers["Idempotency-Key"], body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Nothing is to be read in the output of the tests."""

        self._listener = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more. Ending it again changes nothing."""
        listener, self._listener = self._listener, None
        if listener is not None and self._thread is not None:
            listener.shutdown()
            self._thread.join()
            listener.server_close()

    def take(self, signature: str, key: str, body: bytes) -> int:
        """The status of a post."""
        seconds, _, given = signature.removeprefix("t=").partition(",v1=")
        signed = hmac.new(self._secret, f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signed, given):
            return 401
        with self._lock:
            if key in self._taken:
                assert self._taken[key] == body
                return 200
            changes = [json.loads(line) for line in body.splitlines()]
            if any(change.get("row", {}).get("v") in self._refused for change in changes):
                return 422
            self._taken[key] = body
            for change in changes:
                self._apply(change)
        return 200

    def _apply(self, change: dict[str, Any]) -> None:
        row = change.get("row", {})
        if change["op"] == "begin":
            self._seen = set()
        elif change["op"] == "upsert":
            self.rows[row["k"]] = row
            self._seen.add(row["k"])
        elif change["op"] == "delete":
            self.rows.pop(row["k"], None)
        elif change["kind"] == "snapshot":
            self.rows = {key: row for key, row in self.rows.items() if key in self._seen}

"""The readers of the fuzzer's inputs: every grammar and protocol of freshline that needs no Spark."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
from deltalake import write_deltalake

from freshline.commit.notes import read_note
from freshline.dagster.webserver.access import Access, Admit, Door, decide
from freshline.dagster.webserver.body import judge_body
from freshline.dagster.webserver.guard import asked_of
from freshline.dagster.webserver.login import Login
from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.declare.project_settings import read_settings
from freshline.declare.yaml_table import COMPONENT, find_tables
from freshline.engine.backfills import read_backfill
from freshline.engine.changes import Changes, FollowLimits
from freshline.engine.ingest import Ingest, PostLimits
from freshline.engine.lock import HOLDER, read_holder
from freshline.engine.requests import KINDS, Request, read_refresh
from freshline.engine.server import TokenGuard, application
from freshline.engine.state_file import read_state, state_file
from freshline.engine.up_record import UpRecord
from freshline.errors import FreshlineError, RequestError, error_from_json
from freshline.keyed import state as keyed_state
from freshline.keyed.state_types import state_type
from freshline.plan.definition import Definition
from freshline.plan.read import Consumer
from freshline.plan.savepoint import Savepoint
from freshline.report.metrics.exposition import GAUGE, Family, MetricSample, labels
from freshline.report.results import ResultRows, read_result
from freshline.sources.files.lines import LineReading, inspect_files, pieces_of, read_pieces
from freshline.sources.files.position import FileMark
from freshline.sources.http.landing import Landing
from freshline.sql.managing import read_managing
from freshline.testing.models import linear_model
from freshline.values.alert_settings import web_problem
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult
from freshline.values.secret import resolve_reference
from tests.asgi import ask_asgi
from tests.conftest import settings_in
from tests.declare.test_any_text import PARTS, POOL
from tests.plan.test_event_time_kinds import SOURCES
from tests.security.fuzz import Target, mutated, mutated_json, odd
from tests.values.test_receipt import RECEIPT

TOKEN = "token-of-the-fuzzer"
PORT = 4242
WORDS = re.compile(r"\s+|'[^']*'|`[^`]*`|[\w.]+|.", re.DOTALL)
Headers = list[tuple[bytes, bytes]]


@cache
def folder() -> Path:
    """A folder of this process for the files that readers want."""
    return Path(tempfile.mkdtemp(prefix="freshline-fuzz-"))


@cache
def small_graph() -> Graph:
    """The graph that requests and statements speak of."""
    query = "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT k, v FROM log"
    return read_declarations(
        {**{f"{name}.sql": text for name, text in SOURCES.items()}, "t.sql": query}, settings_in(folder())
    )


# -- declarations


def read_sql(text: str) -> object:
    """As a declaration that replaces the table t, or stands beside the sources."""
    _model()
    files = {f"{name}.sql": source for name, source in SOURCES.items()}
    return read_declarations({**files, "t.sql": text}, settings_in(folder()))


@cache
def _model() -> Path:
    """The model that some declarations name."""
    file = folder() / "m.onnx"
    file.write_bytes(linear_model([1.0], 0.0))
    return file


def make_sql(chance: random.Random) -> str:
    return mutated(chance, chance.choice(PARTS), POOL)


YAML = f"""type: {COMPONENT}
attributes:
  tables:
    - name: a.t
      comment: "All: of them"
      mode: batch
      freshness: 1 day
      primary_key: [day, customer]
      partitioned_by: day
      cluster_by:
        - customer
      options: {{partition.unit: day, partition.start: 2026-01-01, merge: last_row}}
      constraints:
        - {{name: positive, expect: amount > 0, on_violation: drop row}}
      watermark: at - INTERVAL '5' MINUTE
      query: |
        SELECT day, customer, sum(amount) AS total FROM orders GROUP BY day, customer
    - &x
      name: u
      query: SELECT 1 AS a
    - <<: *x
      name: !!str v
"""
YAML_PARTS = tuple(WORDS.findall(YAML))
YAML_POOL = (*(part for part in YAML_PARTS if part.strip()), "\n", "\n  ", "\n    - ", ": ", "- ", "&a ", "*a", "*x")
YAML_POOL = (
    *YAML_POOL,
    "!!python/object/apply:os.system ['id']",
    "!!binary ",
    "!!set ",
    "? ",
    "---\n",
    "%TAG ",
    "<<: ",
)


def read_yaml(text: str) -> object:
    return [table.clauses() for table in find_tables(text, "defs.yaml")]


def make_yaml(chance: random.Random) -> str:
    return mutated(chance, YAML_PARTS, YAML_POOL)


STATEMENTS = (
    "ALTER MATERIALIZED TABLE a.t SET FRESHNESS = INTERVAL '5' SECOND FOR INTERVAL '48' HOUR",
    "ALTER MATERIALIZED TABLE t SUSPEND FOR INTERVAL '2' HOUR BECAUSE 'wrong prices'",
    "ALTER MATERIALIZED TABLE t RESUME",
    "ALTER MATERIALIZED TABLE t AS SELECT k, v FROM log WHERE v > 1 FROM DATE '2026-11-01'",
    "REFRESH MATERIALIZED TABLE t PARTITION (day = '2026-11-01', k = 1) FULL",
    "CREATE SAVEPOINT before_the_sale FOR t, a.u",
    "RESTORE SAVEPOINT before_the_sale",
    "DROP MATERIALIZED TABLE t PURGE",
    "SHOW REFRESHES FOR t",
    "DESCRIBE HISTORY t",
    "EXPLAIN MATERIALIZED TABLE t",
    "VERIFY MATERIALIZED TABLE t",
)
STATEMENT_PARTS = tuple(tuple(WORDS.findall(text)) for text in STATEMENTS)
STATEMENT_POOL = tuple(part for parts in STATEMENT_PARTS for part in parts if part.strip())


def make_statement(chance: random.Random) -> str:
    return mutated(chance, chance.choice(STATEMENT_PARTS), (*STATEMENT_POOL, " ", "--", "/*", "*/", ";"))


SETTINGS = """[tool.freshline]
declarations = "assets"
default-freshness = "1 hour"
driver-memory = "4g"
umask = "027"
control-store = "postgresql+psycopg://user:pass@host:5432/database?sslmode=require"
dagster-hosts = ["dagster.example.com", "localhost:8000"]
dagster-token = "${env:UI}"
engine-port = 4000
[tool.freshline.environments.production]
state = "x"
warehouse = "/data/freshline/warehouse"
control-store = "sqlite:////data/control.db"
[tool.freshline.spark-confs]
"spark.sql.shuffle.partitions" = 64
[tool.freshline.alerts]
remind-after = "6 hours"
quarantine-share = 0.05
[tool.freshline.alerts.channels.pager]
type = "webhook"
url = "https://pager.example.com/freshline"
secret = "${env:PAGER_SECRET}"
[tool.freshline.alerts.channels.team]
type = "email"
host = "mail.example.com"
username = "freshline"
password = "${file:/run/secrets/mail}"
from = "freshline@example.com"
to = ["data@example.com"]
"""
SETTINGS_PARTS = tuple(re.findall(r'\s+|"[^"]*"|[\w.-]+|.', SETTINGS))
SETTINGS_POOL = (
    *(part for part in SETTINGS_PARTS if part.strip()),
    '"""',
    "inf",
    "1979-05-27",
    "\n",
    "=",
    "{a=1}",
    "[[x]]",
)


def read_toml(text: str) -> object:
    (folder() / "pyproject.toml").write_text(text, encoding="utf-8", errors="surrogatepass")
    return read_settings(folder(), {})


def make_toml(chance: random.Random) -> str:
    return mutated(chance, SETTINGS_PARTS, SETTINGS_POOL)


# -- what processes leave for each other


def read_receipt(text: str) -> object:
    found = Receipt.from_json(text)
    # A correct reading is one that is written and read again as the same.
    if found is not None:
        again = Receipt.from_json(found.to_json())
        assert again is not None, "the receipt cannot be read again"
        # Seconds are rounded when they are written, and those of zero are left out then.
        once_more = Receipt.from_json(again.to_json())
        assert once_more == again, "the receipt is another one when it is read again"
    return found


RECEIPTS: tuple[object, ...] = (
    json.loads(RECEIPT.to_json()),
    {"freshline": 2, "table": "a.t", "fingerprint": "f", "epoch": 1, "seq": 2, "mode": "batch", "strategy": "full"}
    | {"reason": "FIRST", "data_timestamp": None, "positions": {}, "rows": {"in": 1, "out": 2}, "attempt": "x"},
    json.loads(RECEIPT.to_json())
    | {"spans": {"fingerprints": ["f"], "positions": [], "spans": [["2026-01-01", "2026-01-02", 0, None]]}}
    | {"event_time": {}, "violations": {"c": {"rows": 1, "samples": ["{}"]}}, "models": {"m": ["a"]}}
    | {"positions": {"k": {"kind": "kafka", "cluster_id": "c", "topic": "t", "topic_id": "i", "offsets": {"0": 5}}}},
)

SAVEPOINT = {
    "freshline_savepoint": 1, "name": "s", "created_at": "2026-11-01T00:00:00+00:00", "named": False, "cut": {},
    "sources": {"a": {"table_id": "x", "version": 1, "seq": None}}, "consumers": {},
    "tables": [{"table": "t", "table_id": "x", "version": 1, "receipt": RECEIPTS[0], "sides": {}}],
}  # fmt: skip
CONSUMER = {
    "freshline_consumer": 1, "name": "c", "table": "t", "table_id": "x", "version": 1, "rows_first": False,
    "expiry_seconds": 60, "moved_at": "2026-11-01T00:00:00+00:00", "expires_at": "2026-11-02T00:00:00+00:00",
}  # fmt: skip
STATE = {
    "format": 1, "pid": 1, "start_time": 1.5, "start_mark": "", "jvm_pid": 2, "jvm_start_time": 2.5,
    "jvm_start_mark": "", "http_port": 1, "connect_port": 2, "token": "t", "warehouse": "/w", "version": "0",
    "loops": True, "folder": {"device": 1, "inode": 2},
}  # fmt: skip
HOLDER_FILE = {**STATE, "host": "h", "since": "2026-11-01T00:00:00+00:00", "project": "/p", "state": "/s", "lock": {}}
UP = {
    "format": 1, "mark": "m", "supervisor": {"pid": 1, "start_time": 1.0}, "url": None, "started_engine": True,
    "children": [{"name": "watch", "pid": 3, "start_time": 1.0, "start_mark": ""}],
}  # fmt: skip


def read_notes_of(text: str) -> object:
    """A savepoint and a consumer, from a file beside the tables."""
    file = folder() / "note.json"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    value = read_note(file)
    assert value is not None
    return Consumer.from_json(value, "x") if "freshline_consumer" in value else Savepoint.from_json(value, "x")


def make_notes(chance: random.Random) -> str:
    return mutated_json(chance, chance.choice((SAVEPOINT, CONSUMER)))


def read_processes(text: str) -> object:
    """The files that say which processes run: each reads as nothing where it says nothing that can be read."""
    for file in (state_file(folder()), folder() / HOLDER, folder() / "up.json"):
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return read_state(folder()), read_holder(folder()), UpRecord.read(folder() / "up.json")


def make_processes(chance: random.Random) -> str:
    return mutated_json(chance, chance.choice((STATE, HOLDER_FILE, UP)))


def read_key_state(text: str) -> object:
    """A state of a key: plain values, or none."""
    return keyed_state.read(text, DECLARED)


DECLARED = {
    name: state_type(kind)
    for name, kind in (
        ("n", "int"), ("f", "float | None"), ("text", "str"), ("data", "bytes"), ("sum", "Decimal"), ("id", "UUID"),
        ("day", "date"), ("hour", "time"), ("at", "list[datetime]"), ("wait", "timedelta"), ("last", "deque[int]"),
        ("seen", "dict[str, tuple[int, ...]]"), ("pair", "tuple[bool, str]"), ("of", "Counter[str]"),
    )
}  # fmt: skip
AT = ["datetime", ["2026-01-01T00:00:00", 0, 0]]
ATTRIBUTES = {
    "n": "1" + "0" * 20, "f": 1.5, "text": "x", "data": "00ff", "sum": "1.50", "day": "2026-01-01",
    "id": "00000000-0000-0000-0000-000000000005", "hour": ["01:00:00", 3600000000, 1], "wait": [0, 5, 0],
    "at": [["2026-10-25T02:30:00", "Europe/Berlin", 1], ["2026-01-01T00:00:00", None, 0]], "last": [2, [1, 2]],
    "seen": [["a", [1, 2]]], "pair": [True, "x"], "of": [["a", 3]],
}  # fmt: skip
STATES = (
    [keyed_state.FORMAT, [["str", "a"]], [AT, ["int", 1]], [AT, AT, None], [[0, AT, AT]], 1, ATTRIBUTES],
    [keyed_state.FORMAT, [None], [None], [None, None, None], None, 0, {}],
)


# -- protocols


class FuzzedControl:
    """An engine without Spark: it reads the arguments of requests as the engine does, and keeps no request open."""

    def __init__(self) -> None:
        self.calls = 0
        self.requests: dict[str, Request] = {}

    def health(self) -> Mapping[str, Any]:
        self.calls += 1
        return {"pid": 1}

    def submit(self, kind: str, arguments: Mapping[str, Any], asker: int | None) -> Request:
        self.calls += 1
        if kind not in KINDS:
            raise RequestError(f"there is no request {kind!r}.")
        request = Request(kind, arguments)
        error: dict[str, object] | None = None
        try:
            match kind:
                case "refresh":
                    read_refresh(small_graph(), arguments)
                case "backfill":
                    read_backfill(small_graph(), arguments, TableName.parse("t"), request.id, "manual")
                case "sql":
                    read_managing(str(arguments.get("statement")))
        except FreshlineError as failure:
            error = failure.as_json()
        json.dumps(arguments)
        request.report({"type": "done", "state": "FAILED" if error else "SUCCEEDED", "error": error})
        self.requests = {"known": request}
        return request

    def find(self, request_id: str) -> Request:
        self.calls += 1
        found = self.requests.get(request_id)
        if found is None:
            raise RequestError(f"there is no request {request_id}")
        return found

    def status(self) -> list[dict[str, Any]]:
        self.calls += 1
        return []

    def metrics(self) -> Sequence[Family]:
        self.calls += 1
        return [Family("freshline_loops_running", GAUGE, "Whether loops run.", (MetricSample(labels(), 1),))]

    def set_loops(self, on: bool) -> None:
        self.calls += 1

    def stop(self, seconds: float | None) -> None:
        self.calls += 1
        if seconds is not None:
            # As the engine does it with the time that it is given.
            assert 0 <= seconds < 1e400, "the engine would never end"


CONTROL = FuzzedControl()
SCRAPE_TOKEN = "the-token-of-metrics"
ENGINE = TokenGuard(application(CONTROL), TOKEN, PORT, scrape_token=SCRAPE_TOKEN)
ROUTES = (
    "/health",
    "/status",
    "/metrics",
    "/requests",
    "/requests/known/events",
    "/requests/known/cancel",
    "/loops",
    "/stop",
)
BODIES: tuple[object, ...] = (
    {"kind": "refresh", "arguments": {"tables": ["t"], "full": True, "partitions": [[["k", "1"]]], "cause": "manual"}},
    {"kind": "backfill", "arguments": {"id": "x", "ranges": [["day", "2026-01-01", None]], "partitions": []}},
    {"kind": "refresh", "arguments": {"tables": ["t"], "start": "2026-11-01"}, "asker": 12},
    {"kind": "sql", "arguments": {"statement": "ALTER MATERIALIZED TABLE t RESUME", "limit": 5}},
    {"on": True},
    {"seconds": 3.5},
)


def make_request(chance: random.Random) -> str:
    """A request of HTTP as a JSON object. Half of them know the token, and one in ten is a scrape for some host."""
    admitted = chance.random() < 0.7
    headers = [["host", f"127.0.0.1:{PORT}"], ["authorization", f"Bearer {TOKEN}"]]
    if not admitted:
        headers[chance.randrange(2)][1] = chance.choice(
            (
                *("", "Bearer", TOKEN, f"Bearer {TOKEN}x", f"bearer {TOKEN}", f"Basic {TOKEN}", "evil.example"),
                *(f"127.0.0.1:{PORT}@x", f"127.0.0.1.evil:{PORT}", f"0.0.0.0:{PORT}", f"LOCALHOST:{PORT}"),
            )
        )
    elif chance.random() < 0.2:
        headers[1][1] = f"Bearer {SCRAPE_TOKEN}"
    if chance.random() < 0.3:
        headers.append([chance.choice(("content-length", "transfer-encoding", "origin", "host")), odd(chance)[:100]])
    path = chance.choice(ROUTES) if chance.random() < 0.8 else mutated(chance, chance.choice(ROUTES).split("/"), ROUTES)
    query = chance.choice(
        ("", "after=0&wait=0", f"after={odd(chance)[:60]}&wait=0", f"after=1&wait={odd(chance)[:60]}")
    )
    body = mutated_json(chance, chance.choice(BODIES)) if chance.random() < 0.9 else odd(chance)
    method = chance.choice(("GET", "POST", "POST", "POST", "PUT", "OPTIONS", "HEAD", "DELETE", "BREW"))
    if chance.random() < 0.1:
        # Route, method and token fit together by chance in one of some thousand requests.
        path, method, headers[1][1] = "/metrics", chance.choice(("GET", "HEAD", "POST")), f"Bearer {SCRAPE_TOKEN}"
    return json.dumps({"method": method, "path": path, "query": query, "headers": headers, "body": body})


def _scope(value: Any, kind: str = "http") -> dict[str, Any]:
    headers: Headers = [
        (str(k).lower().encode("latin-1", "replace"), str(v).encode("latin-1", "replace")) for k, v in value["headers"]
    ]
    # As the server hands on the path and the query: without what is no UTF-8, and the query in ASCII.
    path = str(value["path"]).encode("utf-8", "replace").decode("utf-8", "replace")
    query = str(value["query"]).encode("ascii", "replace")
    return {
        "type": kind, "method": str(value["method"]), "path": path, "raw_path": path.encode(), "query_string": query,
        "headers": headers, "scheme": "http", "http_version": "1.1", "root_path": "", "client": None, "server": None,
    }  # fmt: skip


def read_engine_request(text: str) -> object:
    """Who has not both the token and the host reaches nothing; who has is answered by a result or an error of ours."""
    value = _request_of(text)
    scope, before = _scope(value), CONTROL.calls
    body = str(value["body"]).encode("utf-8", "surrogatepass")
    status, answer = ask_asgi(ENGINE, scope, body)
    if status == 200 and b'"id"' in answer and scope["path"] == "/requests":
        # How it ended is asked for as the client does it; an error contains what was sent.
        ended = {**scope, "method": "GET", "path": "/requests/known/events", "query_string": b"after=0&wait=0"}
        status, answer = ask_asgi(ENGINE, ended, b"")
        assert status == 200, "the end of a request cannot be asked for"
    found = dict(scope["headers"])
    knows = found.get(b"authorization") == f"Bearer {TOKEN}".encode()
    if found.get(b"authorization") == f"Bearer {SCRAPE_TOKEN}".encode():
        knows = scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD")
    local = found.get(b"host") in (f"127.0.0.1:{PORT}".encode(), f"localhost:{PORT}".encode())
    assert (knows and local) or (CONTROL.calls == before and status in (401, 403)), "an uninvited request was served"
    assert status in (200, 400, 401, 403, 404, 405, 413, 503), f"the status is {status}"
    if status >= 400 and status not in (404, 405):
        raise error_from_json(json.loads(answer)["error"])
    if status in (404, 405):
        raise RequestError("no such route")
    return answer


POSTED = "CREATE SOURCE posted (k INT) WITH ('connector' = 'http', 'format' = '{}', 'path' = 'p', 'token' = '{}')"
POST_TOKENS = {"JSON": "the-token-of-json", "CSV": "the-token-of-csv"}


@cache
def posts() -> Ingest:
    """A door for posts to two sources, behind the guard of the engine."""
    (folder() / "p").mkdir()
    files = {f"{name}.sql": POSTED.replace("posted", name) for name in ("a", "b")}
    filled = {
        file: text.format(*filler)
        for (file, text), filler in zip(files.items(), (("json", "${env:JSON}"), ("csv", "${env:CSV}")), strict=True)
    }
    graph = read_declarations(filled, settings_in(folder()))
    return Ingest(lambda: graph, folder(), POST_TOKENS, Landing(reserve=0), PostLimits(body=2_000))


def make_post(chance: random.Random) -> str:
    """A post as a JSON object; most bear a token, and most have the length that they say."""
    name, media_type = chance.choice(
        (("JSON", "application/x-ndjson"), ("JSON", "application/json"), ("CSV", "text/csv"))
    )
    token = POST_TOKENS[name]
    value = mutated_json(chance, chance.choice(([{"k": 1}, {"k": [2, "x"]}], {"k": 1.5}, []))) + chance.choice(
        ("", "\n")
    )
    body = value if chance.random() < 0.8 else odd(chance)
    headers = [
        ["host", f"127.0.0.1:{PORT}"],
        ["authorization", f"Bearer {token}"],
        ["content-type", media_type],
        ["content-length", str(len(body.encode("utf-8", "surrogatepass")))],
    ]
    if chance.random() < 0.3:
        place = chance.randrange(4)
        headers[place][1] = chance.choice((odd(chance)[:60], f"{headers[place][1]}x", "", f"Bearer {TOKEN}", "gzip"))
    more = ("idempotency-key", "content-encoding", "origin", "transfer-encoding", "content-type", "authorization")
    headers += [
        [each, chance.choice(("gzip", "k", "identity", odd(chance)[:60]))] for each in more if chance.random() < 0.05
    ]
    path = f"/ingest/{chance.choice(('a', 'b', 'A', 'a', 'c', '../health', odd(chance)[:40]))}"
    method = chance.choice(("POST", "POST", "POST", "POST", "GET", "OPTIONS", "BREW"))
    return json.dumps({"method": method, "path": path, "query": "", "headers": headers, "body": body})


def read_post(text: str) -> object:
    """A file lands for a post that is answered 202 and has an event, and for no other; it has the bytes of the post."""
    value = _request_of(text)
    scope, body = _scope(value), str(value["body"]).encode("utf-8", "surrogatepass")
    if not scope["path"].startswith("/ingest/"):
        raise RequestError("no post")
    before = _landed()
    status, answer = ask_asgi(TokenGuard(application(CONTROL), TOKEN, PORT, posts()), scope, body)
    new = _landed() - before
    for file in new:
        data = file.read_bytes()
        file.unlink()
        assert data, "a post without events is stored"
        assert json.loads(answer) == {"bytes": len(data), "repeated": False}
        assert len(data) <= 4_000, "a post is larger than the limit"
    assert len(new) == (1 if status == 202 and json.loads(answer)["bytes"] else 0), f"{status}: {len(new)} files"
    if status != 202:
        assert status in (400, 401, 403, 404, 405, 411, 413, 415), f"the status is {status}"
        raise error_from_json(json.loads(answer)["error"])
    names = [name for name, _ in scope["headers"]]
    found = dict(scope["headers"])
    token = POST_TOKENS["JSON" if scope["path"].lower() == "/ingest/a" else "CSV"]
    assert found[b"authorization"] == f"Bearer {token}".encode(), "a post without the token is stored"
    assert found[b"host"] in (f"127.0.0.1:{PORT}".encode(), f"localhost:{PORT}".encode()), "a foreign host may post"
    assert b"origin" not in names, "a page may post"
    assert scope["method"] == "POST"
    return answer


FOLLOW_TOKEN = "the-token-of-changes"
FOLLOWED = "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k)) FRESHNESS = INTERVAL '1' HOUR AS SELECT k, v FROM log"


@cache
def followers() -> Changes:
    """A door for those who follow a table of three versions. An answer ends as soon as it has begun."""
    root = folder()
    settings = replace(settings_in(root), changes_token="${env:FOLLOW}", masked_columns=("v",))
    log = "CREATE SOURCE log (k INT, v STRING) WITH ('connector' = 'delta', 'path' = 'x')"
    graph = read_declarations({"t.sql": FOLLOWED, "log.sql": log}, settings)
    for numbers in ([1, 2], [3], [4]):
        rows = pa.table({"k": pa.array(numbers, pa.int32()), "v": [f"{SECRET_VALUE}{number}" for number in numbers]})
        write_deltalake(settings.warehouse / "t", rows, mode="append")
    return Changes(lambda: graph, settings, {"FOLLOW": FOLLOW_TOKEN}, FollowLimits(connection=0.0))


SECRET_VALUE = "a-masked-value"


def make_follow(chance: random.Random) -> str:
    """A request to follow a table, as a JSON object; most bear the token."""
    place = chance.choice(("now", "beginning", "0", "2", "2-00000000-0000000000000000", "9" * 18, odd(chance)[:40]))
    query = urlencode(
        {
            name: value
            for name, value in (
                ("from", place),
                ("columns", chance.choice(("k", "v", "k,v", "K", odd(chance)[:20]))),
                ("consumer", chance.choice(("c", "../c", "", odd(chance)[:20]))),
            )
            if chance.random() < 0.4
        },
        errors="surrogatepass",
    )
    headers = [["host", f"127.0.0.1:{PORT}"], ["authorization", f"Bearer {FOLLOW_TOKEN}"]]
    if chance.random() < 0.2:
        headers[chance.randrange(2)][1] = chance.choice(
            (f"Bearer {TOKEN}", f"Bearer {FOLLOW_TOKEN}x", "", odd(chance)[:60])
        )
    if chance.random() < 0.4:
        headers.append(["last-event-id", chance.choice((place, "1-0-0-rows-1-0", odd(chance)[:60]))])
    path = f"/changes/{chance.choice(('t', 'T', 't', 'log', 'u', '../status', odd(chance)[:40]))}"
    method = chance.choice(("GET", "GET", "GET", "GET", "POST", "HEAD", "BREW"))
    return json.dumps({"method": method, "path": path, "query": query, "headers": headers, "body": ""})


def read_follow(text: str) -> object:
    """Events are for those alone who bear the token, and have no value of a masked column."""
    # Of this version of ASGI: the answer does not wait for a client that goes.
    scope = _scope(_request_of(text)) | {"asgi": {"version": "3.0", "spec_version": "2.4"}}
    if not scope["path"].startswith("/changes/"):
        raise RequestError("no request to follow")
    guard = TokenGuard(application(CONTROL), TOKEN, PORT, changes=followers())
    status, answer = ask_asgi(guard, scope, b"")
    assert SECRET_VALUE.encode() not in answer, "a masked value is sent"
    if status != 200:
        assert status in (400, 401, 403, 404, 405, 409, 410), f"the status is {status}"
        raise error_from_json(json.loads(answer)["error"])
    found = dict(scope["headers"])
    assert answer.startswith(b"retry: ")
    assert found[b"authorization"] == f"Bearer {FOLLOW_TOKEN}".encode(), "events without the token"
    assert found[b"host"] in (f"127.0.0.1:{PORT}".encode(), f"localhost:{PORT}".encode()), "a foreign host gets events"
    assert scope["method"] == "GET"
    return answer


def _landed() -> set[Path]:
    return {file for file in (folder() / "p").rglob("*") if file.is_file()}


def _request_of(text: str) -> Any:
    """The request that an input describes; what is no description is refused here, for shortened inputs."""
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or any(
            not isinstance(each, list) or len(each) != 2 for each in value["headers"]
        ):
            raise RequestError("no request")
        return {key: value[key] for key in ("method", "path", "query", "headers", "body")}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RequestError("no request") from error


ACCESS = Access(PORT, ("dagster.example.com",), Login("0123456789abcdef", PORT))
OPEN = Access(PORT, ("dagster.example.com",), None, read_only=True)
NOW = datetime(2026, 11, 1, tzinfo=UTC)
UI_PATHS = (
    "/",
    "/runs",
    "/graphql",
    "/server_info",
    "/notebook",
    "/logs/a/b",
    "/report_asset_check/a/b",
    "/download_debug/x",
)
QUERIES = (
    "{ version }",
    "mutation { stop }",
    "query A {a} mutation B {b}",
    "subscription {a}",
    "{" * 500,
    "fragment x on y {z}",
)


def make_ui_request(chance: random.Random) -> str:
    names = ("origin", "content-type", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "content-length", "cookie")
    own = (
        "http://localhost:4242",
        "application/json",
        "same-origin",
        "navigate",
        "document",
        "20",
        f"freshline_{PORT}=1.2",
    )
    headers = [
        ["host", chance.choice((f"localhost:{PORT}", f"127.0.0.1:{PORT}", "dagster.example.com", "evil.example"))]
    ]
    for name, value in zip(names, own, strict=True):
        if chance.random() < 0.5:
            headers.append([name, value if chance.random() < 0.7 else odd(chance)[:80]])
    if chance.random() < 0.5:
        headers.append(["authorization", f"Bearer {chance.choice(('0123456789abcdef', 'no', odd(chance)[:50]))}"])
    if chance.random() < 0.1:
        headers.append(list(chance.choice(headers)))
    path = chance.choice(UI_PATHS) if chance.random() < 0.7 else mutated(chance, chance.choice(UI_PATHS), UI_PATHS)
    query = chance.choice(("", "query=mutation{x}", "token=0123456789abcdef", f"token={odd(chance)[:40]}"))
    body = (
        json.dumps({"query": chance.choice(QUERIES)})
        if chance.random() < 0.6
        else mutated_json(chance, {"query": "{a}"})
    )
    method = chance.choice(("GET", "POST", "POST", "HEAD", "PUT", "OPTIONS"))
    return json.dumps({"method": method, "path": path, "query": query, "headers": headers, "body": body})


def read_ui_request(text: str) -> object:
    """Whatever the guard admits keeps the laws of the guard, which are written here once more, and shorter."""
    value = _request_of(text)
    for kind in ("http", "websocket"):
        asked = asked_of(_scope(value, kind))
        for access in (ACCESS, OPEN):
            answer = decide(asked, access, NOW)
            if isinstance(answer, Admit):
                _check_admitted(asked, answer, access)
    refusal = judge_body(Door.GRAPHQL, str(value["body"]).encode("utf-8", "surrogatepass"), read_only=True)
    if refusal is None:
        assert "mutation" not in json.loads(value["body"])["query"], "a mutation of a read-only UI"
    return refusal


def _check_admitted(asked: Any, admit: Admit, access: Access) -> None:
    hosts = {f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}", "dagster.example.com"}
    assert admit.host in hosts, "a foreign host is admitted"
    origins = {f"http://{admit.host}", f"https://{admit.host}"}
    assert asked.header("origin") is None or asked.header("origin") in origins, "a foreign origin is admitted"
    assert ".." not in asked.path.split("/"), "a path that goes up is admitted"
    if asked.kind == "websocket":
        assert asked.header("origin") in origins, "a websocket without an origin is admitted"
    elif asked.method == "POST":
        assert (asked.header("content-type") or "").startswith("application/json"), "a form is admitted"
    else:
        assert asked.method in ("GET", "HEAD"), "a method that the UI does not need is admitted"
        assert not (asked.path == "/graphql" and asked.query), "a query by GET is admitted"
    if access.login is not None:
        bearer = (asked.header("authorization") or "").partition(" ")[2].strip()
        assert bearer == "0123456789abcdef", "a request without the token is admitted"


ANSWERS: tuple[object, ...] = (
    {"columns": [["a", "int"]], "rows": [{"a": 1}], "truncated": False},
    {"code": "DECLARATION", "message": "m", "where": "w", "rule": "SEVERAL", "retry_helps": False, "errors": []},
    {"code": "SEVERAL", "message": "m", "where": None, "errors": [{"rule": "QUERY", "message": "m", "where": "a:1"}]},
    {"table": "t", "at": "2026-11-01T00:00:00+00:00", "state": "FAILED", "strategy": None, "reason": "x", "seconds": 1}
    | {"version": 1, "fingerprint": "f", "error": {"code": "STORAGE", "message": "m"}},
)


def read_answer(text: str) -> object:
    """The result or error that a client makes of an answer of the engine."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError("no JSON: the client says so by itself") from error
    if not isinstance(value, dict):
        return None
    str(error_from_json(value))
    return read_result(ResultRows, value) if "rows" in value else read_result(RefreshResult, value)


def make_answer(chance: random.Random) -> str:
    return mutated_json(chance, chance.choice(ANSWERS))


DEFINITION = {
    "freshline": 1, "fingerprint": "f", "query": "SELECT 1", "columns": ["a"], "primary_key": [], "partitioned_by": [],
    "arrival": False, "rest": "x",
}  # fmt: skip


def read_definition_file(text: str) -> object:
    """A declaration that was kept beside the tables: read as the refresh reads it, which takes damage for absence."""
    from freshline.commit.definitions import FOLDER, read_definition

    file = folder() / FOLDER / "f.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    found: Definition | None = read_definition(folder(), "f")
    return found


# -- secrets and addresses

REFERENCES = ("${env:HOME}", "${file:/etc/hostname}", "${file:~/x}", "${file:x/../y}", "${env:", "${file:}", "plain")
URLS = (
    "https://hooks.example.com/a?b=c",
    "http://127.0.0.1:9000/a",
    "https://[::1]:443/",
    "https://user:pass@example.com/",
)
URL_POOL = (
    "https",
    "http",
    "://",
    "//",
    ":",
    "@",
    "#",
    "?",
    "[",
    "]",
    "%00",
    "..",
    "0x7f.1",
    "①",
    "/",
    "\\",
    "65536",
    "example.com",
)


def read_reference(text: str) -> object:
    try:
        return resolve_reference(text, folder(), {"HOME": "x"})
    except ValueError as error:
        raise RequestError(str(error)) from error


def make_reference(chance: random.Random) -> str:
    return mutated(chance, tuple(chance.choice(REFERENCES)), (*REFERENCES, "${", "}", ":", "~", "/", "\x00"))


def read_url(text: str) -> object:
    """A url without a problem has a host, a scheme of the web and no user."""
    for private in (True, False):
        problem = web_problem(text, private=private)
        if problem is None:
            assert "@" not in re.split("[/?#]", text.partition("//")[2])[0], "a user in an address"
            assert private or text.lower().startswith("https:"), "an address without encryption"
        else:
            # The secret of an address is in its path; a short one is found in any sentence.
            assert len(text) < 12 or text not in problem, "the address is shown"
    return problem


def make_url(chance: random.Random) -> str:
    return mutated(chance, tuple(re.findall(r"\w+|\W", chance.choice(URLS))), URL_POOL)


# -- landing files


def make_lines(chance: random.Random) -> str:
    """The bytes of a landing file; the first character is its format, the second the ending of its name."""
    lines = [
        '{"a": 1, "b": "x"}',
        "a,b",
        '1,"x ""y"""',
        "",
        " ",
        "\xef\xbb\xbf{}",
        '{"a": "\\ud800"}',
        "\xff\xfe",
        "[1]",
        "\x00",
    ]
    ends = ("\n", "\r\n", "\r", "\n\n", "\x0b", "\xe2\x80\xa8", "")
    parts = [part for _ in range(chance.randrange(6)) for part in (chance.choice(lines), chance.choice(ends))]
    text = mutated(chance, parts or [""], lines)
    kind, packed = chance.choice("jc"), chance.choice("...gbzl")
    data = text.encode("latin-1", "replace")
    if packed == "g" and chance.random() < 0.7:
        import gzip

        data = gzip.compress(data)[: chance.choice((None, 5, 12, -4))]
    return kind + packed + data.decode("latin-1")


def read_lines(text: str) -> object:
    """Each line of a file that can be read is one record, with a number of its own; nothing is added or left out."""
    if len(text) < 2:
        return None
    ending = {"g": ".gz", "b": ".bz2", "z": ".zst", "l": ".lz4"}.get(text[1], "")
    name = f"a.{'json' if text[0] == 'j' else 'csv'}{ending}"
    file = folder() / name
    data = text[2:].encode("latin-1", "replace")
    file.write_bytes(data)
    status = file.stat()
    reading = LineReading("json" if text[0] == "j" else "csv", 1 << 20, follow_links=False)
    (found,) = inspect_files(folder(), (FileMark(name, status.st_size, status.st_mtime_ns),), reading)
    rows = 0
    if found.error is None:
        for batch in read_pieces(pieces_of(folder(), (found,), (0,)), reading):
            rows += batch.num_rows
        assert rows == found.records(0), f"{found.records(0)} lines were counted and {rows} read"
    if found.error is None and not ending:
        lines = [line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r") for line in data.split(b"\n")]
        expected = sum(bool(line.strip(b" ") if text[0] == "j" else line) for line in lines)
        assert rows == expected, f"{rows} records of {expected} lines"
    return found.error


def _json_target(name: str, values: tuple[object, ...], read: Callable[[str], object], share: float) -> Target:
    return Target(name, lambda chance: mutated_json(chance, chance.choice(values)), read, share)


TARGETS: tuple[Target, ...] = (
    Target("declarations", make_sql, read_sql, 0.04, 20.0),
    Target("yaml", make_yaml, read_yaml, 0.05),
    Target("statements", make_statement, read_managing, 0.1),
    Target("settings", make_toml, read_toml, 0.06),
    _json_target("receipts", RECEIPTS, read_receipt, 0.14),
    Target("notes", make_notes, read_notes_of, 0.06),
    _json_target("definitions", (DEFINITION,), read_definition_file, 0.04),
    Target("processes", make_processes, read_processes, 0.05),
    _json_target("states", STATES, read_key_state, 0.08),
    Target("engine", make_request, read_engine_request, 0.07),
    Target("posts", make_post, read_post, 0.02),
    Target("followers", make_follow, read_follow, 0.02),
    Target("guard", make_ui_request, read_ui_request, 0.08),
    Target("answers", make_answer, read_answer, 0.08),
    Target("references", make_reference, read_reference, 0.04),
    Target("urls", make_url, read_url, 0.05),
    Target("lines", make_lines, read_lines, 0.02),
)

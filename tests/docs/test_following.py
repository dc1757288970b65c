"""The page "Following a table": its settings are read, its clients follow, and what it says of events is so."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine import changes, follow_request
from freshline.engine.changes import FollowLimits
from freshline.engine.connections import SEND_SECONDS
from freshline.reads import parts
from freshline.values.settings import Settings
from tests.docs.test_docs import DOCS, examples, section, text_of
from tests.engine.following import TOKEN, Tables, open_tables

# A server is started.
pytestmark = pytest.mark.seconds

PAGE = DOCS / "following.md"
TABLE = "clicks_of_page"
DECLARED = {
    "click.sql": "CREATE SOURCE click (page STRING) WITH ('connector' = 'delta', 'path' = 'elsewhere')",
    f"{TABLE}.sql": f"CREATE MATERIALIZED TABLE {TABLE} (PRIMARY KEY (page)) AS "
    "SELECT page, count(*) AS clicks FROM click GROUP BY page",
}
CLICKS = pa.schema([("page", pa.string()), ("clicks", pa.int64())])


@pytest.fixture
def tables(settings: Settings) -> Iterator[Tables]:
    limits = FollowLimits(poll=0.02)
    with open_tables(replace(settings, changes_token="${env:FOLLOW}"), limits=limits, declared=DECLARED) as opened:
        opened.create(TABLE, CLICKS)
        opened.add({"page": "/hats", "clicks": 1}, table=TABLE)
        yield opened


def click(tables: Tables) -> None:
    tables.update("page = '/hats'", table=TABLE, clicks="clicks + 1")


def test_the_settings_of_the_page_are_read_and_its_token_is_one(tmp_path: Path):
    (shown,) = examples(PAGE, "toml")
    (tmp_path / "pyproject.toml").write_text(shown, encoding="utf-8")
    settings = read_settings(tmp_path, {})

    assert (settings.engine_port, settings.changes_token) == (8700, "${file:secrets/follow}")


def test_the_request_of_the_page_is_answered_with_the_events_that_it_shows(tables: Tables):
    command = next(code for code in examples(PAGE, "bash") if code.startswith("curl"))
    words = shlex.split(command.replace("$(cat secrets/follow)", TOKEN))
    address = next(word for word in words if word.startswith("http"))
    name, value = words[words.index("-H") + 1].split(": ")
    path = address.removeprefix("http://127.0.0.1:8700")
    connection = http.client.HTTPConnection("127.0.0.1", tables.port, timeout=20)
    connection.request("GET", path, headers={name: value})
    answer = connection.getresponse()
    click(tables)
    lines = [answer.readline().decode().rstrip("\n") for _ in range(13)]
    connection.close()

    shown = next(code for code in re.findall(r"```\n(retry.*?)```", text_of(PAGE), re.DOTALL)).rstrip("\n").split("\n")
    assert [plain(line) for line in lines[: len(shown)]] == [plain(line) for line in shown]


def plain(line: str) -> str:
    """A line without the numbers of versions and the marks of positions."""
    return re.sub(r'"version":\d+', '"version":n', re.sub(r"^id: \d+-[0-9a-f]{8}-[0-9a-f]{16}$", "id: n", line))


def test_the_client_in_python_goes_on_where_it_was(tables: Tables, tmp_path: Path):
    (code,) = examples(PAGE, "python")
    assert "http://127.0.0.1:8700/" in code
    program = tmp_path / "client.py"
    program.write_text(code.replace("127.0.0.1:8700", f"127.0.0.1:{tables.port}"), encoding="utf-8")

    def started() -> subprocess.Popen[str]:
        environment = {**os.environ, "FOLLOW": TOKEN}
        return subprocess.Popen(
            [sys.executable, str(program)], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        )

    def shows(client: subprocess.Popen[str], rows: dict[str, int]) -> None:
        assert client.stdout is not None
        while client.stdout.readline() != f"{rows}\n":
            assert client.poll() is None

    for first, then in ((1, 2), (3, 4)):
        client = started()
        try:
            shows(client, {"/hats": first})
            click(tables)
            shows(client, {"/hats": then})
        finally:
            client.kill()
            client.wait()
            assert client.stdout is not None
            client.stdout.close()
        # While it is away.
        click(tables)
    assert json.loads((tmp_path / "clicks.json").read_text())["rows"] == {"/hats": 4}


class Proxy(BaseHTTPRequestHandler):
    """The page, and the changes with the token, as the proxy of the page of the documentation has them."""

    page: bytes
    port: int

    def do_GET(self) -> None:
        if not self.path.startswith(f"/changes/{TABLE}"):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(self.page)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        last = self.headers.get("Last-Event-ID")
        given = {"Authorization": f"Bearer {TOKEN}"} | ({} if last is None else {"Last-Event-ID": last})
        connection.request("GET", self.path, headers=given)
        answer = connection.getresponse()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers["Content-Type"])
        self.end_headers()
        try:
            while line := answer.readline():
                self.wfile.write(line)
        except OSError:
            return  # the browser left the page
        finally:
            connection.close()

    def log_message(self, *arguments: object) -> None:
        """Nothing is to be read in the output of the tests."""


@pytest.mark.slow
def test_the_web_page_shows_the_table_as_it_is_and_comes_back_by_itself(settings: Settings, chromium: Any):
    (page,) = examples(PAGE, "html")
    # So short that it comes back several times.
    limits = FollowLimits(poll=0.02, connection=0.5)
    with open_tables(replace(settings, changes_token="${env:FOLLOW}"), limits=limits, declared=DECLARED) as tables:
        tables.create(TABLE, CLICKS)
        tables.add({"page": "/hats", "clicks": 41}, table=TABLE)
        handler = type("Handler", (Proxy,), {"page": page.encode(), "port": tables.port})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            chromium.open(f"http://127.0.0.1:{server.server_port}/", 400)
            chromium.wait_for(("/hats\t41",))
            click(tables)
            chromium.wait_for(("/hats\t42",))
            tables.add({"page": "/shoes", "clicks": 7}, table=TABLE)
            tables.delete("page = '/hats'", table=TABLE)
            chromium.wait_for(("/shoes\t7",))
            assert "/hats" not in chromium.run("return document.body.textContent")
        finally:
            chromium.open("about:blank", 100)
            server.shutdown()
            thread.join()
            server.server_close()


def test_each_status_and_each_size_is_on_the_page():
    source = "".join(Path(str(each.__file__)).read_text(encoding="utf-8") for each in (changes, follow_request))
    used = {getattr(HTTPStatus, name).value for name in re.findall(r"HTTPStatus\.([A-Z_]+)", source)}
    first_cells = re.findall(r"^\| (\d+) \|", section(PAGE, "Answers"), re.MULTILINE)
    assert {int(cell) for cell in first_cells} == used | {200, 403}

    limits, text = FollowLimits(), text_of(PAGE)
    assert f"At most {limits.followers} clients" in text
    assert f"after {limits.heartbeat:.0f} seconds without" in text
    assert f"answer after {limits.connection / 60:.0f} minutes" in text
    assert f"takes nothing for {SEND_SECONDS:.0f} seconds" in text
    assert f"up to {parts.ROWS_OF_PART:,} changes" in text
    assert f"more than {parts.ROWS_IN_MEMORY:,} rows" in text

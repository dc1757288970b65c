"""A real project with a canary in each secret: where its secrets are, who may read its files, and where it listens."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import psutil
import pytest

from freshline.engine.lock import HOLDER
from tests.security.living import VARIABLES, Living, ask, living_project

pytestmark = [pytest.mark.security, pytest.mark.slow, pytest.mark.spark]

ASSETS = """{ assetsOrError { ... on AssetConnection { nodes { key { path } assetMaterializations(limit: 5) {
  metadataEntries { label description ... on TextMetadataEntry { text } ... on JsonMetadataEntry { jsonString } } }
  definition { description metadataEntries { label description } } } } } }"""
LOCATIONS = """{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus displayMetadata { key value }
  locationOrLoadError { ... on PythonError { message stack } } } } } }"""
SENSORS = """{ sensorsOrError(repositorySelector: {repositoryName: "__repository__",
  repositoryLocationName: "assets.definitions"}) { ... on Sensors { results { name sensorState { ticks(limit: 5) {
  error { message stack } skipReason cursor } } } } } }"""
QUERIES = ("{ version }", ASSETS, LOCATIONS, SENSORS)
COMMANDS = (
    ("status", "--json"),
    ("status",),
    ("plan", "--json"),
    ("refreshes", "--json"),
    ("alerts", "--json"),
    ("doctor", "--json"),
    ("explain", "of_topic"),
    ("describe", "topic"),
    ("logs",),
    ("engine", "status", "--json"),
    ("sql", "SET"),
    ("sql", "SET spark.hadoop.fs.s3a.secret.key"),
    ("sql", "SELECT * FROM spend", "--json"),
    ("sql", "DESCRIBE topic"),
    ("sql", "SHOW CREATE MATERIALIZED TABLE of_topic"),
    ("sql", "SELECT * FROM freshline_refreshes", "--json"),
)


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    with living_project(tmp_path_factory.mktemp("living")) as found:
        yield found


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, f"{what} did not come about"
        time.sleep(0.2)


def status_of(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def posted(living: Living, token: str) -> int:
    """The status of a post of one event."""
    with closing(http.client.HTTPConnection("127.0.0.1", living.engine.http_port, timeout=30)) as connection:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/ingest/posted", b'{"id": "1"}', headers)
        return connection.getresponse().status


def followed(living: Living, token: str) -> tuple[int, str]:
    """The status of a request for the changes of a table, and the first events or the reason why there are none."""
    with closing(http.client.HTTPConnection("127.0.0.1", living.engine.http_port, timeout=30)) as connection:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("GET", "/changes/spend?from=beginning&consumer=lane", headers=headers)
        answer = connection.getresponse()
        lines = iter(answer.readline, b"") if answer.status == 200 else iter([answer.read()])
        text = ""
        for line in lines:
            text += line.decode()
            if '"last":true' in text:
                break
        return answer.status, text


def statuses(living: Living) -> dict[str, dict[str, object]]:
    found = json.loads(living.run("status", "--json"))
    return {row["table"]: row for row in (found if isinstance(found, list) else found["tables"])}


def test_no_secret_is_anywhere_that_it_need_not_be(living: Living) -> None:
    words, canaries = living.canaries.words, living.canaries
    for table in ("spend", "by_hand"):
        living.run("refresh", table, "--json", ok=True)
    # Each of these has another secret that is wrong in another way.
    for table in ("topic", "bare", "endless", "flagless"):
        living.run("refresh", f"of_{table}", "--json", ok=False)
        living.run("refresh", table, ok=False)
    # A login by the address, by a header, and by one that is nearly right.
    assert status_of(f"{living.url}/?token={words['ui']}") in (200, 401)
    assert status_of(f"{living.url}/?token={words['ui']}x") == 401
    assert status_of(f"{living.url}/server_info", Authorization=f"Bearer {words['ui']}") == 200
    assert status_of(f"{living.url}/server_info") == 401
    # A post with its token, and one with a token that is nearly right.
    assert (posted(living, words["posts"]), posted(living, f"{words['posts']}x")) == (202, 401)
    living.run("refresh", "posted", "--json", ok=True)
    # The changes of a table likewise, from the running engine.
    (status, events), (refused, reason) = (followed(living, words["follow"] + end) for end in ("", "x"))
    assert (status, refused) == (200, 401)
    assert '"inserts":[{"customer":"c' in events
    canaries.search_text(events + reason, "the changes of a table")
    pages = [json.dumps(ask(living.url, query, words["ui"])) for query in QUERIES]
    for number, page in enumerate(pages):
        canaries.search_text(page, f"the answer of the UI to query {number}")
    for route in ("/health", "/status", "/metrics"):
        canaries.search_text(asked_of_engine(living, route), f"the answer of the engine to {route}")
    # Alerts: all channels were tried, and none succeeded.
    wait_for(lambda: bool(living.web.received and living.mail.logins), "an alert by webhook and mail")
    for received in living.web.received:
        assert words["hook"] in received.path, "the webhook was not called with its secret"
        canaries.search(received.body, "the body of a webhook")
        canaries.search(str(received.headers).encode(), "the headers of a webhook")
    # A control store that refuses the password.
    for command in ("status", "doctor", "refreshes"):
        living.run(command, "--json", environment="away")
    living.run("engine", "start", "--json", environment="away", ok=False)
    assert words["control store"] in living.postgres.passwords, "the control store was not asked for with its secret"
    for arguments in COMMANDS:
        living.run(*arguments)

    for asked, text in living.texts.items():
        canaries.search_text(text, f"what `freshline {asked}` shows")
    canaries.search_processes(living.processes(), ALLOWED_VARIABLES)
    state = living.settings.state
    allowed: dict[Path, tuple[str, ...]] = {
        living.root / "pyproject.toml": ("control store",),
        state / "engine.json": ("engine",),
    }
    allowed |= {path: tuple(words) for path in (living.root / "secrets").iterdir()}
    for folder in living.folders():
        canaries.search_files(folder, allowed)

    assert canaries.found == []
    assert canaries.searched["processes"] >= 6
    assert canaries.searched["files"] >= 100
    assert canaries.searched["unpacked"] >= 2
    print(f"searched for {len(words)} secrets in {canaries.searched}")


# The user's own variables are handed on, and the token of the engine to its JVM and to the worker of Python tables.
ALLOWED_VARIABLES = {
    **{variable: (name,) for variable, name in VARIABLES.items()},
    "SPARK_CONNECT_AUTHENTICATE_TOKEN": ("engine",),
}


def asked_of_engine(living: Living, route: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", living.engine.http_port, timeout=30)
    connection.request("GET", route, headers={"Authorization": f"Bearer {living.engine.token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    text = answer.read().decode()
    connection.close()
    return text


def test_all_processes_listen_on_loopback_only(living: Living) -> None:
    listening: dict[tuple[str, int], str] = {}
    for process in living.processes():
        try:
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN or (
                    connection.type.name == "SOCK_DGRAM" and connection.laddr
                ):
                    listening[connection.laddr.ip, connection.laddr.port] = " ".join(process.cmdline())[:80]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue

    assert {ip for ip, _ in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, listening
    ports = {port for _, port in listening}
    assert {living.engine.http_port, living.engine.connect_port} <= ports
    assert len(ports) >= 4


def test_only_their_owner_may_read_the_files_of_a_project(living: Living) -> None:
    state = living.settings.state
    # Spark lets everybody run the files that it hands to its executors, in a folder that only their owner may enter.
    scratch = state / "spark" / "scratch"
    paths = [state, *state.rglob("*"), *living.temporary.rglob("*")]
    paths = [path for path in paths if scratch not in path.parent.parents]
    open_to_others = [
        f"{stat.filemode(mode)} {path}"
        for path in paths
        if not path.is_symlink() and path.exists() and (mode := path.stat().st_mode) & 0o077
    ]

    assert not open_to_others, "\n".join(open_to_others)
    assert len(paths) > 50
    assert (living.settings.warehouse / HOLDER).exists()


def test_only_those_who_know_a_token_reach_the_ports_of_the_engine(living: Living) -> None:
    for host, token, expected in (
        (f"127.0.0.1:{living.engine.http_port}", "", 401),
        (f"127.0.0.1:{living.engine.http_port}", "Bearer wrong", 401),
        ("evil.example", f"Bearer {living.engine.token}", 403),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", living.engine.http_port, timeout=30)
        connection.request("GET", "/status", headers={"Host": host, "Authorization": token})
        assert connection.getresponse().status == expected
        connection.close()


# -- Spark's own ports, of which each has its own protocol and its own way to refuse a stranger


# A request in the protocol between Spark's processes: length, type 3, number 7, and a body of its own length.
FRAME_OF_SPARK = struct.pack(">qbqi", 29, 3, 7, 8) + b"stranger"


def answer_of(port: int, asked: bytes) -> bytes:
    """The first answer of a port; empty where it is silent, or hangs up, or has closed meanwhile."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(asked)
            return connection.recv(4096)
    except (TimeoutError, ConnectionError):
        return b""


def ports_of_jvm(living: Living) -> set[int]:
    return {
        connection.laddr.port
        for process in living.processes()
        if process.name() == "java"
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def status_of_connect(port: int, token: str | None) -> grpc.StatusCode:
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/spark.connect.SparkConnectService/Config")
        try:
            call(b"", timeout=30, metadata=metadata)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


def test_spark_connect_serves_those_only_who_know_the_token(living: Living) -> None:
    port = living.engine.connect_port

    assert status_of_connect(port, None) is grpc.StatusCode.UNAUTHENTICATED
    assert status_of_connect(port, "wrong") is grpc.StatusCode.UNAUTHENTICATED
    # Whoever knows it gets the next error: an empty request names no session.
    assert status_of_connect(port, living.engine.token) is not grpc.StatusCode.UNAUTHENTICATED


def test_no_port_of_the_jvm_takes_objects_or_calls_from_strangers(living: Living) -> None:
    refused: dict[str, list[int]] = {"spark": [], "py4j": [], "connect": [living.engine.connect_port]}
    ports = ports_of_jvm(living)
    for port in ports - {living.engine.connect_port}:
        called, sent = answer_of(port, b"c\nt\ngetClass\ne\n"), answer_of(port, FRAME_OF_SPARK)
        assert not called.startswith(b"!y"), (port, called)
        if called.startswith(b"!x"):
            assert b"Authentication" in called
            refused["py4j"].append(port)
        if sent:
            # Without authentication it has tried to read the body as one of its messages.
            assert b"Sasl" in sent, (port, sent)
            refused["spark"].append(port)

    # A port that hands over the rows of a single job is gone by now.
    assert set().union(*map(set, refused.values())) >= ports & ports_of_jvm(living), (refused, ports)
    assert all(refused.values())

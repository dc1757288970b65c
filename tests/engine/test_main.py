"""The engine as a process: started on demand, asked, killed, taken over, drained.

Everything here runs the real thing: `python -m freshline.engine.main` with its JVM, asked through the client.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import psutil
import pytest

from freshline.declare.project import read_settings
from freshline.engine.client import EngineClient
from freshline.engine.lock import HOLDER, read_holder
from freshline.engine.scrape_files import targets_file, token_file
from freshline.engine.server import bind
from freshline.engine.state_file import read_state, state_file
from freshline.errors import EngineError, RequestError, StorageError
from freshline.values.settings import Settings
from tests.engine.posting import CLICK_TOKEN, Door, declared
from tests.report.metrics.promtool import check_metrics
from tests.report.metrics.test_files import RECORDED, metrics_in, queries, rules

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS = """
CREATE SOURCE events (id BIGINT, kind STRING, amount INT, PRIMARY KEY (id))
FRESHNESS = INTERVAL '4' SECOND
WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing', 'settle' = '0 seconds')
"""
BIG = """
CREATE MATERIALIZED TABLE big FRESHNESS = INTERVAL '8' SECOND
AS SELECT id, kind, amount FROM events WHERE amount > 1
"""
SHOUTED = """
import freshline
from pyspark.sql import functions as F

from lib.words import shout


@freshline.table(freshness="10 minutes")
def shouted(big):
    print("printed by the user's code")
    return big.select("id", F.udf(shout, "string")("kind").alias("kind"))
"""
# Seconds of work for each of many tasks, and a place to be interrupted after every row that comes in.
LONG = "SELECT count(*) AS n FROM range(0, 1000000000000, 1, 64) WHERE sha2(CAST(id AS STRING), 512) LIKE 'zzz%'"


class Project:
    """A project in a folder, and the engine that commands in it would find."""

    def __init__(self, root: Path, *, is_new: bool = True) -> None:
        self.root = root
        self.variables: dict[str, str] = {}
        if is_new:
            self._make(root)

    @staticmethod
    def _make(root: Path) -> None:
        (root / "assets").mkdir(parents=True)
        (root / "landing").mkdir()
        (root / "lib").mkdir()
        (root / "pyproject.toml").write_text('[tool.freshline]\ndriver-memory = "1g"\nspark-master = "local[2]"\n')
        (root / "assets" / "events.sql").write_text(EVENTS)
        (root / "assets" / "big.sql").write_text(BIG)

    @property
    def settings(self) -> Settings:
        return read_settings(self.root, {})

    def land(self, name: str, *ids: int) -> None:
        lines = "".join(json.dumps({"id": n, "kind": f"k{n % 2}", "amount": n}) + "\n" for n in ids)
        part = self.root / "landing" / f"_{name}"
        part.write_text(lines)
        part.rename(self.root / "landing" / f"{name}.json")

    def connect(self, **arguments: Any) -> EngineClient:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            return EngineClient.connect(self.settings, **arguments)

    def ids(self, table: str) -> list[int]:
        rows = deltalake.DeltaTable(str(self.settings.warehouse / table)).to_pyarrow_table(columns=["id"])
        return sorted(rows["id"].to_pylist())

    def end(self) -> None:
        """Leave no process behind, whatever a test came to."""
        state = read_state(self.settings.state)
        holder = read_holder(self.settings.warehouse)
        for found in (state, holder):
            for process in (found.process, found.jvm) if found is not None else ():
                if process is not None:
                    process.end(grace_seconds=20.0)


def refresh(client: EngineClient, *tables: str, **arguments: Any) -> dict[str, dict[str, Any]]:
    """Ask for a refresh; the outcomes by table."""
    events = list(client.run("refresh", tables=list(tables), **arguments))
    assert events[-1]["type"] == "done"
    return {event["outcome"]["table"]: event["outcome"] for event in events if event["type"] == "outcome"}


def rows(client: EngineClient, statement: str) -> list[Any]:
    events = list(client.run("sql", statement=statement))
    assert events[-1]["state"] == "SUCCEEDED", events
    return [json.loads(row) for event in events if event["type"] == "rows" for row in event["rows"]]


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        tick.wait(0.1)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("shop"))
    yield project
    project.end()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Project]:
    """A project of one test, whose engines end with it."""
    shop = Project(tmp_path / "shop")
    yield shop
    shop.end()


@pytest.fixture(scope="module")
def engine(project: Project) -> EngineClient:
    """One engine for the tests that leave it as it is, started by two commands at the same moment."""
    project.land("one", 1, 2, 3)
    found: list[EngineClient] = []
    threads = [threading.Thread(target=lambda: found.append(project.connect())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0].state == found[1].state
    return found[0]


@pytest.mark.long
def test_two_commands_that_start_an_engine_at_once_use_the_same_one(engine, project):
    health = engine.health()

    assert health["warehouse"] == str(project.settings.warehouse)
    assert not health["loops"]
    assert len(psutil.Process(health["pid"]).children()) == 1  # one JVM; no worker before a table needs it


@pytest.mark.long
def test_a_running_engine_is_found_at_once(engine, project):
    began = time.monotonic()

    assert project.connect().state == engine.state
    assert time.monotonic() - began < 2


def test_everything_is_brought_up_to_date_and_the_second_time_nothing_is_done(engine, project):
    first = refresh(engine)
    assert {name: (each["state"], each["rows_out"]) for name, each in first.items()} == {
        "events": ("SUCCEEDED", 3),
        "big": ("SUCCEEDED", 2),
    }
    versions = {name: each["version"] for name, each in first.items()}

    second = refresh(engine)

    assert {name: each["strategy"] for name, each in second.items()} == {"events": "noop", "big": "noop"}
    assert {name: each["version"] for name, each in second.items()} == versions


def test_files_that_the_engine_makes_are_its_owners_alone(engine, project):
    refresh(engine)
    warehouse = project.settings.warehouse
    seen = [warehouse, *warehouse.rglob("*")]

    readable = [path for path in seen if path.stat().st_mode & 0o077]

    assert project.settings.state.stat().st_mode & 0o777 == 0o700
    assert {path.suffix for path in seen} >= {".parquet", ".json"}
    # The record of the engine has the permissions of the setting too: whoever may see the warehouse may read it.
    assert readable == []
    assert (warehouse / HOLDER).stat().st_mode & 0o600 == 0o600


def test_a_query_sees_the_newest_versions(engine):
    assert rows(engine, "SELECT id, amount FROM big ORDER BY id") == [{"id": 2, "amount": 2}, {"id": 3, "amount": 3}]


def test_tables_are_verified(engine):
    events = list(engine.run("verify", tables=["big"]))

    assert [event["verification"]["equal"] for event in events if event["type"] == "verification"] == [True]


def test_a_mistake_in_a_statement_is_reported(engine):
    events = list(engine.run("sql", statement="SELECT nothing FROM big"))

    assert events[-1]["state"] == "FAILED"
    assert "nothing" in events[-1]["error"]["message"]


def test_a_second_engine_is_refused_and_learns_who_holds_the_warehouse(engine, project, tmp_path):
    other = Project(tmp_path / "other")
    text = (other.root / "pyproject.toml").read_text()
    (other.root / "pyproject.toml").write_text(f'{text}warehouse = "{project.settings.warehouse}"\n')

    with pytest.raises(EngineError, match=f"process {engine.state.process.pid} on .* project {project.root}") as raised:
        other.connect()

    assert raised.value.code == "ENGINE_HELD"
    assert engine.health()["pid"] == engine.state.process.pid


def test_everything_listens_on_loopback_only(engine):
    processes = [psutil.Process(engine.state.process.pid), psutil.Process(engine.state.jvm.pid)]
    addresses = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }

    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_cancelling_interrupts_what_spark_does(engine):
    request_id = engine.submit("sql", statement=LONG)
    spark = psutil.Process(engine.state.jvm.pid)
    before = spark.cpu_times().user
    wait_until(lambda: spark.cpu_times().user > before + 3.0)
    began = time.monotonic()

    engine.cancel(request_id)
    events = list(engine.events(request_id))

    assert events[-1] == {"type": "done", "state": "CANCELLED", "error": None}
    assert time.monotonic() - began < 10
    # The tasks are gone too: the next statement has the processors.
    assert rows(engine, "SELECT count(*) AS n FROM big") == [{"n": 2}]
    assert time.monotonic() - began < 30


def test_ctrl_c_of_a_command_cancels_its_request(engine, project):
    code = (
        "import sys; from pathlib import Path; from freshline.declare.project import read_settings; "
        "from freshline.engine.client import EngineClient; "
        "client = EngineClient.connect(read_settings(Path(sys.argv[1]), {})); print('ready', flush=True); "
        "list(client.run('sql', statement=sys.argv[2]))"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", code, str(project.root), LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert command.stdout is not None
    command.stdout.readline()
    spark = psutil.Process(engine.state.jvm.pid)
    before = spark.cpu_times().user
    wait_until(lambda: spark.cpu_times().user > before + 3.0)
    began = time.monotonic()

    command.send_signal(signal.SIGINT)
    command.communicate(timeout=15)

    assert rows(engine, "SELECT 1 AS one") == [{"one": 1}]
    assert time.monotonic() - began < 20


def test_a_table_in_python_runs_in_a_worker_and_follows_its_code(engine, project):
    words = project.root / "lib" / "words.py"
    words.write_text("def shout(text):\n    return text.upper() + '!'\n")
    (project.root / "assets" / "shouted.py").write_text(SHOUTED)
    assert refresh(engine, "shouted")["shouted"]["error"] is None
    statement = "SELECT kind FROM shouted ORDER BY id"
    assert rows(engine, statement) == [{"kind": "K0!"}, {"kind": "K1!"}]
    assert "printed by the user's code" in (project.settings.state / "logs" / "worker.log").read_text()

    words.write_text("def shout(text):\n    return text.upper() + '!!'\n")

    assert refresh(engine, "shouted")["shouted"]["strategy"] == "full"
    assert rows(engine, statement) == [{"kind": "K0!!"}, {"kind": "K1!!"}]


@pytest.mark.long
def test_functions_that_hang_stop_no_other_table_and_are_cancelled_or_ended(engine, project):
    for name, limit in (("endless", "6 seconds"), ("patient", "1 hour")):
        (project.root / "assets" / f"{name}.py").write_text(
            "import freshline\n\n\n"
            f"@freshline.table(freshness='10 minutes', options={{'python.time-limit': '{limit}'}})\n"
            f"def {name}(big):\n    while True:\n        pass\n"
        )
    assert refresh(engine, "big")["big"]["state"] == "SUCCEEDED"
    asked = {name: engine.submit("refresh", tables=[name], upstreams=False) for name in ("patient", "endless")}

    # Both places of the engine would be taken.
    assert refresh(engine, "big", upstreams=False)["big"]["state"] == "SUCCEEDED"

    (ended,) = [event["outcome"] for event in engine.events(asked["endless"]) if event["type"] == "outcome"]
    assert (ended["error"]["code"], ended["error"]["retry_helps"]) == ("PYTHON_LIMIT", False)
    assert "the function endless of endless took longer than 6 seconds" in ended["error"]["message"]
    began = time.monotonic()
    engine.cancel(asked["patient"])
    assert list(engine.events(asked["patient"]))[-1]["state"] == "CANCELLED"
    assert time.monotonic() - began < 10
    for name in ("endless", "patient"):
        (project.root / "assets" / f"{name}.py").unlink()


@pytest.mark.parametrize(
    ("body", "sentence", "line"),
    [
        ("return 7", "returned int, not a DataFrame", 8),
        ("raise ValueError('no such thing')", "ValueError: no such thing", 10),
        ("import os; os._exit(3)", "ended (code 3)", None),
    ],
)
def test_a_mistake_of_a_python_table_is_reported_with_its_line(engine, project, body, sentence, line):
    file = project.root / "assets" / "shouted.py"
    (project.root / "lib" / "words.py").write_text("def shout(text):\n    return text\n")
    file.write_text(SHOUTED.replace("print(", f"{body}\n    print(", 1))

    error = refresh(engine, "shouted", upstreams=False)["shouted"]["error"]

    assert sentence in error["message"]
    assert error["where"] == ("assets/shouted.py" if line is None else f"assets/shouted.py:{line}")
    file.unlink()
    # And the next one gets a sound worker.
    assert refresh(engine, "big")["big"]["state"] == "SUCCEEDED"


def test_declarations_with_errors_are_reported_and_the_next_request_sees_the_repair(engine, project):
    file = project.root / "assets" / "wrong.sql"
    file.write_text("CREATE MATERIALIZED TABLE wrong AS SELECT id FROM nowhere")
    events = list(engine.run("refresh", tables=[]))
    assert events[-1]["state"] == "FAILED"
    assert "nowhere" in json.dumps(events[-1]["error"])

    file.unlink()
    assert refresh(engine, "big")["big"]["state"] == "SUCCEEDED"


def test_loops_bring_in_what_lands_by_themselves(engine, project):
    refresh(engine)
    engine.set_loops(True)
    state = read_state(project.settings.state)
    assert state is not None
    assert state.loops
    project.land("two", 10, 11)

    wait_until(lambda: {10, 11} <= set(project.ids("big")))
    engine.set_loops(False)
    assert not engine.health()["loops"]


def scraped(project: Project) -> str:
    """The metrics as Prometheus gets them: with what is in the files of the state."""
    (target,) = json.loads(targets_file(project.settings).read_text())
    token = token_file(project.settings).read_text()
    with closing(http.client.HTTPConnection(target["targets"][0], timeout=10)) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()


def sample(text: str, name: str) -> float:
    (line,) = [line for line in text.split("\n") if line.startswith(f"{name} ")]
    return float(line.removeprefix(name))


# These are there where somebody asked for an alert, and a database or broker keeps something for a source.
SELDOM = {"freshline_alerts_open", "freshline_source_retained_bytes"}


def test_prometheus_finds_an_engine_and_what_rules_and_dashboard_ask_for(engine, project):
    failing = project.root / "assets" / "failing.sql"
    failing.write_text("CREATE MATERIALIZED TABLE failing AS SELECT id, assert_true(id < 0) AS n FROM events")
    refresh(engine)
    first = scraped(project)
    wait_until(lambda: 'freshline_table_rows{table="big"}' in scraped(project))
    text = scraped(project)
    failing.unlink()
    engine.set_loops(True)
    wait_until(lambda: 'table="failing"' not in scraped(project))
    assert sample(scraped(project), "freshline_loops_running") == 1
    engine.set_loops(False)

    assert sample(first, 'freshline_refresh_rows_written_total{table="big"}') >= 2
    assert sample(text, 'freshline_table_rows{table="big"}') == len(project.ids("big"))
    assert sample(text, 'freshline_table_lag_seconds{table="big"}') < 60
    assert sample(text, 'freshline_table_consecutive_failures{table="failing"}') >= 1
    assert sample(text, 'freshline_table_state{table="failing",state="FAILED"}') == 1
    assert 'freshline_table_lag_seconds{table="failing"}' not in text
    assert 0 < sample(text, "freshline_jvm_heap_used_bytes") < sample(text, "freshline_jvm_heap_max_bytes")
    assert sample(text, "freshline_jvm_resident_memory_bytes") > sample(text, "freshline_jvm_heap_used_bytes")
    assert 0 <= time.time() - sample(text, "freshline_look_timestamp_seconds") < 60
    shown = {line.split("{")[0].split(" ")[0] for line in text.split("\n") if line and not line.startswith("#")}
    asked_for = {name for query in (*queries(), *(rule["expr"] for rule in rules())) for name in metrics_in(query)}
    assert asked_for - RECORDED - SELDOM - {"up"} <= shown
    assert (project.settings.state / "metrics" / "token").stat().st_mode & 0o777 == 0o600


def test_promtool_has_nothing_to_say_about_a_real_scrape(engine, project):
    assert check_metrics(scraped(project)) == ""


def test_events_are_posted_to_an_engine_and_stay_while_declarations_have_errors(engine, project):
    door = posted_to(project, engine.state.http_port)
    # With this request the engine reads the declaration.
    assert refresh(engine, "click")["click"]["state"] == "SUCCEEDED"
    assert door.post(b'{"id": 1}\n{"id": 2}')[:2] == (202, {"bytes": 19, "repeated": False})
    (project.root / "assets" / "broken.sql").write_text("CREATE NOTHING")
    try:
        assert door.post(b'[{"id": 3}]', Content_Type="application/json")[0] == 202
    finally:
        (project.root / "assets" / "broken.sql").unlink()
    # Its token opens nothing else, and the engine's is none for posts.
    assert door.post(b"", "", token=CLICK_TOKEN)[0] == 404
    assert door.post(b"", token=engine.state.token)[0] == 401

    assert refresh(engine, "click")["click"]["state"] == "SUCCEEDED"
    assert project.ids("click") == [1, 2, 3]


@pytest.mark.long
def test_an_engine_takes_posts_before_it_has_spark_and_reads_those_of_a_killed_one(shop):
    with closing(bind(0)) as listener:
        port = listener.getsockname()[1]
    settings = shop.root / "pyproject.toml"
    settings.write_text(f"{settings.read_text()}engine-port = {port}\n")
    door = posted_to(shop, port)
    first = shop.connect()
    assert door.post(b'{"id": 1}', Idempotency_Key="one")[0] == 202
    os.kill(first.state.process.pid, signal.SIGKILL)
    assert first.state.jvm.wait(30), "the JVM outlived its supervisor"
    with pytest.raises(ConnectionRefusedError):
        door.post(b'{"id": 1}', Idempotency_Key="one")

    found: list[EngineClient] = []
    starting = threading.Thread(target=lambda: found.append(shop.connect()))
    starting.start()
    assert post_until_taken(door, b'{"id": 2}') == {"bytes": 9, "repeated": False}
    state = read_state(shop.settings.state)
    assert state is None or state == first.state, "the engine was ready before it took the post"
    assert door.post(b'{"id": 1}', Idempotency_Key="one")[1]["repeated"] is True
    starting.join()
    refresh(found[0], "click")

    assert shop.ids("click") == [1, 2]
    found[0].stop()


def posted_to(project: Project, port: int) -> Door:
    """Declare a source that is posted to at a port."""
    (project.root / "posts").mkdir()
    (project.root / "token").write_text(CLICK_TOKEN)
    (project.root / "assets" / "click.sql").write_text(
        "CREATE SOURCE click (id BIGINT) WITH ('connector' = 'http', 'format' = 'json', 'path' = 'posts', "
        "'token' = '${file:token}')"
    )
    return Door(project.root, declared(project.root), {}, port)


def post_until_taken(door: Door, body: bytes) -> dict[str, Any]:
    """Post again and again, as a client does while an engine is not there."""
    deadline = time.monotonic() + 60
    while True:
        try:
            status, answer, _ = door.post(body)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, "no post is taken"
            threading.Event().wait(0.02)
        else:
            assert status == 202
            return answer


def test_the_environment_of_a_stopped_engine_is_left_as_it_was_found(engine, project):
    """Last with this engine: a refresh that runs when SIGTERM comes is finished, then everything ends."""
    refresh(engine)
    before = project.ids("big")
    project.land("three", 20, 21)
    request_id = engine.submit("refresh", tables=[])
    started = psutil.Process(engine.state.process.pid).children(recursive=True)
    os.kill(engine.state.process.pid, signal.SIGTERM)

    events = list(engine.events(request_id))
    with pytest.raises((EngineError, RequestError)):
        engine.submit("refresh", tables=[])

    assert events[-1]["state"] == "SUCCEEDED"
    assert engine.state.process.wait(60)
    assert psutil.wait_procs(started, timeout=30)[1] == []
    assert project.ids("big") == [*before, 20, 21]
    assert not state_file(project.settings.state).exists()
    assert json.loads(targets_file(project.settings).read_text()) == []
    assert read_holder(project.settings.warehouse) is None


@pytest.mark.long
def test_after_kill_9_the_next_start_takes_over_and_nothing_is_lost_or_repeated(shop):
    shop.land("one", 1, 2, 3)
    first = shop.connect()
    refresh(first)
    epoch = first.health()["epoch"]
    shop.land("two", 4, 5)
    request_id = first.submit("refresh", tables=[])
    os.kill(first.state.process.pid, signal.SIGKILL)

    assert first.state.jvm.wait(30), "the JVM outlived its supervisor"
    with pytest.raises(EngineError, match="try again"):
        list(first.events(request_id))
    assert state_file(shop.settings.state).exists()  # stale
    target, token = (file(shop.settings).read_text() for file in (targets_file, token_file))
    assert str(first.state.http_port) in target

    second = shop.connect()
    refresh(second)

    assert second.state.process != first.state.process
    assert str(second.state.http_port) in targets_file(shop.settings).read_text()
    assert token_file(shop.settings).read_text() != token
    assert second.health()["epoch"] > epoch
    assert shop.ids("events") == [1, 2, 3, 4, 5]
    assert shop.ids("big") == [2, 3, 4, 5]
    second.stop()


@pytest.mark.long
def test_a_copy_of_a_project_whose_engine_runs_has_an_engine_of_its_own(tmp_path):
    project = Project(tmp_path / "shop")
    copy = None
    try:
        project.land("one", 1, 2, 3)
        first = project.connect(loops=True)
        refresh(first)
        subprocess.run(["cp", "-a", str(project.root), str(tmp_path / "copy")], check=True)
        copy = Project(tmp_path / "copy", is_new=False)
        said: list[str] = []

        second = copy.connect(progress=said.append)
        copy.land("two", 4)
        refresh(second)

        assert not [sentence for sentence in said if sentence.startswith("ending process")]
        assert second.state.process != first.state.process
        assert second.health()["warehouse"] == str(copy.settings.warehouse)
        assert copy.ids("big") == [2, 3, 4]
        down = [sys.executable, "-m", "freshline.cli.main", "down", "--project", str(copy.root)]
        subprocess.run(down, check=True)
        assert not second.state.jvm.alive
        assert first.state.jvm.alive
        assert first.health()["loops"]
        project.land("three", 5)
        refresh(first)
        assert project.ids("big") == [2, 3, 5]
        first.stop()
    finally:
        project.end()
        if copy is not None:
            copy.end()


@pytest.mark.long
def test_an_engine_whose_project_was_moved_writes_nothing_at_the_old_place_and_ends(tmp_path):
    project, moved = Project(tmp_path / "shop"), Project(tmp_path / "moved", is_new=False)
    project.land("1", 1, 2, 3)
    client = project.connect()
    try:
        refresh(client)
        project.root.rename(moved.root)
        with pytest.raises(StorageError, match="not at its path any more"):
            client.submit("refresh", tables=[])

        assert client.state.process.wait(60.0)
        assert list(tmp_path.glob("shop/**/_delta_log")) == []
        assert list(tmp_path.glob("shop/**/metrics")) == []
        moved.land("2", 4)
        refresh(moved.connect())
        assert moved.ids("events") == [1, 2, 3, 4]
        assert moved.ids("big") == [2, 3, 4]
    finally:
        client.state.process.end(grace_seconds=20.0)
        moved.end()


@pytest.mark.long
def test_a_jvm_that_outlives_its_supervisor_is_ended_by_the_next_start(tmp_path):
    project = Project(tmp_path / "shop")
    try:
        first = project.connect()
        # Stopped, it cannot notice that its supervisor is gone.
        os.kill(first.state.jvm.pid, signal.SIGSTOP)
        os.kill(first.state.process.pid, signal.SIGKILL)
        assert first.state.process.wait(10)
        outlived = first.state.jvm.alive
        assert outlived
        on_outcome: list[str] = []

        second = project.connect(progress=on_outcome.append)

        assert not first.state.jvm.alive
        assert f"ending process {first.state.jvm.pid}, which a killed engine left" in on_outcome
        second.stop()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first.state.jvm.pid, signal.SIGKILL)
        project.end()


@pytest.mark.long
def test_a_failpoint_kills_the_engine_with_its_jvm_and_the_next_refresh_continues(shop):
    shop.variables = {"FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT": "table-before-commit"}
    shop.land("one", 1, 2, 3)
    first = shop.connect()
    with pytest.raises(EngineError, match="try again"):
        refresh(first)
    assert first.state.process.wait(10)
    assert first.state.jvm.wait(10)
    shop.variables = {}

    second = shop.connect()
    refresh(second)

    assert shop.ids("events") == [1, 2, 3]
    assert shop.ids("big") == [2, 3]
    second.stop()


def test_a_reason_that_keeps_an_engine_from_starting_is_one_sentence(tmp_path):
    project = Project(tmp_path / "shop")
    (project.root / "pyproject.toml").write_text('[tool.freshline]\njava-home = "/no/java"\n')
    command = [sys.executable, "-m", "freshline.engine.main", "--project", str(project.root)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 1
    assert "/no/java" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert read_holder(project.settings.warehouse) is None


@pytest.mark.long
def test_an_engine_that_starts_beside_a_mistake_keeps_the_other_tables_and_what_is_stored_stays_readable(shop):
    assets = shop.root / "assets"
    other = EVENTS.replace("SOURCE events", "SOURCE others").replace("'landing'", "'others'")
    (assets / "others.sql").write_text(other)
    (shop.root / "others").mkdir()
    shop.land("one", 1, 2, 3)
    first = shop.connect()
    refresh(first)
    first.stop()
    # As when the package of its connector is uninstalled.
    right = (assets / "events.sql").read_text()
    (assets / "events.sql").write_text(right.replace("'files'", "'spool'"))
    (shop.root / "others" / "one.json").write_text('{"id": 7, "kind": "k", "amount": 7}\n')

    second = shop.connect()
    assert refresh(second, "others")["others"]["state"] == "SUCCEEDED"
    assert rows(second, "SELECT b.id FROM events e JOIN big b ON e.id = b.id JOIN others ON true ORDER BY b.id") == [
        {"id": 2},
        {"id": 3},
    ]
    assert [each["table"] for each in second.status()] == ["others"]
    mistakes, *_, done = list(second.run("tick"))
    assert (mistakes["type"], done["state"]) == ("mistakes", "SUCCEEDED")
    for request, arguments in (("refresh", {"tables": ["big"]}), ("refresh", {}), ("purge", {"table": "events"})):
        events = list(second.run(request, **arguments))
        rules = [each["rule"] for each in events[-1]["error"]["errors"]]
        assert "EXTENSION" in rules, request
    (assets / "events.sql").write_text(right)
    shop.land("two", 4)
    assert refresh(second)["big"]["state"] == "SUCCEEDED"
    assert shop.ids("big") == [2, 3, 4]
    second.stop()

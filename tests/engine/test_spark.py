"""The session: how it is configured, what it listens on, and how it ends."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, ClientServerConnection
from py4j.protocol import MEMORY_COMMAND_NAME, REFLECTION_COMMAND_NAME
from pyarrow import parquet
from pyspark.errors import ArithmeticException
from pyspark.sql import functions

from freshline.engine import spark as module
from freshline.engine.py4j_requests import GATHER_SECONDS, MOST_AT_ONCE, Releases
from freshline.engine.session_folders import SessionFolders
from freshline.engine.spark import (
    CALLS_ARE_TRACED,
    build_session,
    connect_address,
    connect_port,
    jvm_process,
    pools_xml,
    use_pool,
)
from freshline.engine.spark_confs import properties, resolve_confs, session_confs
from freshline.errors import EngineError, JavaError, SettingsError, StorageError


def confs_of(settings, **changes):
    settings = replace(settings, **changes)
    return session_confs(
        settings,
        app_name="test",
        jars=(Path("/a b/x.jar"),),
        connect_port=None,
        folders=SessionFolders(settings.state),
    )


@pytest.mark.security
@pytest.mark.parametrize("master", ["local", "local[1]", "local[*]", "local[2,3]", "local-cluster[1,1,1024]"])
def test_a_local_session_listens_on_loopback_only_and_knows_who_connects(settings, master):
    confs = confs_of(settings, spark_master=master)

    assert confs["spark.driver.bindAddress"] == confs["spark.driver.host"] == "127.0.0.1"
    assert confs["spark.ui.enabled"] == "false"
    # Spark makes no secret of its own for the processes of a cluster.
    assert confs.get("spark.authenticate") == (None if "cluster" in master else "true")


def test_on_a_cluster_the_executors_must_reach_the_driver(settings):
    confs = confs_of(settings, spark_master="spark://master:7077")

    assert "spark.driver.bindAddress" not in confs
    assert "spark.sql.shuffle.partitions" not in confs


def test_a_conf_of_the_settings_wins_and_lists_are_added_to(settings):
    confs = confs_of(
        settings,
        spark_confs={"spark.sql.shuffle.partitions": "64", "spark.jars": "/extra.jar", "spark.sql.extensions": "a.B"},
    )

    assert confs["spark.sql.shuffle.partitions"] == "64"
    assert confs["spark.jars"] == "file:///a%20b/x.jar,/extra.jar"
    assert confs["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,a.B"


def test_plans_are_kept_as_texts_only_for_a_ui_that_is_on(settings):
    assert confs_of(settings)["spark.sql.ui.explainMode"] == "simple"
    assert "spark.sql.ui.explainMode" not in confs_of(settings, spark_confs={"spark.ui.enabled": "true"})


def test_scratch_is_never_at_a_path_that_spark_would_split(tmp_path):
    for state in (tmp_path / "plain", tmp_path / "a, b"):
        folders = SessionFolders(state)
        folders.make()

        assert "," not in str(folders.scratch)
        assert (folders.scratch.parent == folders.scratch_of_all) == ("," not in str(state))
        assert folders.scratch.stat().st_mode & 0o777 == 0o700
        folders.remove_scratch()
        assert not folders.scratch.exists()
        assert list(folders.scratch_of_all.iterdir()) == []


def test_nobody_foresees_the_name_of_a_scratch_folder(tmp_path):
    assert len({SessionFolders(tmp_path).scratch for _ in range(10)}) == 10


def test_files_that_killed_sessions_left_are_removed_and_nothing_else(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    outside = tmp_path / "outside"
    (outside / "mine").mkdir(parents=True)
    of_all = SessionFolders(tmp_path / "state").scratch_of_all
    (of_all / f"{dead.pid}-ab12" / "deep").mkdir(parents=True)
    (of_all / f"{dead.pid}-cd34").symlink_to(outside)
    (of_all / f"{dead.pid}-ab12.conf").write_text("spark.secret=x")
    (of_all / f"{os.getpid()}-ef56").mkdir()
    (of_all / "other").mkdir()

    folders = SessionFolders(tmp_path / "state")
    folders.make()

    assert {left.name for left in of_all.iterdir()} == {f"{os.getpid()}-ef56", "other", folders.scratch.name}
    assert (outside / "mine").is_dir()


def test_a_conf_may_be_a_reference_and_its_secret_is_in_no_message(settings, tmp_path):
    (tmp_path / "key").write_text("from-a-file\n")
    given = {
        "spark.hadoop.fs.s3a.secret.key": "${env:SECRET}",
        "spark.hadoop.fs.s3a.access.key": "${file:key}",
        "spark.other": "${spark.app.name}",
    }
    settings = replace(settings, root=tmp_path, spark_confs=given)

    assert resolve_confs(settings, {"SECRET": "from-env"}) == {
        "spark.hadoop.fs.s3a.secret.key": "from-env",
        "spark.hadoop.fs.s3a.access.key": "from-a-file",
        "spark.other": "${spark.app.name}",
    }
    with pytest.raises(SettingsError, match=r"spark-confs: spark.hadoop.fs.s3a.secret.key: .* variable SECRET"):
        resolve_confs(settings, {})
    for name in ("spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"):
        with pytest.raises(SettingsError, match="stands in a command line"):
            resolve_confs(replace(settings, spark_confs={name: "${env:SECRET}"}), {"SECRET": "from-env"})


def run_code(project: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, in which `settings` are those of a project."""
    begin = (
        "import os, pathlib, sys\n"
        "from freshline.declare.project_settings import read_settings\n"
        "from freshline.engine.spark import build_session, stop_session\n"
        "settings = read_settings(pathlib.Path(sys.argv[1]), os.environ)\n"
    )
    command = [sys.executable, "-c", begin + code, str(project)]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@pytest.mark.security
@pytest.mark.slow
def test_a_secret_that_spark_refuses_is_in_no_message_and_no_log(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.freshline.spark-confs]\n"spark.memory.fraction" = "${env:SECRET}"\n', encoding="utf-8"
    )
    secret = "not-a-number-but-s3cret"
    done = run_code(tmp_path, "build_session(settings, quick_start=True)\n", SECRET=secret)

    assert done.returncode == 1
    assert "Spark did not start" in done.stderr
    assert '"***". Its output is in' in done.stderr
    assert secret not in done.stderr + done.stdout
    texts = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(texts) > 1
    assert not any(secret.encode() in text for text in texts)


def test_no_conf_stands_in_the_command_line_of_the_jvm_or_in_a_file_that_stays(spark):
    command = " ".join(psutil.Process(jvm_process(spark).pid).cmdline())

    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert "timeZone" not in command
    assert "DeltaCatalog" not in command
    assert list(Path(spark.conf.get("spark.local.dir")).parent.glob("*.conf")) == []


def test_a_file_of_confs_is_read_as_it_was_written(spark):
    values = {
        "spark.plain": "x",
        "spark.a b:c=d": " # ! = : \\ \t \n \r \f é \u2028 \U0001f600 \\u0041 ",
        "#spark": "",
        "spark.path": "C:\\new\\table",
    }
    read = spark._jvm.java.util.Properties()

    read.load(spark._jvm.java.io.StringReader(properties(values)))

    assert {name: read.getProperty(name) for name in read.stringPropertyNames()} == values


def test_jars_are_never_resolved_by_spark(settings):
    assert "spark.jars.packages" not in confs_of(settings)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("conf", "variable", "collector"),
    [("-Xss4m", "", "PS Scavenge"), ("-XX:+UseSerialGC", "", "Copy"), ("-Xss4m", "-XX:+UseG1GC", "G1 Old Generation")],
)
def test_the_second_compiler_comes_late_and_a_collector_that_is_chosen_stays(tmp_path, conf, variable, collector):
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.freshline.spark-confs]\n"spark.driver.extraJavaOptions" = "{conf}"\n', encoding="utf-8"
    )
    code = (
        "spark = build_session(settings)\n"
        "management = spark._jvm.java.lang.management.ManagementFactory\n"
        "print([bean.getName() for bean in management.getGarbageCollectorMXBeans()])\n"
        "print(list(management.getRuntimeMXBean().getInputArguments()))\n"
        "stop_session(spark)\n"
    )
    ran = run_code(tmp_path, code, SPARK_SUBMIT_OPTS="", JAVA_TOOL_OPTIONS=variable)

    assert collector in ran.stdout, ran.stderr
    assert "-XX:Tier4InvocationThreshold=100000" in ran.stdout


def test_pools_let_people_and_live_tables_go_first():
    pools = {
        pool.get("name"): int(pool.findtext("weight", "0"))
        for pool in ElementTree.fromstring(pools_xml(module.POOL_WEIGHTS))
    }

    assert pools["live"] > pools["backfill"] > pools["maintenance"] > 0
    assert pools["manual"] > pools["backfill"]


def test_no_java_is_reported_before_anything_is_made(settings, tmp_path):
    with pytest.raises(JavaError):
        build_session(replace(settings, java_home=tmp_path / "nowhere"))
    assert not settings.state.exists()


def test_a_port_in_use_is_reported_with_what_to_do(settings):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]

        with pytest.raises(EngineError, match=f"port {port} .*connect-port"):
            build_session(settings, connect_token="secret", connect_port=port)


def test_a_state_folder_that_cannot_be_written_is_reported(settings):
    settings.root.mkdir(exist_ok=True)
    (settings.root / ".freshline").write_text("a file where a folder should be")

    with pytest.raises(StorageError, match="state folder cannot be written"):
        build_session(settings)


def test_a_second_session_in_one_process_is_refused(spark, settings):
    with pytest.raises(EngineError, match="has a Spark session already"):
        build_session(settings)


def test_the_session_reads_and_writes_delta_and_merges(spark, tmp_path):
    table = f"delta.`{tmp_path / 'numbers'}`"

    spark.sql(f"CREATE TABLE {table} USING delta AS SELECT id, 1 AS n FROM range(3)")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 2 AS id UNION ALL SELECT 3) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = 2 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 1)"
    )

    assert sorted(map(tuple, spark.sql(f"SELECT id, n FROM {table}").collect())) == [(0, 1), (1, 1), (2, 2), (3, 1)]


@pytest.mark.long
def test_times_have_statistics_in_files_and_no_file_has_too_many_rows_to_be_written_again(spark, tmp_path):
    rows = spark.range(0, 1_000_001, 1, 1).selectExpr("timestamp_seconds(id * 60) AS ts")

    rows.write.format("delta").save(str(tmp_path / "times"))

    files = [parquet.ParquetFile(file).metadata for file in (tmp_path / "times").glob("*.parquet")]
    assert sorted(file.num_rows for file in files) == [1, 1_000_000]
    for file in files:
        found = file.row_group(0).column(0)
        assert found.physical_type == "INT64"
        assert found.statistics.has_min_max


def test_no_line_of_freshline_is_searched_and_those_of_clients_are(spark):
    with pytest.raises(ArithmeticException) as raised:
        spark.range(1).select(functions.lit(1) / functions.col("id")).collect()

    assert ".py:" not in str(raised.value)
    assert spark.conf.get(CALLS_ARE_TRACED, "true") == "true"


@pytest.fixture
def asked(spark, monkeypatch) -> list[str]:
    """The commands that the JVM gets."""
    asked: list[str] = []
    send = ClientServerConnection.send_command

    def counted(connection: ClientServerConnection, command: str) -> str:
        asked.append(command)
        answer: str = send(connection, command)
        return answer

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    return asked


def test_names_of_pyspark_are_searched_once(spark, asked):
    functions.coalesce(functions.col("a"), functions.lit(1))
    asked.clear()
    columns = functions.coalesce(functions.col("b"), functions.lit(2), functions.col("c"))

    lookups = [command for command in asked if command.startswith(REFLECTION_COMMAND_NAME)]
    assert asked
    assert lookups == []
    assert spark.range(1).select("id", (functions.col("id") + 1).alias("b")).select(
        functions.when(functions.col("b") > 0, functions.col("id")).otherwise(2)
    ).collect() == [(0,)]
    assert "coalesce" in str(columns)


def test_objects_that_python_let_go_of_leave_the_jvm_without_a_request_for_each(spark, asked):
    jvm = spark._jvm
    # More than go in one message.
    held = [jvm.java.lang.StringBuilder() for _ in range(MOST_AT_ONCE + 200)]
    seen = [jvm.java.lang.ref.WeakReference(each) for each in (held[0], held[-1])]
    # Getting an object would keep it referenced again.
    assert [reference.refersTo(None) for reference in seen] == [False, False]
    del held
    # An object that was an argument is in a circle.
    gc.collect()

    def gone() -> bool:
        jvm.java.lang.System.gc()
        return all(reference.refersTo(None) for reference in seen)

    deadline = time.monotonic() + 30
    while not gone():
        assert time.monotonic() < deadline, "the JVM holds objects that nobody here has"
        time.sleep(GATHER_SECONDS)
    assert [command for command in asked if command.startswith(MEMORY_COMMAND_NAME)] == []


def test_releases_end_with_the_gateway(spark):
    releases = Releases(spark.sparkContext._gateway._gateway_client)
    assert releases.thread.is_alive()

    releases.appendleft(SHUTDOWN_FINALIZER_WORKER)
    releases.thread.join(30)

    assert not releases.thread.is_alive()


def test_a_pool_belongs_to_the_thread_that_chose_it(spark):
    seen = {}

    def choose(pool):
        use_pool(spark, pool)
        seen[pool] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")

    for pool in ("live", "backfill"):
        thread = threading.Thread(target=choose, args=(pool,))
        thread.start()
        thread.join()

    assert seen == {"live": "live", "backfill": "backfill"}
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


def test_every_pool_is_known_to_the_scheduler(spark):
    scheduler = spark.sparkContext._jsc.sc()

    assert all(scheduler.getPoolForName(pool).isDefined() for pool in module.POOL_WEIGHTS)


def test_the_process_of_the_jvm_is_known(spark):
    process = jvm_process(spark)

    assert process.alive
    assert "java" in Path(psutil.Process(process.pid).exe()).name


def test_the_jvm_listens_on_loopback_only(spark):
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(jvm_process(spark).pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


def test_a_client_with_the_token_reads_the_tables_of_the_engine_and_one_without_does_not(spark, tmp_path):
    spark.range(5).write.format("delta").save(str(tmp_path / "shared"))
    client = textwrap.dedent(f"""
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.session import SparkSession

        good = SparkSession.builder.remote("{connect_address(spark)}/;token=token-of-the-tests").create()
        print(good.sql("SELECT count(*) FROM delta.`{tmp_path / "shared"}`").collect()[0][0])
        try:
            SparkSession.builder.remote("{connect_address(spark)}/;token=wrong").create().sql("SELECT 1").collect()
        except Exception as error:
            print("UNAUTHENTICATED" in str(error))
    """)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK")}

    said = subprocess.run(
        [sys.executable, "-c", client], capture_output=True, text=True, timeout=120, check=False, env=environment
    )

    assert said.stdout.split() == ["5", "True"], said.stderr
    assert connect_port(spark) > 0


SHORT_LIFE = """
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, {tests!r})
from conftest import settings_in
from freshline.engine.spark import build_session, jvm_process, stop_session

settings = replace(settings_in(Path({root!r})), **{changes!r})
session = build_session(settings, quick_start=True)
process = jvm_process(session)
print(process.pid, flush=True)
session.range(3).count()
if {leave!r}:
    sys.stdin.readline()
stop_session(session)
print(process.alive, list((settings.state / "spark" / "scratch").iterdir()))
"""


def short_life(root: Path, *, leave: bool = False, **changes: object) -> list[str]:
    code = SHORT_LIFE.format(tests=str(Path(__file__).parents[1]), root=str(root), changes=changes, leave=leave)
    return [sys.executable, "-c", code]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_a_session_is_quiet_and_leaves_no_process_and_no_scratch_even_in_an_odd_folder(tmp_path):
    said = subprocess.run(
        short_life(tmp_path / "a größer folder"), capture_output=True, text=True, timeout=180, check=False
    )

    assert said.stdout.splitlines()[1:] == ["False []"], said.stderr
    assert said.stderr == ""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_the_jvm_ends_when_its_process_is_killed(tmp_path):
    with subprocess.Popen(
        short_life(tmp_path, leave=True), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        jvm = psutil.Process(int(host.stdout.readline()))
        host.kill()

    jvm.wait(60)
    assert not jvm.is_running()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"spark_master": "loco[*]"}, "Spark does not understand spark-master = 'loco[*]'"),
        ({"driver_memory": "2x"}, "driver-memory"),
        ({"driver_memory": "900000g"}, "Lower the setting driver-memory"),
    ],
)
def test_a_start_that_fails_is_one_sentence_and_leaves_no_process(tmp_path, changes, says):
    said = subprocess.run(short_life(tmp_path, **changes), capture_output=True, text=True, timeout=180, check=False)

    last = said.stderr.splitlines()[-1]
    assert last.startswith("freshline.errors.EngineError: Spark ")
    assert says in last
    assert not [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(process.info["cmdline"] or [])
    ]

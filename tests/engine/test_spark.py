"""The session: how it is configured, what it listens on, and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from freshline.engine import spark as module
from freshline.engine.spark import (
    build_session,
    connect_address,
    connect_port,
    jvm_process,
    pools_xml,
    session_confs,
    use_pool,
)
from freshline.errors import EngineError, JavaError, StorageError


def confs_of(settings, **changes):
    return session_confs(replace(settings, **changes), app_name="test", jars=(Path("/a b/x.jar"),), connect_port=None)


def test_a_local_session_listens_on_loopback_only(settings):
    confs = confs_of(settings)

    assert confs["spark.driver.bindAddress"] == confs["spark.driver.host"] == "127.0.0.1"
    assert confs["spark.ui.enabled"] == "false"


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


def test_scratch_is_never_at_a_path_that_spark_would_split(settings, tmp_path):
    assert confs_of(settings)["spark.local.dir"].startswith(str(settings.state))
    assert "," not in confs_of(settings, state=tmp_path / "a, b")["spark.local.dir"]


def test_jars_are_never_resolved_by_spark(settings):
    assert "spark.jars.packages" not in confs_of(settings)


def test_pools_let_people_and_live_tables_go_first():
    pools = {
        pool.get("name"): int(pool.findtext("weight", "0"))
        for pool in ElementTree.fromstring(pools_xml(module.POOL_WEIGHTS))
    }

    assert pools["live"] > pools["backfill"] > pools["maintenance"] > 0
    assert pools["manual"] > pools["backfill"]


def test_no_java_is_told_before_anything_is_made(settings, tmp_path):
    with pytest.raises(JavaError):
        build_session(replace(settings, java_home=tmp_path / "nowhere"))
    assert not settings.state.exists()


def test_a_port_in_use_is_told_with_what_to_do(settings):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]

        with pytest.raises(EngineError, match=f"port {port} .*connect-port"):
            build_session(settings, connect_token="secret", connect_port=port)


def test_a_state_folder_that_cannot_be_written_is_told(settings):
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


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_is_quiet_and_leaves_no_process_and_no_scratch_even_in_an_odd_folder(tmp_path):
    said = subprocess.run(
        short_life(tmp_path / "a größer folder"), capture_output=True, text=True, timeout=180, check=False
    )

    assert said.stdout.splitlines()[1:] == ["False []"], said.stderr
    assert said.stderr == ""


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

"""Shared by all tests: one Spark session for the whole run, and the lanes that the Makefile chooses from."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from freshline.values.freshness import Freshness
from freshline.values.settings import Settings
from tests import mariadb as mariadb_server
from tests.browser import load_pictures, require_chromium
from tests.lanes import is_in_long_lane
from tests.metastore import MetastoreServer, require_java, running_metastore
from tests.postgres import PostgresServer, require_programs, running_server
from tests.rabbitmq import RabbitServer, find_server, running_rabbitmq
from tests.servers.clickhouse import ClickHouseServer, running_clickhouse
from tests.servers.hdfs import HdfsServer, running_hdfs
from tests.servers.opensearch import OpenSearchServer, running_opensearch
from tests.servers.web import WebServer, web_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from freshline.testing import Lab
    from resources.broker import Broker
    from tests.kafka import Topics
    from tests.quick_lab import QuickLab

# For the JVM of every engine that a test starts, in whichever process, as `quick_start` has them for the session of the
# tests: it lives for seconds, of which better compiled code and a second collector took two fifths.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
# A test that takes one of these starts a JVM, here or in a process of its own.
SPARK_FIXTURES = frozenset({"spark", "engine"})
SECRET_CLAIM = "test_a_secret_is_written_as_a_reference_and_shown_nowhere"
# Files that take minutes. They come first, so that sessions that share the files end at about the same time.
LONGEST = frozenset(
    {
        "test_algebra.py",
        "test_change_feeds.py",
        "test_conformance.py",
        "test_final.py",
        "test_kafka.py",
        "test_merge.py",
        "test_upgrade.py",
        "test_webserver.py",
    }
)


# Servers that take 20 CPU-seconds to start, as the paths of files that need them have them; `catalog`: a metastore.
SLOW_SERVERS = ("opensearch", "hdfs", "clickhouse", "catalog")
# Lines of a failure.
LINES_AT_ONCE = 30
# Seconds. A run on a slow machine beside much else takes three times as long as alone.
LONG_LIMIT = 3600


def pytest_configure(config: pytest.Config) -> None:
    """Make Ctrl-C work as in a terminal, engines start quickly, and output independent of this terminal.

    A run in the background of a script ignores Ctrl-C, and so would every command that a test starts: the tests of
    Ctrl-C would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JVM)
    # The processes of `pytest -n` have it.
    os.environ.pop("COLUMNS", None)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


class _FailuresAtOnce:
    """Shows the end of each failure when it happens: a run that is stopped at its time limit prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self.config.pluginmanager.getplugin("terminalreporter")
            terminal.ensure_newline()
            terminal.write_line(f"{report.nodeid} failed ({report.when}, {report.duration:.1f} s):")
            for line in report.longreprtext.splitlines()[-LINES_AT_ONCE:]:
                terminal.write_line(f"    {line}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, one process has all files that need the same server of SLOW_SERVERS."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda node: next((name for name in SLOW_SERVERS if name in file_of(node)), file_of(node))
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use Spark, and let all others run first: a mistake in a value shows within seconds.

    Where several processes share the tests (`pytest -n`), they must all have this order.
    """
    for item in items:
        if SPARK_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
        if is_in_long_lane(item):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(LONG_LIMIT))
        # The claim is the library's, which knows nothing of our marks.
        if getattr(item, "originalname", None) == SECRET_CLAIM:
            item.add_marker(pytest.mark.security)
    items.sort(key=lambda item: (item.get_closest_marker("spark") is not None, item.path.name not in LONGEST))


def settings_in(root: Path) -> Settings:
    """Settings of a project below `root`, as its defaults are."""
    state = root / ".freshline" / "local"
    return Settings(
        root=root,
        environment="local",
        declarations=root / "assets",
        state=state,
        warehouse=state / "warehouse",
        control_store=f"sqlite:///{state / 'control.db'}",
        default_freshness=Freshness(86_400),
        continuous_below=Freshness(60),
        incremental_below=Freshness(1_800),
        driver_memory="1g",
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of an empty project of this test."""
    return settings_in(tmp_path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres server of this run; skipped where Postgres is not installed, unless the environment requires it."""
    with running_server(require_programs()) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[mariadb_server.MariadbServer]:
    """A MariaDB server of this run; skipped where MariaDB is not installed, unless the environment requires it."""
    programs = mariadb_server.find_programs()
    if programs is None:
        if os.environ.get("FRESHLINE_REQUIRE_MARIADB"):
            pytest.fail("MariaDB is required here and not installed (on Debian: apt-get install mariadb-server)")
        pytest.skip("MariaDB is not installed (on Debian: apt-get install mariadb-server)")
    with mariadb_server.running_server(programs) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitServer]:
    """A RabbitMQ server of this run; skipped where RabbitMQ is not installed, unless the environment requires it."""
    program = find_server()
    if program is None:
        if os.environ.get("FRESHLINE_REQUIRE_RABBITMQ"):
            pytest.fail("RabbitMQ is required here and not installed (on Debian: apt-get install rabbitmq-server)")
        pytest.skip("RabbitMQ is not installed (on Debian: apt-get install rabbitmq-server)")
    with running_rabbitmq(program) as server:
        yield server


@pytest.fixture(scope="session")
def metastore() -> Iterator[MetastoreServer]:
    """A Hive metastore of this run; skipped where no JDK is installed, unless the environment requires it."""
    with running_metastore(require_java()) as server:
        yield server


@pytest.fixture(scope="session")
def chromium_of_this_run() -> Iterator[Any]:
    """The one browser of this run."""
    require_chromium()
    with load_pictures().browser() as window:
        yield window


@pytest.fixture
def chromium(chromium_of_this_run: Any) -> Iterator[Any]:
    """A headless browser, as `platform/docs/pictures.py` has it; skipped where none is installed, unless required."""
    chromium_of_this_run.requests()
    yield chromium_of_this_run
    # A page that stays open follows a server that ends with its test.
    chromium_of_this_run.open("about:blank", 100)


@pytest.fixture(scope="session")
def kinesis_service() -> Iterator[Any]:
    """The Kinesis service of this run."""
    # Imported here because it takes a second, and few tests need it.
    from tests.kinesis import running_kinesis

    with running_kinesis() as server:
        yield server


@pytest.fixture
def kinesis(kinesis_service: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The Kinesis service, which answers, with the keys of the tests in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-is-the-secret")
    yield kinesis_service
    kinesis_service.answers.clear()
    if kinesis_service._server is None:
        kinesis_service.start()


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearchServer]:
    """An OpenSearch of this run; skipped where its jars cannot be had, unless the environment requires it."""
    with running_opensearch() as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouseServer]:
    """ClickHouse's engine behind its HTTP interface; skipped where chdb is missing, unless required."""
    with running_clickhouse() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsServer]:
    """An HDFS of this run; skipped where its jars cannot be had, unless the environment requires it."""
    with running_hdfs() as server:
        yield server


@pytest.fixture
def webhook() -> Iterator[WebServer]:
    """A server of HTTP of this test, which records what it gets and answers as the test wants it."""
    with web_server() as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this run. It keeps nothing for a test: tables are at paths, below each test's tmp_path."""
    # Imported here because most tests, and the fast lane as a whole, do without Spark.
    from freshline.engine.spark import build_session, stop_session
    from freshline.testing.session import SMALL_TABLES

    session = build_session(
        # Delta keeps the newest state of each table for an hour, and hundreds of stories make a thousand tables.
        replace(settings_in(tmp_path_factory.mktemp("spark")), driver_memory="2g", spark_confs=SMALL_TABLES),
        app_name="tests",
        connect_token="token-of-the-tests",
        connect_port=0,
        quick_start=True,
    )
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker of this run, for tests without Spark too. A test that ends it starts it again."""
    from freshline.declare.project_settings import read_settings
    from resources.broker import new_broker

    folder = tmp_path_factory.mktemp("kafka")
    (folder / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    # By the environment: jars may have to come from a mirror or a folder.
    broker = new_broker(read_settings(folder, os.environ), folder / "broker")
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="session")
def kafka(spark: SparkSession, kafka_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Topics:
    """The broker of this run, with a session whose JVM has Kafka's classes."""
    from freshline.declare.project_settings import read_settings
    from freshline.engine.connector_jars import provide_connector_jars
    from tests.kafka import Topics

    folder = tmp_path_factory.mktemp("kafka-jars")
    (folder / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    provide_connector_jars("kafka", read_settings(folder, os.environ), spark)
    return Topics(kafka_broker, spark)


@pytest.fixture(scope="module")
def shared_lab(spark: SparkSession) -> Iterator[Lab]:
    """One Lab for the tests of a file that leave it as it was, such as those of declarations that are refused."""
    from tests.plain_lab import PlainLab

    with PlainLab(spark) as made:
        yield made


@pytest.fixture
def spark_lab(spark: SparkSession) -> Iterator[Lab]:
    """An empty Lab of this test, on the session of the run."""
    from tests.plain_lab import PlainLab

    with PlainLab(spark) as made:
        yield made


@pytest.fixture
def lab(spark_lab: Lab) -> Lab:
    """The same; a file whose claims need no Spark gives its own tests `quick_lab` by this name."""
    return spark_lab


@pytest.fixture
def quick_lab() -> Iterator[QuickLab]:
    """An empty Lab of this test without Spark."""
    from tests.quick_lab import QuickLab

    with QuickLab() as made:
        yield made

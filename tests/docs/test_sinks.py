"""The pages that send a table to another system, typed in an empty folder, with the system as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from resources.broker import Broker
from tests.databases import Database
from tests.docs.test_docs import DOCS
from tests.docs.test_tutorial import BLOCK, SHOWN, Shell, lines_of
from tests.postgres import PostgresServer
from tests.servers.clickhouse import ClickHouseServer
from tests.servers.hdfs import HdfsServer
from tests.servers.opensearch import OpenSearchServer

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def follow(page: str, folder: Path) -> None:
    """Type the commands of a page. Each block prints what stands below it, and the last one ends the engine."""
    text = (DOCS / page).read_text(encoding="utf-8")
    steps = SHOWN.findall(text)
    assert [commands for commands, _ in steps] == BLOCK.findall(text)
    assert steps[-1][0].endswith("freshline down\n")
    shell = Shell(folder)
    try:
        for commands, shown in steps:
            assert lines_of(shell.type(commands)) == lines_of(shown), commands
    except BaseException:
        shell.type("freshline down")
        raise


def test_a_database_has_the_rows_that_the_page_shows(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shutil.which("psql"), "psql comes with the server"
    database = Database(postgres)
    monkeypatch.setenv("SHOP", database.url)
    try:
        follow("sink_database.md", tmp_path)
    finally:
        database.close()


def test_clickhouse_has_the_rows_that_the_page_shows(
    tmp_path: Path, clickhouse: ClickHouseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICKHOUSE", clickhouse.url)
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", clickhouse.password)

    follow("sink_clickhouse.md", tmp_path)


def test_opensearch_has_the_documents_that_the_page_shows(
    tmp_path: Path, opensearch: OpenSearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH", opensearch.url)

    follow("sink_opensearch.md", tmp_path)


def test_kafka_has_the_records_that_the_page_shows(
    tmp_path: Path, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERS", kafka_broker.servers)

    follow("sink_kafka.md", tmp_path)


def test_hdfs_has_the_files_that_the_page_shows(
    tmp_path: Path, hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HDFS", hdfs.url)
    for name, value in hdfs.client_environment.items():
        monkeypatch.setenv(name, value)

    follow("sink_hdfs.md", tmp_path)

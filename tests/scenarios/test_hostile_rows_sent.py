"""Rows that no system likes, sent to each one: none yet, odd names and values, everything NULL, and none any more."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from freshline.values.names import TableName
from tests.databases import Database
from tests.lanes import long_but
from tests.scenarios.tables import declare
from tests.servers.clickhouse import PASSWORD
from tests.sinks.kafka_topic import Topic

pytestmark = pytest.mark.slow

COLUMNS = (
    "k STRING, x INT, `Größe🎉` STRING, e DECIMAL(38,18), d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, "
    "l ARRAY<STRUCT<a: INT, m: MAP<STRING, DECIMAL(38,18)>>>"
)
NAME = "`x\"'; DROP TABLE y; --`"
# More than the megabyte that a topic takes.
LONG = "repeat('ä', 600000)"
ROWS = f"""
('ä🎉', -1, '{{"🎉": "\u2028"}}', CAST('-12345678901234567890.123456789012345678' AS DECIMAL(38,18)), DATE'1970-01-01',
 TIMESTAMP'1969-12-31 23:59:59.999999', TIMESTAMP_NTZ'2026-02-28', X'00ff22',
 array(named_struct('a', 1, 'm', map('ü"', CAST('0.000000000000000001' AS DECIMAL(38,18)), '', NULL)), NULL)),
('old', 1, '', CAST(0 AS DECIMAL(38,18)), DATE'1899-12-31', TIMESTAMP'1815-06-18 11:35:00', NULL, X'', array()),
('late', 1, '\\\\', NULL, DATE'9999-12-31', NULL, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', NULL, NULL),
('', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
('long', 1, {LONG}, NULL, NULL, NULL, NULL, NULL, NULL)
"""


@dataclass(frozen=True)
class System:
    """The options of a sink, and the keys of rows that the system does not take.

    `count` is how many rows it has, -1 for one that is not asked.
    """

    options: str
    not_taken: frozenset[str]
    count: Callable[[], int]


@pytest.fixture
def database(postgres: Any) -> Iterator[Database]:
    made = Database(postgres)
    yield made
    made.close()


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> System:
    match request.param:
        case "clickhouse":
            server = request.getfixturevalue("clickhouse")
            monkeypatch.setenv("CLICK", PASSWORD)
            database = server.new_database()
            options = f"'url' = '{server.url}', 'table' = '{database}.big', 'password' = '${{env:CLICK}}'"
            return System(
                f"'connector' = 'clickhouse', {options}",
                frozenset({"old", "late"}),
                lambda: len(server.ask("SELECT k FROM big", database=database).splitlines()),
            )
        case "postgres":
            database = request.getfixturevalue("database")
            monkeypatch.setenv("SHOP", database.url)
            return System(
                "'connector' = 'jdbc', 'url' = '${env:SHOP}', 'table' = 'big'",
                frozenset(),
                lambda: int(database.ask("SELECT count(*) FROM big")[0][0]),
            )
        case "opensearch":
            server = request.getfixturevalue("opensearch")
            index = server.new_name()
            return System(
                f"'connector' = 'opensearch', 'url' = '{server.url}', 'index' = '{index}'",
                frozenset(),
                lambda: len(server.documents(index)),
            )
        case "kafka":
            topic = Topic(request.getfixturevalue("kafka_broker").servers)
            options = f"'bootstrap.servers' = '{topic.servers}', 'topic' = '{topic.name}', 'partitions' = '1'"
            return System(f"'connector' = 'kafka', {options}", frozenset({"long"}), lambda: len(topic.state()))
        case form:
            folder = tmp_path / "out"
            return System(
                f"'connector' = 'files', 'path' = '{folder}', 'format' = '{form}', 'keep' = '1'",
                frozenset(),
                lambda: -1,
            )


@pytest.mark.parametrize(
    "system",
    long_but(["postgres", "parquet"], ["postgres", "clickhouse", "opensearch", "kafka", "parquet", "csv"]),
    indirect=True,
)
def test_rows_that_no_system_likes_are_equal_after_each_refresh(lab: Any, system: System) -> None:
    lab.source("src", COLUMNS, primary_key=["k"])
    declare(lab, f"SELECT k, x AS {NAME}, `Größe🎉`, e, d, t, n, b, l FROM src", "(PRIMARY KEY (k))", name="big")
    lab.declare(f"CREATE SINK out FROM big WITH ({system.options}, 'on-reject' = 'quarantine')")

    def refresh(*, not_taken: int = 0, **asked: Any) -> int:
        """Send, and compare; how many rows the system has."""
        outcome = lab.refresh("out", **asked)
        assert (outcome.error, outcome.rejected) == (None, not_taken)
        found = lab.verify("out")
        assert (found.error, found.missing, found.extra, found.unverified) == (None, 0, 0, not_taken)
        assert found.equal == (not_taken == 0)
        return system.count()

    assert refresh() in (0, -1)
    lab.sql(f"INSERT INTO src VALUES {ROWS}")
    assert refresh(not_taken=len(system.not_taken)) in (5 - len(system.not_taken), -1)
    if system.not_taken:
        path = lab.runtime.warehouse.rejections(lab.runtime.graph.table(TableName.parse("out")))
        rejected = [row["raw"] for row in lab.runtime.spark.read.format("delta").load(str(path)).collect()]
        assert {json.loads(raw)["k"] for raw in rejected} == system.not_taken
    gone = ", ".join(f"{name} = NULL" for name in ("x", "`Größe🎉`", *"edtnbl"))
    lab.sql(f"UPDATE src SET {gone}")
    assert refresh() in (5, -1)
    lab.sql("DELETE FROM src")
    assert refresh() in (0, -1)
    assert refresh(full=True) in (0, -1)

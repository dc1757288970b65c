"""The claims about every sink, on a real system of each kind.

Those of OpenSearch and ClickHouse are beside their stories, in tests/scenarios, so that one process starts each server.
"""

from __future__ import annotations

import pytest

from freshline.testing.sinks import SinkConformance
from tests.lanes import all_but
from tests.sinks.systems import OWN, FolderSystem, HookSystem, MariadbSystem, PostgresSystem, TopicSystem, prepared


class TestPostgres(SinkConformance):
    """A table of Postgres."""

    # The benchmarks have more rows, and tests/scenarios/test_database_sink.py stops at each point.
    in_long_lane = frozenset(
        {"test_many_rows_come_and_go_in_batches", "test_stopped_at_each_point_it_has_each_state_once"}
    )

    @pytest.fixture
    def system(self, lab, postgres, monkeypatch):
        with prepared(PostgresSystem(lab, postgres), monkeypatch) as made:
            yield made


class TestMariadb(SinkConformance):
    """A table of MariaDB."""

    in_long_lane = all_but(OWN, SinkConformance)

    @pytest.fixture
    def system(self, lab, mariadb, monkeypatch):
        with prepared(MariadbSystem(lab, mariadb), monkeypatch) as made:
            yield made


class TestTopic(SinkConformance):
    """A topic of Kafka that has the newest row of each key."""

    in_long_lane = all_but(OWN, SinkConformance)

    @pytest.fixture
    def system(self, lab, kafka_broker, monkeypatch):
        with prepared(TopicSystem(lab, kafka_broker.servers), monkeypatch) as made:
            yield made


class TestFolder(SinkConformance):
    """A folder of this machine."""

    in_long_lane = all_but(OWN, SinkConformance)

    @pytest.fixture
    def system(self, lab, monkeypatch):
        with prepared(FolderSystem(lab), monkeypatch) as made:
            yield made


class TestHook(SinkConformance):
    """A service that is posted to, and cannot be asked for its rows."""

    in_long_lane = all_but(OWN, SinkConformance)

    @pytest.fixture
    def system(self, lab, monkeypatch):
        with prepared(HookSystem(lab), monkeypatch) as made:
            yield made

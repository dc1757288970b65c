"""The demo's declarations with topics in place of landing folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.declare.project import read_project
from freshline.declare.project_settings import read_settings
from freshline.sources.kafka.connector import Kafka
from freshline.values.names import TableName
from resources.topics import declare_topics

ROOT = Path(__file__).parents[2]


def test_the_sources_of_events_are_topics_and_nothing_else_differs(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    declare_topics(ROOT / "assets", tmp_path / "assets", "h:1")
    over_topics = read_project(read_settings(tmp_path, {}))
    over_files = read_project(read_settings(ROOT, {}))

    events = {TableName.parse(name) for name in ("touch_event", "sale_order", "customer_change")}
    topics = {source.name: source.connection for source in over_topics.sources if isinstance(source.connection, Kafka)}
    assert {name: (kafka.topic, kafka.servers) for name, kafka in topics.items()} == {
        name: (str(name), "h:1") for name in events
    }
    assert set(over_topics.order) == set(over_files.order)
    for name in set(over_topics.order) - events:
        assert over_topics.spec(name).fingerprint == over_files.spec(name).fingerprint


def test_declarations_that_are_not_as_expected_are_reported(tmp_path):
    (tmp_path / "touch_event.sql").write_text("CREATE SOURCE touch_event (id INT) WITH ('connector' = 'delta')")
    with pytest.raises(ValueError, match=r"touch_event\.sql has no 'connector' = 'files'"):
        declare_topics(tmp_path, tmp_path / "out", "h:1")

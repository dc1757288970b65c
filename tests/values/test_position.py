"""Positions in JSON: those of connectors have a kind, those of before had none."""

from __future__ import annotations

import pytest

from freshline.sources.files.position import FileMark, FilesPosition
from freshline.sources.kafka.position import TopicPosition
from freshline.values.position import TablePosition, UnknownPosition, position_from_json

FILES = FilesPosition(3, (FileMark("a.json", 5, 6),))
SEEN = FilesPosition(3, (), ("a", "b"))
TOPIC = TopicPosition("cluster", "topic", "id-1", {0: 10, 1: 20})


@pytest.mark.parametrize("position", [FILES, SEEN, TOPIC, TablePosition("id", 7, 3), TablePosition("id", 7)])
def test_a_position_is_read_as_it_was_written(position):
    assert position_from_json(position.as_json()) == position


@pytest.mark.parametrize("position", [FILES, TOPIC])
def test_a_position_of_a_receipt_from_before_positions_had_a_kind_is_read(position):
    written = position.as_json()
    assert written.pop("kind") == position.kind

    assert position_from_json(written) == position


def test_a_position_of_a_connector_that_is_not_installed_is_kept_as_it_is():
    written = {"kind": "not-installed", "shards": {"a": 1}}

    position = position_from_json(written)

    assert isinstance(position, UnknownPosition)
    assert position.as_json() == written

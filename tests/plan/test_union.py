"""The token of a union read, and where the records that it names are by now."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from freshline.errors import OffsetsLostError, RequestError, TopicReplacedError
from freshline.plan.union import UnionToken
from freshline.sources.files.position import FileMark, FilesPosition
from freshline.sources.files.reader import split_files
from freshline.sources.kafka.position import TopicPosition
from freshline.sources.kafka.topic import TopicInspection, TopicRange, require_unread, split_topic
from freshline.values.names import TableName
from freshline.values.position import TablePosition

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
START = TopicPosition("c", "t", "id-1", {0: 10, 1: 20})
END = TopicPosition("c", "t", "id-1", {0: 15, 1: 20, 2: 4})
TOKEN = UnionToken(TableName(None, "s"), TablePosition("a", 7, 3), TablePosition("a", 7, 3), START, END, 3, AT)


def split(newest, earliest=None):
    return split_topic(START, END, newest, earliest=earliest, where="s")


def test_a_token_is_read_as_it_was_written():
    files = UnionToken(
        TableName("b", "t"),
        TablePosition("a", 7, 3),
        TablePosition("b", 9, 4),
        FilesPosition(4, ()),
        FilesPosition(4, (FileMark("x.json", 5, 6),)),
        2,
        AT,
    )
    assert UnionToken.parse(json.dumps(TOKEN.as_json())) == TOKEN
    assert UnionToken.parse(files.as_json()) == files
    assert TOKEN.as_json()["from"]["offsets"] == {"0": 10, "1": 20}


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "null", '{"freshline_union": 1, "table": "s"}', '{"freshline_union": "x"}']
)
def test_a_text_that_is_no_token_is_refused(text):
    with pytest.raises(RequestError, match="no token of a union read"):
        UnionToken.parse(text)


@pytest.mark.security
@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/etc/passwd", "a//b", "", ".", "a/./b", None])
def test_a_token_that_names_a_file_out_of_the_folder_is_refused(path):
    files = {"kind": "files", "flushed_seq": 4, "recent": [[path, 5, 6]]}
    with pytest.raises(RequestError, match="no token of a union read"):
        UnionToken.parse({**TOKEN.as_json(), "to": files})
    files["recent"] = [["a/..b/c..", 5, 6]]
    assert UnionToken.parse({**TOKEN.as_json(), "to": files}).end == FilesPosition(4, (FileMark("a/..b/c..", 5, 6),))


def test_a_token_of_a_newer_freshline_is_refused():
    with pytest.raises(RequestError, match="newer freshline"):
        UnionToken.parse({**TOKEN.as_json(), "freshline_union": 2})


def test_rows_that_the_log_has_read_since_come_from_the_log_and_the_rest_from_the_topic():
    assert split(START).unread == TopicRange({0: 10, 1: 20, 2: 0}, {0: 15, 1: 20, 2: 4})
    later = split(TopicPosition("c", "t", "id-1", {0: 12, 1: 25, 2: 4}))
    assert later.logged == {0: 12, 1: 20, 2: 4}
    assert later.unread.offsets == 3
    assert split(TopicPosition("c", "t", "id-1", {0: 99, 1: 99, 2: 99})).unread.offsets == 0


def test_where_the_topic_is_preferred_it_is_read_as_long_as_it_has_everything():
    newest = TopicPosition("c", "t", "id-1", {0: 12, 1: 25, 2: 4})

    assert split(newest, earliest={0: 10, 1: 0, 2: 0}).unread.offsets == 9
    assert split(newest, earliest={0: 11, 1: 0, 2: 0}).unread.offsets == 3


def test_a_log_that_went_on_with_another_topic_is_an_error():
    with pytest.raises(TopicReplacedError):
        split(TopicPosition("c", "t", "id-2", {0: 12}))


@pytest.mark.parametrize(
    ("look", "error"),
    [
        (TopicInspection("c", "t", "id-1", {0: 0, 1: 0, 2: 0}, {0: 15, 1: 20, 2: 4}), None),
        (TopicInspection("c", "t", "id-1", {0: 0, 1: 30, 2: 0}, {0: 15, 1: 40, 2: 4}), None),
        (TopicInspection("c", "t", "id-1", {0: 11, 1: 0, 2: 0}, {0: 15, 1: 20, 2: 4}), OffsetsLostError),
        (TopicInspection("c", "t", "id-1", {0: 0, 1: 0, 2: 0}, {0: 14, 1: 20, 2: 4}), OffsetsLostError),
        (TopicInspection("c", "t", "id-1", {0: 0, 1: 0}, {0: 15, 1: 20}), OffsetsLostError),
        (TopicInspection("c", "t", "id-2", {0: 0, 1: 0, 2: 0}, {0: 15, 1: 20, 2: 4}), TopicReplacedError),
    ],
)
def test_a_tail_that_is_not_there_any_more_is_reported(look, error):
    if error is None:
        require_unread(split(START), look, "id-1", where="s")
        return
    with pytest.raises(error):
        require_unread(split(START), look, "id-1", where="s")


def test_files_that_arrived_since_come_from_the_log_unless_order_decides():
    a, b = FileMark("a", 1, 1), FileMark("b", 2, 2)
    read = {"a": a}

    assert split_files([a, b], read, frozenset("ab"), prefer_files=False) == (("a",), (b,))
    assert split_files([a, b], read, frozenset("ab"), prefer_files=True) == ((), (a, b))
    assert split_files([a, b], read, frozenset("b"), prefer_files=True) == (("a",), (b,))
    assert split_files([b], {"b": FileMark("b", 9, 9)}, frozenset("b"), prefer_files=False) == ((), (b,))

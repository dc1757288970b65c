"""Messages of `pgoutput` as values, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshline.sources.postgres.wire import (
    UNSENT,
    Begin,
    Change,
    Commit,
    Relation,
    RelationColumn,
    Truncate,
    WireError,
    read_message,
)
from tests.sources.postgres import messages


def test_each_message_is_read():
    assert read_message(messages.begin(100, 7, 5)) == Begin(100, 946_684_800_000_005, 7)
    assert read_message(messages.commit(100, 148)) == Commit(100, 148)
    columns = (RelationColumn("id", 23), RelationColumn("größe", 25))
    assert read_message(messages.relation(5, [("id", 23), ("größe", 25)])) == Relation(5, "public", "t", columns)
    data = messages.insert(5, "1", None, "")
    assert read_message(data) == Change("c", 5, None, False, [b"1", None, b""], len(data))
    data = messages.update(5, "1", UNSENT)
    assert read_message(data) == Change("u", 5, None, False, [b"1", UNSENT], len(data))
    data = messages.update(5, "2", "x", key=["1", None])
    assert read_message(data) == Change("u", 5, [b"1", None], True, [b"2", b"x"], len(data))
    data = messages.update(5, "1", "y", old=["1", "x"])
    assert read_message(data) == Change("u", 5, [b"1", b"x"], False, [b"1", b"y"], len(data))
    data = messages.delete(5, "1", None)
    assert read_message(data) == Change("d", 5, [b"1", None], True, None, len(data))
    assert read_message(messages.truncate(5, 9)) == Truncate((5, 9))


@pytest.mark.parametrize("data", [b"O\0\0\0\0\0\0\0\0origin\0", b"Y\0\0\0\1public\0mood\0", b"M\0abc"])
def test_a_message_that_says_nothing_about_rows_is_left_out(data):
    assert read_message(data) is None


@pytest.mark.parametrize("data", [b"", b"S\0\0\0\1", b"X", messages.insert(5, "1").replace(b"t", b"q")])
def test_data_that_is_no_message_is_an_error(data):
    with pytest.raises(WireError):
        read_message(data)


WHOLE = [
    messages.begin(1),
    messages.commit(1, 2),
    messages.relation(1, [("id", 23)]),
    messages.insert(1, "abc", None),
    messages.update(1, "abc", key=["x"]),
    messages.delete(1, "abc"),
    messages.truncate(1, 2),
]


@pytest.mark.parametrize("data", WHOLE, ids=lambda data: chr(data[0]))
def test_a_message_that_is_cut_off_is_an_error_at_each_place(data):
    for length in range(1, len(data)):
        with pytest.raises(WireError):
            read_message(data[:length])


@given(st.lists(st.one_of(st.binary(max_size=50), st.none(), st.just(UNSENT)), max_size=8))
def test_any_row_is_read_as_it_was_written(values):
    found = read_message(messages.insert(1, *values))

    assert isinstance(found, Change)
    assert found.new == values


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(data):
    try:
        read_message(data)
    except WireError:
        return

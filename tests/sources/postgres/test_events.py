"""Messages of a slot as events of one table, in whole transactions."""

from __future__ import annotations

import json

import pytest

from freshline.sources.postgres.events import ChangeReader, PostgresColumn, ReadTable, SnapshotReader, UnfitTypeError
from freshline.sources.postgres.rows import EventRows
from freshline.sources.postgres.wire import UNSENT
from freshline.sources.spill import MOST_ROWS
from tests.sources.postgres import messages

TABLE = ReadTable(
    5,
    "public.t",
    (
        PostgresColumn("id", "INT", "id", True),
        PostgresColumn("name", "STRING", "name", False),
        PostgresColumn("bio", "STRING", "bio", False),
    ),
    {},
    1_000,
)
RELATION = messages.relation(5, [("bio", 25), ("id", 23), ("extra", 25), ("name", 25)])


def read(*sent, begin=0, table=TABLE):
    """The events of messages, at the places 1, 2, .."""
    reader = ChangeReader(table, begin)
    return [event for place, data in enumerate(sent, 1) for event in reader.read(place, data)]


def in_transaction(*sent, commit_lsn=100, table=TABLE):
    whole = (messages.begin(commit_lsn, 7, 5), RELATION, *sent, messages.commit(commit_lsn, commit_lsn + 48))
    return read(*whole, table=table)


def short(events):
    return [(event.op, *event.values, event.unsent, event.broken) for event in events]


def test_changes_have_the_columns_by_name_and_the_facts_of_their_transaction():
    (event,) = in_transaction(messages.insert(5, "b", "1", "ignored", "n"))

    assert (event.values, event.op, event.position, event.commit) == ((1, "n", "b"), "c", 3, 100)
    assert (event.transaction, event.changed_at, event.raw) == ("7", 946_684_800_000_005, "")


def test_updates_and_deletes_name_their_row():
    events = in_transaction(
        messages.update(5, "b", "1", None, "n"),
        messages.delete(5, None, "1", None, None),
        messages.delete(5, "b", "2", None, "n", whole=True),
    )

    assert short(events) == [
        ("u", 1, "n", "b", (), None),
        ("d", 1, None, None, (), None),
        ("d", 2, None, None, (), None),
    ]


def test_a_key_that_changes_is_a_delete_and_an_insert():
    events = in_transaction(messages.update(5, "b", "2", None, "n", key=[None, "1", None, None]))

    assert short(events) == [("d", 1, None, None, (), None), ("c", 2, "n", "b", (), None)]


def test_a_key_that_is_sent_again_is_an_update():
    events = in_transaction(messages.update(5, "b", "1", None, "n", old=["a", "1", None, "m"]))

    assert short(events) == [("u", 1, "n", "b", (), None)]


def test_a_value_that_was_not_sent_is_that_of_a_whole_old_image_else_unsent():
    (unsent,) = in_transaction(messages.update(5, UNSENT, "1", None, "n"))
    (known,) = in_transaction(messages.update(5, UNSENT, "1", None, "n", old=["a", "1", None, "m"]))

    assert short([unsent, known]) == [("u", 1, "n", None, ("bio",), None), ("u", 1, "n", "a", (), None)]
    assert json.loads(unsent.raw)["row"] == {"id": "1", "name": "n"}


def test_a_large_key_that_was_not_sent_is_the_old_one():
    table = ReadTable(5, "t", (PostgresColumn("name", "STRING", "name", True),), {}, 1_000)
    update = messages.update(5, "b", "1", None, UNSENT, key=[None, None, None, "long"])

    assert short(in_transaction(update, table=table)) == [("u", "long", (), None)]


def test_a_truncate_is_of_no_row_and_of_this_table_only():
    events = in_transaction(messages.truncate(4, 5), messages.truncate(4))

    assert short(events) == [("t", None, None, None, (), None)]


def test_other_tables_are_left_out():
    other = messages.relation(6, [("id", 25)], "u")

    assert in_transaction(other, messages.insert(6, "x"), messages.insert(5, "b", "1", None, "n"))[0].values[0] == 1


def test_transactions_that_were_read_are_left_out_by_their_commit():
    first = (messages.begin(100), RELATION, messages.insert(5, "b", "1", None, "n"), messages.commit(100, 148))
    second = (messages.begin(148), messages.insert(5, "b", "2", None, "n"), messages.commit(148, 200))

    assert [event.values[0] for event in read(*first, *second, begin=148)] == [2]
    assert [event.values[0] for event in read(*first, *second, begin=100)] == [1, 2]
    truncated = (messages.begin(100), messages.truncate(5), messages.commit(100, 148))
    assert read(*truncated, begin=148) == []


def test_the_end_is_behind_the_last_commit():
    reader = ChangeReader(TABLE, 10)
    reader.read(1, messages.begin(100))
    assert (reader.end, reader.is_inside) == (10, True)
    reader.read(2, messages.commit(100, 148))
    assert (reader.end, reader.is_inside) == (148, False)


def test_a_column_that_the_table_did_not_have_yet_is_null():
    old = messages.relation(5, [("id", 23)])
    sent = (messages.begin(9), old, messages.insert(5, "1"), RELATION, messages.insert(5, "b", "2", None, "n"))

    assert [event.values for event in read(*sent)] == [(1, None, None), (2, "n", "b")]


def test_values_that_do_not_fit_are_named_and_kept_as_they_were():
    events = in_transaction(
        messages.insert(5, "b", str(2**40), None, "n"),
        messages.insert(5, b"\xff", "2", None, "n"),
        messages.insert(5, "b" * 1_000, "3", None, "n"),
    )

    assert [event.broken for event in events] == ["VALUE_CHANGED(id)", "NOT_UTF8", "TOO_LARGE"]
    assert json.loads(events[0].raw) == {
        "table": "public.t",
        "op": "c",
        "lsn": "0/3",
        "commit": "0/64",
        "transaction": 7,
        "row": {"id": str(2**40), "name": "n", "bio": "b"},
    }
    assert len(events[2].raw) < 600
    assert events[2].values == (3, None, None)


def test_a_column_of_another_type_ends_the_reading():
    with pytest.raises(UnfitTypeError, match="id is text, and declared INT"):
        read(messages.begin(9), messages.relation(5, [("id", 25)]))


def test_the_lines_of_a_snapshot_are_rows():
    reader = SnapshotReader(TABLE, [23, 25, 25], 50, 9)
    lines = [b"1\ta\\tb\\\\\\n\t\\N\n", b"2\t\t\\\\N\n", b"99999999999\ta\t\\N\n"]
    events = [reader.read(line) for line in lines]

    assert [event.values for event in events] == [(1, "a\tb\\\n", None), (2, "", "\\N"), (None, "a", None)]
    assert {(event.op, event.position, event.commit, event.changed_at) for event in events} == {("r", 50, 50, 9)}
    assert [event.broken for event in events] == [None, None, "VALUE_CHANGED(id)"]


def event(number):
    return SnapshotReader(TABLE, [23, 25, 25], 50, 9).read(f"{number}\tname\t\\N\n".encode())


@pytest.mark.seconds
def test_few_events_stay_and_many_go_to_files(tmp_path):
    few = EventRows(TABLE.columns, tmp_path / "few", 7)
    for number in range(3):
        few.add(event(number))
    few.finish()
    assert few.table.column("_freshline_record").to_pylist() == [7, 8, 9]
    assert few.table.column("_freshline_change_position").to_pylist() == ["postgresql:00000000/00000032"] * 3
    assert not (tmp_path / "few").exists()

    import pyarrow.parquet as pq

    many = EventRows(TABLE.columns, tmp_path / "many", 7)
    for number in range(2 * MOST_ROWS + 5):
        many.add(event(number))
    many.finish()
    read = [row for file in many.files for row in pq.read_table(file).to_pylist()]
    assert [row["_freshline_record"] for row in read] == list(range(7, 2 * MOST_ROWS + 12))
    assert [row["_freshline_parsed"]["id"] for row in read] == list(range(2 * MOST_ROWS + 5))
    many.remove()
    assert not (tmp_path / "many").exists()
    assert EventRows(TABLE.columns, tmp_path / "none", 0).table.num_rows == 0


def test_large_events_go_to_files_before_they_are_many(tmp_path):
    rows = EventRows(TABLE.columns, tmp_path / "rows", 0)
    for number in range(5):
        rows.add(event(number)._replace(size=5 * 1024 * 1024))
    rows.finish()

    assert (rows.is_spilled, rows.count) == (True, 5)


def test_the_row_before_a_change_is_that_of_a_whole_old_image():
    whole = messages.update(5, "b", "1", None, "n", old=["a", "1", None, "m"])
    moved = messages.update(5, "b", "2", None, "n", old=["a", "1", None, "m"])
    events = in_transaction(whole, moved, messages.delete(5, "b", "2", None, "n", whole=True))
    assert [(event.op, event.before) for event in events] == [
        ("u", (1, "m", "a")), ("d", (1, "m", "a")), ("c", None), ("d", (2, "n", "b")),
    ]  # fmt: skip
    unfit = messages.update(5, "b", "1", None, "n", old=[b"\xff", "1", None, "m"])
    only_key = messages.update(5, "b", "2", None, "n", key=[None, "1", None, None])
    assert [event.before for event in in_transaction(unfit, only_key)] == [(), None, None]

"""How a table is read on from a position, as values: each loss, each mistake, and how it is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from freshline.errors import DatabaseRefusedError, DatabaseReplacedError, SourceTypeError
from freshline.sources.databases.postgres_values import DatabaseType
from freshline.sources.jdbc.connector import Jdbc, Name, Overlap
from freshline.sources.jdbc.facts import (
    FoundColumn,
    FoundTable,
    Growing,
    JdbcServerFacts,
    QueryStep,
    find_step,
    require_table,
)
from freshline.sources.jdbc.position import QueryPosition
from freshline.sources.jdbc.postgres import PostgresType
from freshline.values.position import position_from_json

WHERE = "assets/feed.sql:1"
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
SNAPSHOT = Jdbc("${env:URL}", None, Name("t", False), "snapshot")
INCREMENTAL = replace(SNAPSHOT, read="incremental", column=Name("n", False), overlap=Overlap(None, 10))
BY_XMIN = replace(SNAPSHOT, read="incremental", column=Name("xmin", False))
SERVER = JdbcServerFacts("7", 1, "shop", NOW, place=1_000, oldest=500, next=510)


def column(name, type_name, *, nullable=False):
    return FoundColumn(name, PostgresType(DatabaseType(type_name)), nullable)


TABLE = FoundTable(
    "16", "public.t", "public.t", (column("id", "int4"), column("n", "int8"), column("Name", "text")), (("id",),),
    has_xmin=True,
)  # fmt: skip


def asked(declared, found=TABLE, columns=(("id", "INT"), ("name", "STRING")), key=("id",)):
    return require_table(declared, found, columns, key, where=WHERE)


def position(declared, **changes):
    made = QueryPosition(
        "7", 1, "shop", "public.t", "16", 900, "2026-11-26T11:00:00.000000Z", 3, 20, asked(declared).digest, "d",
        "100", (NOW - timedelta(hours=1)).isoformat(),
    )  # fmt: skip
    return replace(made, **changes)


def step(declared, at, *, server=SERVER, found=TABLE, now=NOW):
    return find_step(declared, server, asked(declared, found), at, now, where=WHERE)


def test_a_position_is_the_same_when_it_is_written_and_read():
    for at in (position(INCREMENTAL), position(SNAPSHOT, place=None, value=None, reconciled_at=None)):
        assert position_from_json(at.as_json()) == at


def test_a_table_is_read_as_a_whole_or_from_the_position_on():
    assert step(INCREMENTAL, None) is QueryStep.WHOLE
    assert step(SNAPSHOT, position(SNAPSHOT)) is QueryStep.WHOLE
    assert step(INCREMENTAL, position(INCREMENTAL)) is QueryStep.CHANGED
    assert step(INCREMENTAL, position(INCREMENTAL, value=None)) is QueryStep.WHOLE
    assert step(INCREMENTAL, position(INCREMENTAL, asked="another")) is QueryStep.WHOLE
    assert step(BY_XMIN, position(BY_XMIN)) is QueryStep.CHANGED


@pytest.mark.parametrize(
    ("ago", "expected"),
    [(59, QueryStep.CHANGED), (60, QueryStep.WHOLE), (-1, QueryStep.WHOLE), (None, QueryStep.WHOLE)],
)
def test_it_is_reconciled_when_it_is_time_also_by_a_clock_that_was_put_back(ago, expected):
    declared = replace(INCREMENTAL, reconcile=3600)
    at = None if ago is None else (NOW - timedelta(minutes=ago)).isoformat()

    assert step(declared, position(declared, reconciled_at=at)) is expected


LOSSES = [
    ({"system": "8"}, {}, "the server is 8, and 7 was read", True),
    ({"database": "other"}, {}, "the database is other, and shop was read", True),
    ({}, {"name": "public.u", "id": "17"}, "the table is public.u, and public.t was read", True),
    ({}, {"id": "17"}, "it was made anew", False),
    ({"timeline": 2}, {}, "a standby took over", False),
    ({"place": 899}, {}, "it was put back", False),
]


@pytest.mark.parametrize(("server", "found", "said", "of_snapshot"), LOSSES)
def test_a_replaced_server_or_table_is_reported_with_both_and_accepted_once(server, found, said, of_snapshot):
    for declared in (SNAPSHOT, INCREMENTAL, BY_XMIN):
        at, now, table = position(declared), replace(SERVER, **server), replace(TABLE, **found)
        if declared is SNAPSHOT and not of_snapshot:
            assert step(declared, at, server=now, found=table) is QueryStep.WHOLE
            continue
        with pytest.raises(DatabaseReplacedError, match=said) as raised:
            step(declared, at, server=now, found=table)
        assert f"'accept-database' = '{at.read_at}'" in str(raised.value)
        accepting = replace(declared, accepted_loss=at.read_at)
        assert step(accepting, at, server=now, found=table) is QueryStep.WHOLE
        with pytest.raises(DatabaseReplacedError):
            step(accepting, replace(at, read_at="2026-11-26T11:30:00.000000Z"), server=now, found=table)


def test_a_table_that_was_renamed_is_the_same_table():
    assert step(INCREMENTAL, position(INCREMENTAL), found=replace(TABLE, name="public.u")) is QueryStep.CHANGED


def test_by_xmin_numbers_that_went_back_are_a_loss_and_too_many_a_whole_reading():
    with pytest.raises(DatabaseReplacedError, match="the next transaction is 510, and 511 was read"):
        step(BY_XMIN, position(BY_XMIN, value="511"))
    assert step(BY_XMIN, position(BY_XMIN), server=replace(SERVER, next=100 + (1 << 31))) is QueryStep.WHOLE
    assert step(BY_XMIN, position(BY_XMIN), server=replace(SERVER, next=99 + (1 << 31))) is QueryStep.CHANGED


def test_by_xmin_a_standby_is_refused():
    standby = replace(SERVER, place=None, oldest=None, next=None)
    with pytest.raises(DatabaseRefusedError, match="the server is a standby"):
        step(BY_XMIN, None, server=standby)
    assert step(INCREMENTAL, position(INCREMENTAL), server=standby) is QueryStep.CHANGED


def test_the_lowest_value_is_the_overlap_behind_and_never_below_the_type():
    numbers = Growing(column("n", "int2"), 10)
    assert (numbers.low("100"), numbers.low("-32760")) == ("90", "-32768")
    decimals = Growing(column("n", "numeric"), 0)
    assert decimals.low("0.00000000000000000001") == "0.00000000000000000001"
    times = Growing(column("n", "timestamptz"), 90)
    assert times.low("2026-01-01 00:01:00.000001") == "2025-12-31 23:59:30.000001"
    assert times.low("0001-01-01 00:00:01.000000") == "0001-01-01 00:00:00.000000"
    numbers = Growing(column("n", "numeric"), 1000)
    assert numbers.low("12345678901234567890123456789999999999") == "12345678901234567890123456789999998999"
    days = Growing(column("n", "date"), 3600)
    assert (days.low("2026-01-01"), days.low("0001-01-01")) == ("2025-12-31", "0001-01-01")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int8", b"-5", Decimal(-5)),
        ("numeric", b"NaN", None),
        ("numeric", b"Infinity", None),
        ("timestamptz", b"2026-11-26 10:00:00.12+00", datetime(2026, 11, 26, 10, 0, 0, 120_000)),  # noqa: DTZ001
        ("timestamptz", b"9999-12-31 23:59:59+00", None),
        ("timestamp", b"infinity", None),
        ("timestamp", b"0044-03-15 00:00:00 BC", None),
        ("timestamp", b"10000-01-01 00:00:00", None),
        ("timestamp", b"0000-00-00 00:00:00", None),
        ("date", b"9999-12-31", None),
        ("date", NOW.date().isoformat().encode(), NOW.date()),
    ],
)
def test_a_position_is_at_values_that_are_there_now(kind, text, value):
    growing = Growing(column("n", kind), 0)
    found = growing.value(text, NOW)

    assert found == value
    assert value is None or growing.parse(growing.text(found)) == found


def test_mistakes_are_said_with_what_is_there():
    with pytest.raises(DatabaseRefusedError, match="there is no table t"):
        require_table(SNAPSHOT, None, (("id", "INT"),), ("id",), where=WHERE)
    with pytest.raises(DatabaseRefusedError, match="has no column x. Its columns are id, n, Name"):
        asked(SNAPSHOT, columns=(("x", "INT"),))
    with pytest.raises(SourceTypeError, match="is text in the database. Declare STRING"):
        asked(SNAPSHOT, columns=(("name", "INT"),))
    with pytest.raises(SourceTypeError, match="whose 'overlap' is a number, as '1000'"):
        asked(replace(INCREMENTAL, overlap=Overlap(600, None)))
    with pytest.raises(DatabaseRefusedError, match="has no xmin"):
        asked(BY_XMIN, replace(TABLE, has_xmin=False))


def test_a_key_is_unique_where_an_index_of_some_of_its_columns_is():
    assert asked(SNAPSHOT).is_unique
    assert asked(SNAPSHOT, key=("id", "name")).is_unique
    assert not asked(SNAPSHOT, key=("name",)).is_unique
    assert not asked(SNAPSHOT, replace(TABLE, unique_keys=(("id", "n"),))).is_unique

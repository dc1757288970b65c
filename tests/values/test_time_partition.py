"""Partitions in time: their keys, their bounds in a time zone, and the texts that are no partitions."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshline.values.time_partition import PartitionUnit, TimePartitions, read_time_partitions

HOUR, DAY, WEEK, MONTH = PartitionUnit.HOUR, PartitionUnit.DAY, PartitionUnit.WEEK, PartitionUnit.MONTH
STARTS = {HOUR: "2015-01-01-00:00", DAY: "2015-01-01", WEEK: "2015-01-05", MONTH: "2015-01-01"}
ZONES = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "America/Sao_Paulo",  # clocks changed at midnight
    "America/Havana",  # midnight came twice
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Pacific/Auckland",
    "Africa/Cairo",
    "Pacific/Apia",
]
MOMENTS = st.integers(1_423_000_000_000, 1_893_000_000_000).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def days(zone: str = "UTC", start: str = "2026-01-01") -> TimePartitions:
    return TimePartitions(DAY, start, zone)


@given(st.sampled_from(list(PartitionUnit)), st.sampled_from(ZONES), MOMENTS)
def test_every_moment_is_in_exactly_one_partition_whose_key_names_it(unit, zone, moment):
    partitions = TimePartitions(unit, STARTS[unit], zone)

    found = partitions.at(moment)

    assert found.start <= moment < found.end
    assert partitions.named(found.key, NOW) == found
    following = partitions.at(found.end)
    assert following.start == found.end
    assert following.key != found.key
    assert partitions.at(found.end - timedelta(microseconds=1)) == found
    assert partitions.at(found.start - timedelta(microseconds=1)).end == found.start


@given(st.sampled_from([DAY, WEEK, MONTH]), st.sampled_from(ZONES), MOMENTS)
def test_the_partition_of_a_date_is_the_one_that_a_calendar_shows(unit, zone, moment):
    partitions = TimePartitions(unit, STARTS[unit], zone)
    found = partitions.at(moment)
    day = partitions.local_date(moment)

    assert partitions.local_date(found.start).isoformat() == found.key
    assert partitions.local_date(found.start) <= day < partitions.local_date(found.end)
    assert found.start <= partitions.beginning_of(day) <= moment


def test_days_on_which_clocks_change_have_23_or_25_hours():
    paris = days("Europe/Paris")

    lengths = {key: paris.named(key, NOW) for key in ("2026-03-28", "2026-03-29", "2026-10-25")}

    assert {key: found.end - found.start for key, found in lengths.items()} == {
        "2026-03-28": timedelta(hours=24),
        "2026-03-29": timedelta(hours=23),
        "2026-10-25": timedelta(hours=25),
    }
    assert lengths["2026-03-29"].start == utc("2026-03-28T23:00")


def test_the_hour_that_comes_twice_has_two_keys_and_the_one_that_is_left_out_has_none():
    hours = TimePartitions(HOUR, "2026-01-01-00:00", "Europe/Paris")

    autumn = [item.key for item in hours.inside(utc("2026-10-24T23:00"), utc("2026-10-25T03:00"))]
    spring = [item.key for item in hours.inside(utc("2026-03-29T00:00"), utc("2026-03-29T02:00"))]

    assert autumn == ["2026-10-25-01:00", "2026-10-25-02:00", "2026-10-25-02:00+0100", "2026-10-25-03:00"]
    assert spring == ["2026-03-29-01:00", "2026-03-29-03:00"]
    assert hours.named("2026-10-25-02:00+0100", NOW).start == utc("2026-10-25T01:00")
    with pytest.raises(ValueError, match="is not a partition"):
        hours.named("2026-03-29-02:00", NOW)
    with pytest.raises(ValueError, match="is not a partition"):
        hours.named("2026-10-25-02:00+0200", NOW)


def test_a_day_that_has_no_midnight_begins_when_it_begins():
    found = TimePartitions(DAY, "2018-01-01", "America/Sao_Paulo").named("2018-11-04", NOW)

    assert (found.start, found.end) == (utc("2018-11-04T03:00"), utc("2018-11-05T02:00"))


def test_a_date_that_a_country_left_out_is_no_partition():
    apia = TimePartitions(DAY, "2011-12-01", "Pacific/Apia")

    assert [item.key for item in apia.inside(apia.named("2011-12-29", NOW).start, utc("2012-01-01T00:00"))] == [
        "2011-12-29",
        "2011-12-31",
        "2012-01-01",
    ]
    with pytest.raises(ValueError, match="is not a partition"):
        apia.named("2011-12-30", NOW)


@pytest.mark.parametrize(
    ("unit", "key"),
    [
        (DAY, ""),
        (DAY, "2026-1-1"),
        (DAY, "2026-02-30"),
        (DAY, "2026-13-01"),
        (DAY, "0000-01-01"),
        (DAY, "2026-01-01 "),
        (DAY, "2026-01-01\n"),
        (DAY, "2026-01-01' OR '1'='1"),
        (DAY, "2026-01-01; DROP TABLE t"),
        (DAY, "../2026-01-01"),
        (DAY, "../../etc/passwd"),
        (DAY, "20260101"),
        (DAY, "01.01.2026"),
        (DAY, "\u0662\u0660\u0662\u0666-01-01"),
        (DAY, "2026-01-01-00:00"),
        (DAY, "2026-01-01T00:00:00"),
        (DAY, "yesterday"),
        (WEEK, "2026-01-01"),
        (WEEK, "2026-W02"),
        (MONTH, "2026-02"),
        (MONTH, "2026-02-02"),
        (HOUR, "2026-02-02"),
        (HOUR, "2026-02-02-24:00"),
        (HOUR, "2026-02-02-05:30"),
        (HOUR, "2026-02-02 05:00"),
        (HOUR, "2026-02-02-05:00+9999"),
        (HOUR, "2026-02-02-05:00+0000"),
    ],
)
def test_a_text_that_is_no_key_is_refused_with_the_key_and_an_example(unit, key):
    start = {DAY: "2015-01-01", **STARTS}[unit]

    with pytest.raises(ValueError, match="is not a partition") as refused:
        TimePartitions(unit, start).named(key, NOW)

    assert repr(key) in str(refused.value)
    assert "2026-11-0" in str(refused.value)


@given(st.sampled_from(list(PartitionUnit)), st.text(max_size=30))
def test_a_text_is_a_key_or_a_value_error(unit, text):
    partitions = TimePartitions(unit, STARTS[unit])
    try:
        found = partitions.named(text, NOW)
    except ValueError:
        return
    assert found.key == text


def test_the_future_and_what_is_before_the_start_are_no_partitions():
    now = utc("2026-11-21T12:00")

    assert days().named("2026-11-21", now).end == utc("2026-11-22T00:00")
    with pytest.raises(ValueError, match=r"in the future: that partition begins at 2026-11-22 00:00 UTC"):
        days().named("2026-11-22", now)
    with pytest.raises(ValueError, match="before the first partition, which is 2026-01-01"):
        days().named("2025-12-31", now)
    # In Auckland it is tomorrow already.
    assert days("Pacific/Auckland").named("2026-11-22", now).start == utc("2026-11-21T11:00")


def test_a_range_has_both_ends_and_is_never_empty():
    now = utc("2026-11-21T12:00")

    assert [item.key for item in days().between("2026-02-27", "2026-03-01", now)] == [
        "2026-02-27",
        "2026-02-28",
        "2026-03-01",
    ]
    assert len(days().between("2026-02-27", "2026-02-27", now)) == 1
    with pytest.raises(ValueError, match="the first is after the last"):
        days().between("2026-03-01", "2026-02-27", now)
    with pytest.raises(ValueError, match="in the future"):
        days().between("2026-03-01", "2027-01-01", now)


def test_weeks_begin_on_mondays_and_months_on_their_first_day():
    weeks, months = TimePartitions(WEEK, "2026-01-05"), TimePartitions(MONTH, "2026-01-01")

    assert [item.key for item in weeks.inside(utc("2026-11-01T00:00"), utc("2026-11-10T00:00"))] == [
        "2026-10-26",
        "2026-11-02",
        "2026-11-09",
    ]
    assert [(item.end - item.start).days for item in months.begun(utc("2026-03-05T00:00"))] == [31, 28, 31]


def test_the_open_partition_is_the_last_that_has_begun():
    midnight = utc("2026-01-03T00:00")

    assert [item.key for item in days().begun(midnight)] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert len(days().begun(midnight - timedelta(microseconds=1))) == 2
    assert days().closed_until(midnight) == midnight
    assert days().begun(utc("2025-06-01T00:00")) == []
    assert days().closed_until(utc("2025-06-01T00:00")) == days().first.start


@pytest.mark.parametrize(
    ("unit", "start", "zone", "sentence"),
    [
        (DAY, "2026-01-01", "Mars/Olympus", "no time zone 'Mars/Olympus'"),
        (DAY, "2026-01-01", "../etc/passwd", "no time zone"),
        # Java, which computes the rows, has no such zones.
        (DAY, "2026-01-01", "ROC", "no time zone 'ROC'"),
        (DAY, "2026-01-01", "localtime", "no time zone 'localtime'"),
        (DAY, "2026-02-30", "UTC", "'partition.start': '2026-02-30'"),
        (WEEK, "2026-01-01", "UTC", "a Monday"),
        (MONTH, "2026-01-15", "UTC", "the first day of a month"),
        (HOUR, "2026-01-01", "UTC", "2026-11-01-05:00"),
        (HOUR, "2026-01-01-00:00", "Australia/Lord_Howe", "clocks change by less than an hour"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(unit, start, zone, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_time_partitions(unit, start, zone)


def test_hours_begin_with_the_clock_in_zones_of_half_an_hour():
    kolkata = read_time_partitions(HOUR, "2026-01-01-00:00", "Asia/Kolkata")

    assert kolkata.first.start == utc("2025-12-31T18:30")
    assert kolkata.at(utc("2026-01-01T00:29")).key == "2026-01-01-05:00"


def test_a_date_of_the_zone():
    assert days("Asia/Tokyo").local_date(utc("2026-01-01T15:00")) == date(2026, 1, 2)

"""Partitions are days of a time zone, and the query has to compute these."""

from __future__ import annotations

import pytest

from freshline.plan.partition_zone import other_days
from freshline.sql.query_parser import parse_query
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.spec import TableSpec
from freshline.values.time_partition import PartitionUnit, read_time_partitions

TYPES = {TableName.parse("o"): {"at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "day": "DATE"}}


def note(expression, zone="Europe/Paris"):
    spec = TableSpec(
        TableName.parse("t"),
        parse_query(f"SELECT {expression} AS ds, count(*) AS n FROM o GROUP BY 1", "t.sql", 1),
        Location("t.sql", 1),
        Freshness(60),
        partitioned_by=("ds",),
        time_partitions=read_time_partitions(PartitionUnit.DAY, "2026-01-01", zone),
    )
    return other_days(spec, TYPES)


@pytest.mark.parametrize("day", ["CAST(at AS DATE)", "to_date(at)", "date(o.at)", "date_format(at, 'yyyy-MM-dd')"])
def test_days_of_utc_in_partitions_of_another_time_zone_are_reported(day):
    found = note(day)

    assert found is not None
    assert "the days of ds are those of UTC, and its partitions are days in Europe/Paris" in found
    assert "at, 'Europe/Paris')" in found


@pytest.mark.parametrize(
    "day",
    [
        "CAST(from_utc_timestamp(at, 'Europe/Paris') AS DATE)",
        "to_date(convert_timezone('UTC', 'Europe/Paris', at))",
        "CAST(local AS DATE)",
        "day",
        "CAST(unknown AS DATE)",
    ],
)
def test_days_that_may_be_those_of_the_time_zone_are_not(day):
    assert note(day) is None


def test_partitions_in_utc_have_the_days_of_utc():
    assert note("CAST(at AS DATE)", "UTC") is None

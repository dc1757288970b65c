"""Whether the days of a table's time partitions are those that its query computes.

Spark computes days in UTC, and takes a DATE for a day in whichever time zone the partitions have.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshline.sql.query_parser import parse_structure
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.spec import TableSpec

# The functions that make a day of a time, and those that put the time into a time zone before.
_DAYS = (exp.TsOrDsToDate, exp.TimeToStr, exp.DateTrunc, exp.TimestampTrunc)
_ZONED = (exp.AtTimeZone, exp.ConvertTimezone, exp.FromTimeZone)
_UTC = frozenset({"UTC", "ETC/UTC", "Z", "ETC/GMT", "GMT"})


def other_days(spec: TableSpec, types: Mapping[TableName, Mapping[str, str]]) -> str | None:
    """A sentence for a table whose partitions are days of one time zone while its query computes those of UTC.

    `types` are those of columns of inputs, in lower case, where they are known. None where nothing speaks for it.
    """
    times, query = spec.time_partitions, spec.query
    if times is None or times.time_zone.upper() in _UTC or not isinstance(query, SqlQuery):
        return None
    try:
        tree = parse_structure(query)
    except SqlglotError:
        return None
    (column,) = spec.partitioned_by
    for item in tree.expressions if isinstance(tree, exp.Select) else ():
        if item.alias_or_name.lower() != column.lower():
            continue
        day = item.unalias()
        read = list(day.find_all(exp.Column))
        if not _makes_day(day) or list(day.find_all(*_ZONED)) or not any(_is_time(each, types) for each in read):
            return None
        zoned = f"from_utc_timestamp({read[0].sql(dialect='spark')}, '{times.time_zone}')"
        return (
            f"{spec.name}: the days of {column} are those of UTC, and its partitions are days in {times.time_zone}. "
            f"Make the day of {zoned}, or leave 'partition.time-zone' out."
        )
    return None


def _makes_day(node: exp.Expr) -> bool:
    return isinstance(node, _DAYS) or (isinstance(node, exp.Cast) and node.to.is_type("date"))


def _is_time(column: exp.Column, types: Mapping[TableName, Mapping[str, str]]) -> bool:
    """Whether a column is known to be an instant; one without a time zone may be local time already."""
    found = {known.get(column.name.lower(), "").upper() for known in types.values()} - {""}
    return bool(found) and found <= {"TIMESTAMP", "TIMESTAMP_LTZ"}

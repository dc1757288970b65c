"""Facts that the log of a Delta table gives without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from freshline.commit.delta_log import (
    classify,
    count_rows,
    greatest_time,
    is_never_null,
    may_have_times,
    read_receipts,
    receipt_at,
)
from freshline.plan.changes import ChangeKind
from freshline.values.names import TableName
from tests.delta_log import newest_of, newest_position

S = TableName.parse("s")
HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


def kind_of(lab, *statements):
    """The class of what the statements did."""
    path = lab.path("s")
    before = newest_position(path)
    for statement in statements:
        lab.sql(statement)
    return classify(S, path, before, newest_position(path), log=False)


@pytest.mark.long
def test_a_range_of_versions_has_the_class_of_the_worst_that_happened(lab):
    lab.source("s", "id INT")

    assert kind_of(lab).kind is ChangeKind.NOTHING
    assert kind_of(lab, "INSERT INTO s VALUES (1), (2)").rows == 2
    assert kind_of(lab, "INSERT INTO s VALUES (3)").kind is ChangeKind.APPEND
    assert kind_of(lab, "OPTIMIZE s").kind is ChangeKind.NOTHING
    assert kind_of(lab, "INSERT INTO s VALUES (4)", "OPTIMIZE s").kind is ChangeKind.APPEND
    assert kind_of(lab, "INSERT INTO s VALUES (5)", "UPDATE s SET id = 6 WHERE id = 5").kind is ChangeKind.MUTATE
    assert kind_of(lab, "DELETE FROM s WHERE id = 99").kind is ChangeKind.NOTHING
    assert kind_of(lab, "INSERT OVERWRITE s VALUES (7)").kind is ChangeKind.REPLACE
    assert kind_of(lab, "DELETE FROM s").kind is ChangeKind.MUTATE
    assert kind_of(lab, "ALTER TABLE s SET TBLPROPERTIES ('a' = 'b')").kind is ChangeKind.NOTHING
    gained = kind_of(lab, "ALTER TABLE s ADD COLUMNS (n INT)", "INSERT INTO s VALUES (8, 1)")
    assert (gained.kind, gained.gained) == (ChangeKind.APPEND, ("n",))
    changed = kind_of(lab, "RESTORE TABLE s TO VERSION AS OF 1")
    assert (changed.kind, changed.detail) == (ChangeKind.SCHEMA_CHANGED, "column n is gone")


@pytest.mark.long
def test_the_newest_receipt_is_found_below_upkeep_and_above_what_others_wrote(lab):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1)")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id FROM s")
    lab.refresh("t")
    path, session = lab.path("t"), lab.runtime.sessions.root
    own = newest_of(path)
    assert (own.version, own.receipt_version, own.foreign) == (1, 1, False)
    session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('a' = 'b')")
    kept = newest_of(path)
    assert (kept.version, kept.receipt_version, kept.foreign, kept.receipt) == (2, 1, False, own.receipt)
    session.sql(f"INSERT INTO delta.`{path}` VALUES (2)")
    foreign = newest_of(path)
    assert (foreign.version, foreign.foreign) == (3, True)
    session.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 2")
    restored = newest_of(path)
    assert (restored.version, restored.foreign, restored.receipt) == (4, False, own.receipt)
    assert receipt_at(path, 0) is None
    assert [version for version, _ in read_receipts(path)] == [1]
    assert count_rows(path) == 1


def test_receipts_are_in_the_history_of_any_reader(lab):
    lab.source("s", "id INT")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id FROM s")
    lab.refresh("t")

    (row,) = lab.runtime.sessions.root.sql(f"DESCRIBE HISTORY delta.`{lab.path('t')}` LIMIT 1").collect()

    receipt = json.loads(row.userMetadata)
    assert (receipt["table"], receipt["seq"], receipt["strategy"], receipt["freshline"]) == ("t", 1, "full", 3)


@pytest.mark.parametrize("statement", ["DELETE FROM s WHERE id = 1", "TRUNCATE TABLE s"])
def test_rows_are_counted_by_statistics(lab, statement):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1), (2)")
    lab.sql("INSERT INTO s VALUES (3)")
    assert count_rows(lab.path("s")) == 3
    assert count_rows(lab.path("s"), 1) == 2
    lab.sql(statement)

    assert count_rows(lab.path("s")) == (2 if "WHERE" in statement else 0)


def test_statistics_of_a_renamed_column_are_not_those_of_another(lab):
    lab.source("s", "early TIMESTAMP, late TIMESTAMP")
    lab.sql("INSERT INTO s VALUES (TIMESTAMP'2020-01-01 00:00:00Z', TIMESTAMP'2030-01-01 00:00:00Z'), (NULL, now())")
    lab.sql("ALTER TABLE s SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    for old, new in (("early", "first"), ("late", "early"), ("first", "late")):
        lab.sql(f"ALTER TABLE s RENAME COLUMN {old} TO {new}")

    path = lab.path("s")
    position = newest_position(path)
    year = 365 * 86_400 * 1_000_000

    # The file goes by the old names: what is `early` now has the values of 2030 there.
    assert may_have_times(path, position, "early", 59 * year, 61 * year)
    assert may_have_times(path, position, "late", 49 * year, 51 * year)
    assert greatest_time(path, position.version, "late") != datetime(2030, 1, 1, tzinfo=UTC)
    assert not is_never_null(path, position.version, "late")


def test_a_column_is_not_taken_for_a_field_by_the_statistics(lab):
    lab.source("s", "id INT, `a.b` INT, a STRUCT<b INT>")
    lab.sql("INSERT INTO s VALUES (1, NULL, struct(1)), (2, 1, struct(1))")
    path = lab.path("s")
    version = newest_position(path).version

    assert is_never_null(path, version, "ID")
    # The statistics of the field, which has none, go by the same name.
    assert not is_never_null(path, version, "a.b")
    assert not is_never_null(path, version, "nowhere")

"""Inputs are read without Delta's planning where their files are known, and the rows are the same."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.delta_log import classify, position_at, receipt_at, table_id
from freshline.compute import inputs
from freshline.compute.inputs import CHANGE_TYPE, Pinned, read_net_images, read_signed
from freshline.plan.changes import ChangeKind
from freshline.values.names import TableName

S = TableName.parse("s")
HOURLY = "FRESHNESS = INTERVAL '1' HOUR"
STATEMENTS = (
    "INSERT INTO s VALUES (1, 'a'), (2, 'it''s'), (3, NULL)",
    "INSERT INTO s VALUES (4, ''), (4, '')",
    "UPDATE s SET name = 'b' WHERE id = 1",
    "OPTIMIZE s",
    "DELETE FROM s WHERE id = 4",
    (
        "MERGE INTO s t USING (SELECT 2 AS id, 'c' AS name UNION ALL SELECT 9, 'n') u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET name = u.name WHEN NOT MATCHED THEN INSERT *"
    ),
    "UPDATE s SET name = name",
    "INSERT OVERWRITE s VALUES (7, 'x')",
    "DELETE FROM s",
    "INSERT INTO s VALUES (8, 'y')",
)


def counted(rows):
    columns = ["id", "name", CHANGE_TYPE]
    return sorted(map(tuple, rows.select(*columns).collect()), key=repr)


@pytest.mark.parametrize("by", ["delta", "delta-rs"])
def test_the_files_of_recorded_changes_have_the_rows_of_the_change_feed(lab, by):
    lab.source("s", "id INT, name STRING")
    path = lab.path("s")
    if by == "delta":
        for statement in STATEMENTS:
            lab.sql(statement)
    else:
        table = DeltaTable(str(path))
        kind = pa.schema([("id", pa.int32()), ("name", pa.string())])
        write_deltalake(table, pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}, schema=kind), mode="append")
        table.update(predicate="id = 1", updates={"name": "'z'"})
        table.delete("id = 3")
        news = pa.table({"id": [2, 5], "name": ["it's", ""]}, schema=kind)
        merge = table.merge(news, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        write_deltalake(table, pa.table({"id": [6], "name": ["q"]}, schema=kind), mode="append")
    spec, spark = lab.runtime.graph.spec(S), lab.runtime.sessions.root
    newest = DeltaTable(str(path)).version()
    served = 0

    for first, last in itertools.combinations(range(newest + 1), 2):
        before, after = (position_at(table_id(path), version, None) for version in (first, last))
        changes = classify(S, path, before, after, log=False)
        if changes.kind not in (ChangeKind.APPEND, ChangeKind.MUTATE) or changes.recorded is None:
            continue
        pinned = Pinned(spec, path, after)
        files = inputs._of_files(spark, pinned, changes.recorded)
        if files is None:
            continue
        served += bool(changes.recorded.changed)
        assert counted(files) == counted(inputs._change_feed(spark, pinned, before)), (first, last)
        assert read_signed(spark, pinned, changes).count() >= read_net_images(spark, pinned, changes).count()

    assert served > 5


def test_a_log_is_read_up_to_its_position_and_without_rows_of_others(lab):
    lab.files("ev", "id STRING")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id FROM ev")
    lab.land("ev", "1.json", [{"id": "a"}])
    lab.refresh("t")
    lab.land("ev", "2.json", [{"id": "b"}])
    lab.refresh("ev")
    path, spark = lab.path("ev"), lab.runtime.sessions.root
    row = spark.read.format("delta").load(str(path)).where("id = 'b'")
    row.selectExpr("'of others' AS id", *[name for name in row.columns if name != "id"]).select(
        *row.columns
    ).write.format("delta").mode("append").save(str(path))
    spark.sql(f"UPDATE delta.`{path}` SET _freshline_seq = NULL WHERE id = 'of others'")

    lab.refresh("t", upstreams=False)

    assert [row["id"] for row in lab.rows("t")] == ["a", "b"]
    assert [row["id"] for row in spark.read.format("delta").load(str(lab.path("t"))).orderBy("id").collect()] == [
        "a",
        "b",
    ]


def test_a_range_of_a_log_is_exact_only_where_all_of_its_batches_are_in_it(lab):
    lab.files("ev", "id STRING")
    positions = []
    for number in (1, 2, 3):
        lab.land("ev", f"{number}.json", [{"id": str(number)}])
        lab.refresh("ev")
        path = lab.path("ev")
        version = DeltaTable(str(path)).version()
        positions.append(position_at(table_id(path), version, receipt_at(path, version)))
    first, second, third = positions
    ev = TableName.parse("ev")

    assert classify(ev, path, first, third, log=True).files_are_exact
    # As a query at a cut reads it: the newest version, up to an earlier batch.
    cut = position_at(third.table_id, third.version, receipt_at(path, second.version))
    assert not classify(ev, path, first, cut, log=True).files_are_exact

"""A few changes are read from their files, without Spark, and are those of the two versions."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.delta_log import classify, position_of
from freshline.compute.few_outgoing import few_changed
from freshline.compute.inputs import Pinned
from freshline.compute.materialize import FEW_ROWS
from freshline.compute.outgoing import in_memory
from freshline.query.rules.algebra import SIGN
from tests.sinks.delivering import declared_sink

SCHEMA = pa.schema([("id", pa.int32()), ("note", pa.string()), ("ratio", pa.float64())])
POSTGRES = "'connector' = 'jdbc', 'url' = '${env:SHOP}', 'table' = 'orders'"
CHANGES_TOPIC = "'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'x:1', 'mode' = 'changes'"


class Stored:
    """A Delta table that records its changes, and the sink that sends them."""

    def __init__(self, folder, rows, *, options=POSTGRES, key="id", **written):
        self.path = folder / "big"
        names = ", ".join(f"{field.name} {_sql(field.type)}" for field in rows.schema)
        self.spec = declared_sink(folder, options, names, key)
        write_deltalake(self.path, rows, configuration={"delta.enableChangeDataFeed": "true"}, **written)

    @property
    def version(self):
        return DeltaTable(self.path).version()

    def rows(self, version):
        return {row["id"]: row for row in DeltaTable(self.path, version=version).to_pyarrow_table().to_pylist()}

    def since(self, before):
        pinned = Pinned(self.spec, self.path, position_of(self.path, self.version))
        changes = classify(self.spec.name, self.path, position_of(self.path, before), pinned.position, log=False)
        return few_changed(self.spec, pinned, changes)


def _sql(kind):
    if pa.types.is_list(kind):
        return f"ARRAY<{_sql(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    names = {"int32": "INT", "string": "STRING", "double": "DOUBLE", "bool": "BOOLEAN", "binary": "BINARY"}
    return {**names, "date32[day]": "DATE"}.get(str(kind), "TIMESTAMP")


def table(*rows, schema=SCHEMA):
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def sent(found):
    """The rows that came, and the keys that went, of what is sent."""
    outgoing = in_memory(found, (), lambda: None)
    came = [row for batch in outgoing.read_upserts() for row in batch.to_pylist()]
    gone = [row["id"] for batch in outgoing.read_deletes() for row in batch.to_pylist()]
    assert (outgoing.upserts, outgoing.deletes) == (len(came), len(gone))
    assert len({row["id"] for row in came} | set(gone)) == len(came) + len(gone)
    return {row["id"]: row for row in came}, set(gone)


def expected(was, now):
    return {key: row for key, row in now.items() if was.get(key) != row}, was.keys() - now.keys()


def test_the_difference_of_two_versions_is_sent_and_nothing_between(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 1.0), (2, "b", None), (3, None, 3.0), (4, "d", 4.0)))
    delta = DeltaTable(stored.path)
    delta.update(new_values={"note": "x"}, predicate="id = 1")
    delta.update(new_values={"note": "y"}, predicate="id IN (1, 2)")
    delta.update(new_values={"note": "b"}, predicate="id = 2")
    delta.delete("id IN (3, 4)")
    write_deltalake(stored.path, table((4, "again", 4.0), (5, "", -0.0)), mode="append")
    came, gone = sent(stored.since(0))
    assert came == {
        1: {"id": 1, "note": "y", "ratio": 1.0},
        4: {"id": 4, "note": "again", "ratio": 4.0},
        5: {"id": 5, "note": "", "ratio": -0.0},
    }
    assert gone == {3}


@pytest.mark.parametrize("seed", range(20))
def test_random_versions(tmp_path, seed):
    at = random.Random(seed)
    stored = Stored(tmp_path, table(*[(key, at.choice("ab"), float(key % 3)) for key in range(30)]))
    for _ in range(at.randint(1, 6)):
        delta, kind = DeltaTable(stored.path), at.randint(0, 2)
        keys = ", ".join(str(at.randint(0, 40)) for _ in range(8))
        if kind == 0:
            delta.update(new_values={"note": at.choice("abc")}, predicate=f"id IN ({keys})")
        elif kind == 1:
            delta.delete(f"id IN ({keys})")
        else:
            free = [key for key in range(45) if key not in stored.rows(stored.version)]
            some = at.sample(free, min(len(free), 4))
            write_deltalake(stored.path, table(*[(key, "new", float(at.randint(0, 3))) for key in some]), mode="append")
    found = stored.since(0)
    wanted = expected(stored.rows(0), stored.rows(stored.version))
    assert wanted == ({}, set()) if found is None else sent(found) == wanted


def test_values_of_all_types_that_are_read_here_stay_as_they_are(tmp_path):
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("amount", pa.decimal128(12, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("data", pa.binary()),
            ("is_new", pa.bool_()),
            ("ratio", pa.float64()),
        ]
    )
    row = (1, Decimal("12.50"), date(1600, 1, 1), datetime(2400, 1, 1, 1, 2, 3, 4, UTC), b"\xff\x00", True, -0.0)
    stored = Stored(tmp_path, table(row, (2, None, None, None, None, None, None), schema=schema))
    DeltaTable(stored.path).update(updates={"is_new": "false"}, predicate="id = 1")
    (batch,) = in_memory(stored.since(0), (), lambda: None).read_upserts()
    assert batch.schema == schema
    assert str(batch.to_pylist()[0]["ratio"]) == "-0.0"
    assert tuple(batch.to_pylist()[0].values()) == (*row[:5], False, row[6])


def test_a_zero_that_gets_a_sign_is_a_change_and_what_is_not_a_number_stays_so(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 0.0), (2, "b", float("nan"))))
    delta = DeltaTable(stored.path)
    delta.delete("id = 1")
    write_deltalake(stored.path, table((1, "a", -0.0)), mode="append")
    delta = DeltaTable(stored.path)
    delta.update(new_values={"note": "c"}, predicate="id = 2")
    delta.update(new_values={"note": "b"}, predicate="id = 2")
    came, gone = sent(stored.since(0))
    assert ({key: str(row["ratio"]) for key, row in came.items()}, gone) == ({1: "-0.0"}, set())


def test_a_sink_that_needs_them_has_the_rows_before(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 1.0), (2, "b", 2.0)), options=CHANGES_TOPIC)
    delta = DeltaTable(stored.path)
    delta.update(new_values={"note": "x"}, predicate="id = 1")
    delta.delete("id = 2")
    write_deltalake(stored.path, table((3, "c", 3.0)), mode="append")
    (found,) = in_memory(stored.since(0), (), lambda: None).read_changes()
    befores, afters = found.before.to_pylist(), found.after.to_pylist()
    seen = {
        row["id"]: (before["note"] if had else None, row["note"] if has else None)
        for before, row, had, has in zip(befores, afters, found.had.to_pylist(), found.has.to_pylist(), strict=True)
    }
    assert seen == {1: ("a", "x"), 2: ("b", None), 3: (None, "c")}


def test_rows_that_were_only_added_are_read_from_the_files_of_the_table(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 1.0)))
    write_deltalake(stored.path, table((2, "b", 2.0)), mode="append")
    write_deltalake(stored.path, table((3, "c", 3.0)), mode="append")
    assert sent(stored.since(0)) == expected(stored.rows(0), stored.rows(2))


def test_spark_reads_whatever_is_not_surely_read_here(tmp_path):
    def changed(name, rows, **more):
        (tmp_path / name).mkdir()
        stored = Stored(tmp_path / name, rows, **more)
        DeltaTable(stored.path).update(updates={"id": "id + 1000000"}, predicate="id >= 0")
        return stored.since(0)

    few = table((1, "a", 1.0))
    assert changed("plain", few) is not None
    nested = pa.schema([("id", pa.int32()), ("tags", pa.list_(pa.string()))])
    assert changed("nested", table((1, ["a"]), schema=nested)) is None
    assert changed("fraction as key", few, key="ratio") is None
    assert changed("partitions", few, partition_by=["note"]) is None
    assert changed("many", table(*[(key, "a", 1.0) for key in range(FEW_ROWS + 1)])) is None


def test_a_file_that_is_gone_is_left_to_spark_which_says_so(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 1.0)))
    DeltaTable(stored.path).update(new_values={"note": "b"}, predicate="id = 1")
    for file in (stored.path / "_change_data").glob("*.parquet"):
        file.unlink()
    assert stored.since(0) is None


def test_a_key_that_is_there_twice_is_left_to_spark(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 1.0)))
    delta = DeltaTable(stored.path)
    delta.update(new_values={"note": "b"}, predicate="id = 1")
    write_deltalake(stored.path, table((1, "c", 1.0)), mode="append")
    assert stored.since(0) is None


def test_the_sign_is_of_the_type_that_spark_gives_it(tmp_path):
    stored = Stored(tmp_path, table((1, "a", 1.0)))
    DeltaTable(stored.path).delete("id = 1")
    assert stored.since(0).schema.field(SIGN).type == pa.int32()

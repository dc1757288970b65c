"""Reading tables without Spark: modes, changes and consumers; what is gone is an error with a sentence."""

from __future__ import annotations

import json
import string
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake

from freshline.commit.delta_log import count_rows, table_id
from freshline.commit.savepoints import keep_savepoint
from freshline.commit.warehouse import Warehouse
from freshline.engine.reading import consumers, drop_consumer, open_reader, read_changes, read_rows, register_consumer
from freshline.errors import ConsumerError, ConsumerExpiredError, ReadError, RequestError
from freshline.plan.savepoint import SavedTable, SavedVersion, Savepoint
from freshline.reads import rows as reading
from freshline.reads.rows import net_changes
from freshline.report.samples import Mask, read_sample
from freshline.values.names import TableName
from freshline.values.receipt import Receipt

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def rows(*pairs):
    ids, texts = zip(*pairs, strict=True)
    return pa.table({"id": pa.array(ids, pa.int32()), "a": list(texts), "_freshline_seq": pa.array(ids, pa.int64())})


@pytest.fixture
def project(settings):
    """A declared table `t` whose versions are: 0 empty, 1 and 2 insert, 3 updates, 4 deletes."""
    settings.declarations.mkdir(parents=True)
    (settings.declarations / "s.sql").write_text(
        "CREATE SOURCE s (id INT, a STRING) WITH ('connector' = 'delta', 'path' = 'elsewhere')"
    )
    (settings.declarations / "t.sql").write_text("CREATE MATERIALIZED TABLE t AS SELECT id, a FROM s")
    path = str(settings.warehouse / "t")
    schema = rows((1, "x")).schema
    DeltaTable.create(path, schema, configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(path, rows((1, "one"), (2, "two")), mode="append")
    write_deltalake(path, rows((3, "three")), mode="append")
    DeltaTable(path).update(updates={"a": "'TWO'"}, predicate="id = 2")
    DeltaTable(path).delete("id = 1")
    return settings


def read(table):
    """Rows that are not left to Spark."""
    assert table is not None
    return table


def sample(path):
    """Rows for a person to read."""
    found = read_sample(path, 5, Mask())
    assert found is not None
    return found.rows


def ids(table):
    return sorted(table["id"].to_pylist())


def test_rows_of_the_newest_version_and_of_earlier_ones(project):
    assert read_rows("t", project=project).column_names == ["id", "a"]
    assert ids(read_rows("t", project=project)) == [2, 3]
    assert ids(read_rows("T", as_of=2, project=project)) == [1, 2, 3]
    assert ids(read_rows("t", as_of=datetime.now(UTC), columns=["id"], project=project)) == [2, 3]
    path = project.warehouse / "t"
    saved = SavedTable(TableName(None, "t"), SavedVersion(table_id(path), 1, None))
    keep_savepoint(Warehouse(project.warehouse), Savepoint("early", NOW, (saved,)))
    assert ids(read_rows("t", as_of="early", project=project)) == [1, 2]


def test_changes_between_versions_raw_and_netted(project):
    raw = read_changes("t", 0, project=project)
    assert raw["_commit_version"].to_pylist() == [1, 1, 2, 3, 3, 4]
    assert sorted(raw["_change_type"].to_pylist()) == [
        "delete", "insert", "insert", "insert", "update_postimage", "update_preimage",
    ]  # fmt: skip
    assert [column for column in raw.column_names if column.startswith("_freshline")] == []

    net = read_changes("t", 0, net=True, project=project)

    assert sorted(map(str, net.to_pylist())) == [
        "{'id': 2, 'a': 'TWO', '_change_type': 'insert'}",
        "{'id': 3, 'a': 'three', '_change_type': 'insert'}",
    ]
    assert sorted(map(str, read_changes("t", 2, 4, net=True, project=project).to_pylist())) == [
        "{'id': 1, 'a': 'one', '_change_type': 'delete'}",
        "{'id': 2, 'a': 'TWO', '_change_type': 'insert'}",
        "{'id': 2, 'a': 'two', '_change_type': 'delete'}",
    ]
    assert read_changes("t", 4, project=project).num_rows == 0


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("mode", "more", "portions"),
    [
        ("latest-full", {}, [(None, 4)]),
        ("latest", {}, []),
        ("as-of", {"version": 2}, [(None, 2)]),
        ("from-version", {"version": 3}, [(2, 4)]),
        ("from-version-full", {"version": 2}, [(None, 2), (2, 4)]),
        ("incremental-between", {"version": 1, "to": 3}, [(1, 3)]),
        ("from-timestamp", {"timestamp": NOW}, [(-1, 4)]),
        ("from-timestamp", {"timestamp": datetime(2100, 1, 1, tzinfo=UTC)}, []),
    ],
)
def test_every_mode_begins_where_its_name_says(project, mode, more, portions):
    reader = open_reader("t", mode, project=project, **more)

    assert [(portion.after, portion.to) for portion in reader] == portions
    write_deltalake(str(project.warehouse / "t"), rows((4, "four")), mode="append")
    goes_on = mode not in ("as-of", "incremental-between")
    assert [(portion.after, portion.to) for portion in reader] == ([(4, 5)] if goes_on else [])


def test_a_consumer_goes_on_behind_what_it_committed(project):
    clock = [NOW]

    def reader():
        return open_reader("t", consumer_id="c", expires_after="1 day", project=project, clock=lambda: clock[0])

    assert [(p.after, p.to) for p in reader()] == [(None, 4)]
    # Nothing was committed: it begins with the rows again.
    first = reader()
    assert ids(first.next().data) == [2, 3]
    first.commit()
    write_deltalake(str(project.warehouse / "t"), rows((4, "four")), mode="append")
    second = reader()
    assert (second.next().after, second.position) == (4, 5)
    assert [(p.after, p.to) for p in reader()] == [(4, 5)]
    second.commit()
    assert list(reader()) == []
    assert [(c.name, c.version) for c in consumers(project=project)] == [("c", 5)]

    clock[0] += timedelta(days=1)
    for act in (reader, second.commit):
        with pytest.raises(ConsumerExpiredError, match="did not come since 2026-11-01"):
            act()
    drop_consumer("c", project=project)
    with pytest.raises(ConsumerError, match=r"no consumer c\. There are: none"):
        drop_consumer("c", project=project)
    with pytest.raises(ConsumerError, match="was dropped"):
        second.commit()


def test_a_consumer_of_a_commit_that_was_lost_is_refused_and_reads_nothing(project):
    reader = open_reader("t", consumer_id="c", project=project)
    assert reader.next() is not None
    reader.commit()
    path = project.warehouse / "t"
    (path / "_delta_log" / f"{4:020d}.json").unlink()
    write_deltalake(str(path), rows((7, "seven")), mode="append")
    assert DeltaTable(path).version() == 4

    with pytest.raises(ConsumerError, match="another commit has this number now"):
        open_reader("t", consumer_id="c", project=project)


def test_rows_at_a_savepoint_of_a_commit_that_was_lost_are_those_of_no_other_one(project):
    path = project.warehouse / "t"

    def write(number, epoch):
        receipt = Receipt(
            table=TableName.parse("t"), fingerprint="f", epoch=epoch, seq=5, mode="batch", strategy="append",
            reason="new rows", data_timestamp=NOW, positions={}, rows_in=1, rows_out=1, attempt="a",
        )  # fmt: skip
        properties = CommitProperties(custom_metadata={"userMetadata": receipt.to_json()})
        write_deltalake(str(path), rows((number, "x")), mode="append", commit_properties=properties)
        return receipt

    saved = SavedVersion(str(DeltaTable(path).metadata().id), 5, write(5, 1))
    name = TableName.parse("t")
    assert keep_savepoint(Warehouse(project.warehouse), Savepoint("calm", NOW, (SavedTable(name, saved),)))
    assert ids(read_rows("t", as_of="calm", project=project)) == [2, 3, 5]

    (path / "_delta_log" / f"{5:020d}.json").unlink()
    write(6, 2)
    with pytest.raises(ReadError, match="another one has its number now"):
        read_rows("t", as_of="calm", project=project)


@pytest.mark.parametrize("name", ["rows_at", "changes_at"])
def test_a_read_that_failed_is_tried_again_from_the_same_place(project, monkeypatch, name):
    reader = open_reader("t", consumer_id="c", project=project)
    if name == "changes_at":
        reader.next()
        write_deltalake(str(project.warehouse / "t"), rows((4, "four")), mode="append")
    place = reader.position
    with monkeypatch.context() as patch:
        patch.setattr(f"freshline.engine.reading.{name}", _fail)
        with pytest.raises(OSError, match="too many open files"):
            reader.next()
        assert reader.position == place

    portion = reader.next()
    assert portion is not None
    assert ids(portion.data) == ([2, 3] if name == "rows_at" else [4])


def _fail(*arguments):
    raise OSError("too many open files")


def test_a_version_or_name_that_is_not_there_is_reported(project):
    log = project.warehouse / "t" / "_delta_log"
    for act, said in (
        (lambda: read_rows("t", as_of=datetime(2020, 1, 1, tzinfo=UTC), project=project), "before the oldest version"),
        (lambda: read_rows("t", as_of=9, project=project), "no version 9; the newest is 4"),
        (lambda: read_rows("t", as_of="never", project=project), "no savepoint never"),
        (lambda: read_changes("t", 3, 2, project=project), "3 to 2 is no range"),
        (lambda: open_reader("t", "newest", project=project), "no mode 'newest'. There are latest-full"),
        (lambda: open_reader("t", "as-of", project=project), "needs a version"),
        (lambda: read_rows("s", project=project), "no version yet"),
    ):
        with pytest.raises(ReadError, match=said):
            act()
    with pytest.raises(RequestError, match="no table or source tt. Did you mean t"):
        read_rows("tt", project=project)
    register_consumer("c", "t", version=1, project=project)
    with pytest.raises(ConsumerError, match="already"):
        register_consumer("C", "t", project=project)
    with pytest.raises(ConsumerError, match="is no name"):
        register_consumer("../c", "t", project=project)
    DeltaTable(str(project.warehouse / "t")).create_checkpoint()
    for version in (0, 1, 2):
        (log / f"{version:020d}.json").unlink()
    with pytest.raises(ReadError, match=r"versions 2 to 2 are no longer in the log"):
        open_reader("t", consumer_id="c", project=project)
    with pytest.raises(ReadError, match="version 3 is no longer in the log; the oldest is 4"):
        read_rows("t", as_of=3, project=project)
    with pytest.raises(ReadError):
        register_consumer("d", "t", version=1, project=project)
    assert [consumer.name for consumer in consumers(project=project)] == ["c"]


def test_changes_of_partitions_whatever_their_names(project):
    path = str(project.warehouse / "t")
    names = ["a b", "a:b", "ü%", "x/y", "o'k", None, "%20"]
    stored = pa.table({"id": list(range(7)), "a": names}, pa.schema([("id", pa.int32()), ("a", pa.string())]))
    write_deltalake(path, stored, mode="overwrite", schema_mode="overwrite", partition_by=["a"])
    before = DeltaTable(path).version()
    DeltaTable(path).delete("id = 2")
    DeltaTable(path).restore(before)

    raw = read_changes("t", before, project=project)

    assert raw.select(["id", "a", "_change_type"]).to_pylist()[:2] == [
        {"id": 2, "a": "ü%", "_change_type": "delete"},
        {"id": 2, "a": "ü%", "_change_type": "insert"},
    ]
    assert net_changes(raw).num_rows == 0
    inserted = read_changes("t", before - 1, before, project=project).filter(pc.field("_change_type") == "insert")
    assert sorted(map(str, inserted["a"].to_pylist())) == sorted(map(str, names))


def commit(path, version, *actions):
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def metadata(table, *, partitioned_by=(), mapped=(), **configuration):
    schema = json.loads(Schema.from_arrow(table.schema).to_json())
    for number, field in enumerate(schema["fields"] if mapped else (), 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": mapped[number - 1]}
    return {
        "metaData": {
            "id": "8f1f2c1e-0000-4000-8000-000000000000",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": list(partitioned_by),
            "configuration": configuration,
            "createdTime": 0,
        }
    }


def added(path, table, name="f.parquet", **partition):
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / name)
    facts = {"path": name, "partitionValues": partition, "size": (path / name).stat().st_size}
    return {"add": {**facts, "modificationTime": 0, "dataChange": True}}


def protocol(*features, reader=3):
    listed = {"readerFeatures": list(features), "writerFeatures": list(features)} if reader == 3 else {}
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": 7 if reader == 3 else 5, **listed}}


def vector(*deleted):
    """A deletion vector inside the log: a bitmap of rows below 65,536, in Z85."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + struct.pack(f"<{len(deleted)}H", *deleted)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    data += b"\0" * (-len(data) % 4)
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(data) // 4}I", data)
    text = "".join(digits[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(deleted)}


def with_vector(action, *deleted, rows):
    """The action on a file, with rows of it marked as deleted."""
    ((kind, facts),) = action.items()
    stats = json.dumps({"numRecords": rows})
    return {kind: {**facts, "stats": stats, "deletionVector": vector(*deleted)}}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_that_have_other_names_in_the_files_are_not_read_as_null(project, mode):
    """By name they are read here; those that are found by numbers are left to Spark."""
    path = project.warehouse / "mapped"
    of = rows((1, "x")).drop_columns(["_freshline_seq"])
    commit(
        path,
        0,
        protocol(reader=2),
        metadata(of, mapped=["col-1", "col-2"], **{"delta.columnMapping.mode": mode}),
        added(path, of.rename_columns(["col-1", "col-2"])),
    )
    found = reading.read_rows(path, "m", 0), reading.read_changes(path, "m", -1, 0)

    if mode == "id":
        assert found == (None, None)
        return
    assert read(found[0]).to_pylist() == [{"id": 1, "a": "x"}]
    assert read(found[1]).select(["id", "a", "_change_type"]).to_pylist() == [
        {"id": 1, "a": "x", "_change_type": "insert"}
    ]


def test_a_column_that_was_dropped_is_not_read_for_the_new_one_of_its_name(project):
    """The file has it under the name that the new one has in the table."""
    path = project.warehouse / "again"
    of = rows((1, "x")).drop_columns(["_freshline_seq"])
    names = {"delta.columnMapping.mode": "name"}
    add = added(path, of.append_column("b", [["dropped"]]).rename_columns(["col-1", "a", "b"]))
    commit(path, 0, protocol(reader=2), metadata(of, mapped=["col-1", "col-2"], **names), add)

    assert read(reading.read_rows(path, "m", 0)).to_pylist() == [{"id": 1, "a": None}]
    assert sample(path) == (("1", None),)


def test_rows_that_a_deletion_vector_marks_are_not_read(project):
    path = project.warehouse / "marked"
    of = rows((1, "a"), (2, "b"), (3, "c")).drop_columns(["_freshline_seq"])
    add = added(path, of)
    add["add"]["stats"] = json.dumps({"numRecords": 3})
    removed = {"remove": {"path": "f.parquet", "dataChange": True, "deletionTimestamp": 0}}
    said = {"commitInfo": {"timestamp": 0}}
    commit(path, 0, protocol("deletionVectors"), metadata(of), add)
    commit(path, 1, said, removed, with_vector(add, 1, rows=3))
    commit(path, 2, said, with_vector(removed, 1, rows=3), with_vector(add, 0, 1, rows=3))
    commit(path, 3, said, with_vector(removed, 0, 1, rows=3), with_vector(add, 2, rows=3))

    assert [ids(read(reading.read_rows(path, "t", version))) for version in range(4)] == [
        [1, 2, 3],
        [1, 3],
        [3],
        [1, 2],
    ]
    assert [count_rows(path, version) for version in range(4)] == [3, 2, 1, 2]
    assert [row[0] for row in sample(path)] == ["1", "2"]
    changes = read(reading.read_changes(path, "t", 0, 3))
    assert [(row["id"], row["_change_type"], row["_commit_version"]) for row in changes.to_pylist()] == [
        (2, "delete", 1),
        (1, "delete", 2),
        (3, "delete", 3),
        (1, "insert", 3),
        (2, "insert", 3),
    ]
    assert net_changes(changes).select(["id", "_change_type"]).to_pylist() == [{"id": 3, "_change_type": "delete"}]


@pytest.mark.parametrize("features", [("typeWidening",), ("v2Checkpoint",), ("vacuumProtocolCheck", "typeWidening")])
def test_files_with_narrower_types_and_tables_with_other_logs_are_read(project, features):
    path = project.warehouse / "wide"
    inner = pa.struct([("p", pa.int64()), ("q", pa.string())])
    of = pa.table({"id": pa.array([1], pa.int64()), "s": pa.array([{"p": 5, "q": None}], inner)})
    narrow = pa.table({"id": pa.array([1], pa.int32()), "s": pa.array([{"p": 5}], pa.struct([("p", pa.int16())]))})
    commit(path, 0, protocol(*features), metadata(of), added(path, narrow))

    assert read(reading.read_rows(path, "t", 0)).equals(of)
    assert read(reading.read_changes(path, "t", -1, 0)).select(["id", "s"]).to_pylist() == of.to_pylist()
    assert sample(path) == (("1", '{"p": 5, "q": null}'),)


def test_deletion_vectors_beside_wider_types_are_left_to_spark(project):
    """delta-rs does not say which rows they mark."""
    path = project.warehouse / "odd"
    of = rows((1, "x")).drop_columns(["_freshline_seq"])
    add = added(path, of)
    commit(path, 0, protocol("deletionVectors", "typeWidening"), metadata(of), add)
    commit(path, 1, {"commitInfo": {"timestamp": 0}}, with_vector(add, 0, rows=1))

    assert (reading.read_rows(path, "t", 1), count_rows(path, 1)) == (None, None)
    assert read(reading.read_changes(path, "t", -1, 0)).num_rows == 1
    assert reading.read_changes(path, "t", 0, 1) is None


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (False, pa.bool_(), "false"),
        (0, pa.int32(), "0"),
        (None, pa.int32(), None),
        (date(2026, 1, 2), pa.date32(), "2026-01-02"),
        (Decimal("1.50"), pa.decimal128(9, 2), "1.50"),
        (datetime(2026, 1, 2, tzinfo=UTC), pa.timestamp("us", "UTC"), "2026-01-02T00:00:00.000000Z"),
    ],
)
def test_values_of_partitions_are_read_beside_deletion_vectors(project, value, kind, text):
    path = project.warehouse / "parts"
    of = pa.table({"id": pa.array([1, 2], pa.int32()), "p": pa.array([value, value], kind)})
    add = added(path, of.select(["id"]), p=text)
    commit(path, 0, protocol("deletionVectors"), metadata(of, partitioned_by=["p"]), with_vector(add, 0, rows=2))

    assert read(reading.read_rows(path, "t", 0)).to_pylist() == [{"id": 2, "p": value}]
    assert read(reading.read_changes(path, "t", -1, 0)).select(["id", "p"]).to_pylist() == [{"id": 2, "p": value}]


@pytest.mark.parametrize("text", ["2026-11-01T10:20:30.123456Z", "2026-11-01 10:20:30.123456"])
def test_changes_of_partitions_by_time_whoever_wrote_them(project, text):
    path = project.warehouse / "timed"
    at = datetime(2026, 11, 1, 10, 20, 30, 123456, UTC)
    of = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([at], pa.timestamp("us", "UTC"))})
    commit(
        path,
        0,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata(of, partitioned_by=["at"]),
        added(path, of.select(["id"]), at=text),
    )
    commit(path, 1, {"commitInfo": {"timestamp": 0}}, added(path, of.select(["id"]), "g.parquet", at=text))

    assert read(reading.read_changes(path, "t", 0, 1))["at"].to_pylist() == [at]
    assert read(reading.read_rows(path, "t", 1))["at"].to_pylist() == [at, at]


def test_a_date_that_python_cannot_represent_is_an_error_that_says_so(project):
    path = project.warehouse / "far"
    DeltaTable.create(str(path), pa.schema([("d", pa.date32())]))
    write_deltalake(str(path), pa.table({"d": pa.array([3_000_000], pa.int32()).cast(pa.date32())}), mode="append")

    with pytest.raises(ReadError, match="a date that Python cannot hold"):
        reading.read_rows(path, "far", 1)


def test_times_that_spark_wrote_in_its_old_form_are_read_in_every_year(project):
    path = project.warehouse / "old"
    at = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    of = pa.table({"id": pa.array([1], pa.int32()), "at": pa.array([at], pa.timestamp("us", "UTC"))})
    commit(path, 0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata(of))
    add = added(path, of)
    pq.write_table(of, path / "f.parquet", use_deprecated_int96_timestamps=True)
    add["add"]["size"] = (path / "f.parquet").stat().st_size
    commit(path, 1, {"commitInfo": {"timestamp": 0}}, add)

    assert read(reading.read_changes(path, "old", 0, 1))["at"].to_pylist() == [at]
    assert read(reading.read_rows(path, "old", 1))["at"].to_pylist() == [at]

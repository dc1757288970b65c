"""Each format of files, on Spark and Delta: rows as they were written, poison inside, redelivery, restarts."""

from __future__ import annotations

import bz2
import gzip
import json
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from freshline.sources.files import contained
from freshline.sources.files import reader as files_reader
from freshline.sources.formats import avro_files, parquet_files
from tests.crashes import crash
from tests.lanes import few_or_many, long_but
from tests.typed_rows import (
    TYPES,
    avro_file,
    avro_record,
    avro_rows,
    avro_schema,
    orc_file,
    parquet_file,
    random_rows,
)

POINTS = ("log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-after-commit")
ROWS_XML = '<?xml version="1.0"?>\n<rows>\n{}</rows>\n'


def rejected(lab, name):
    return sorted((row["file"], row["line"], row["error"]) for row in lab.quarantine(name))


def without_maps(rows):
    """Rows as a Lab gives them: maps are dictionaries."""
    return [{name: dict(v) if name == "p" and v is not None else v for name, v in row.items()} for row in rows]


@pytest.fixture
def in_tasks(monkeypatch):
    """Even small files are read in tasks of Spark, in several parts."""
    monkeypatch.setattr(files_reader, "SMALL_BYTES", 0)
    monkeypatch.setattr(files_reader, "LEAST_TASK_BYTES", 1)
    for module in (parquet_files, avro_files):
        monkeypatch.setattr(module, "PART_BYTES", 1)


@pytest.mark.parametrize("seed", few_or_many(1, 8))
@pytest.mark.parametrize("name", long_but(["parquet"], ["parquet", "avro", "orc"]))
def test_random_rows_of_all_types_arrive_as_they_were_written(lab, request, name, seed):
    chance = Random(f"{name} {seed}")
    # Arrow writes no time of ORC that nanoseconds do not reach, nor reads one.
    types = {key: both for key, both in TYPES.items() if name != "orc" or key not in ("m", "n", "q")}
    kinds = {"id": pa.int64(), **{key: kind for key, (kind, _) in types.items()}}
    lab.files(
        "s", ", ".join(["id BIGINT", *(f"{key} {declared}" for key, (_, declared) in types.items())]), format=name
    )
    if name != "orc" or chance.random() < 0.5:
        request.getfixturevalue("in_tasks")
    rows = [{**row, "id": number} for number, row in enumerate(random_rows(chance, kinds, 300))]
    files = [rows[:200], rows[200:], []]
    for number, part in enumerate(files):
        table = pa.Table.from_pylist(part, pa.schema(list(kinds.items())))
        data = {
            "parquet": lambda table=table: parquet_file(table, row_group_size=37),
            "orc": lambda table=table: orc_file(table),
            "avro": lambda part=part: avro_file(
                avro_schema(kinds), avro_rows(part, kinds), "deflate", sync_interval=99
            ),
        }[name]()
        lab.land("s", f"{number}.{name}", data)
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 300, 0)
    assert sorted(lab.rows("s"), key=lambda row: row["id"]) == without_maps(rows)
    assert lab.refresh("s").strategy == "noop"


def test_poison_goes_to_quarantine_and_the_rest_goes_on(lab):
    table = pa.table({"id": pa.array([1, 2**40, 3], pa.int64()), "t": ["a", "b", "c" * 2_000]})
    damaged = parquet_file(table)
    lab.files("p", "id INT, t STRING", format="parquet", max_record_bytes="1000")
    for file, content in {
        "1.parquet": parquet_file(table), "2.parquet": damaged[:-9], "3.parquet": b'{"id": 1}\n', "4.parquet": b"",
        "5.parquet/part.parquet": parquet_file(table.slice(0, 1)), "6.json": parquet_file(table.slice(0, 1)),
    }.items():  # fmt: skip
        lab.land("p", file, content)
    outcome = lab.refresh("p")

    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 3, 5)
    assert lab.rows("p") == [{"id": 1, "t": "a"}] * 3
    assert rejected(lab, "p") == [
        ("1.parquet", 2, "VALUE_CHANGED(id)"), ("1.parquet", 3, "TOO_LARGE"), ("2.parquet", None, "UNREADABLE"),
        ("3.parquet", None, "NOT_PARQUET"), ("4.parquet", None, "EMPTY_FILE"),
    ]  # fmt: skip
    found = {row["error"]: row for row in lab.quarantine("p")}
    assert json.loads(found["VALUE_CHANGED(id)"]["raw"]) == {"id": 2**40, "t": "b"}
    assert found["NOT_PARQUET"]["message"] == "the file is no Parquet file: it does not begin with PAR1"
    assert found["NOT_PARQUET"]["raw"] == b""
    assert lab.refresh("p").strategy == "noop"


def test_poison_of_the_other_formats(lab):
    lab.files("o", "id INT", format="orc")
    lab.land("o", "1.orc", orc_file(pa.table({"id": pa.array([1, 2**40], pa.int64())})))
    lab.land("o", "2.orc", orc_file(pa.table({"id": [1]}))[:-3])
    lab.land("o", "3.orc", b"PAR1")
    lab.files("a", "id INT", format="avro")
    good = avro_file(avro_record(id="int"), [{"id": 1}])
    # The one record of the second file is a number without an end.
    lab.land("a", "1.avro", good)
    lab.land("a", "2.avro", good.replace(b"\x02\x02\x02", b"\x02\x02\x82"))
    lab.land("a", "3.avro", good[:-1])
    lab.land("a", "4.avro", b"no Avro")
    lab.files("x", "id INT, t STRING, n ARRAY<INT>", format="xml", row_tag="row")
    elements = (
        '<row id="1"><t>a &amp; b</t><n>1</n><n>2</n></row>\n<row><id>x</id></row><row><id>9999999999</id></row>\n'
    )
    lab.land("x", "1.xml", ROWS_XML.format(elements + "<row><id>2</row>\n"))
    lab.land("x", "2.xml", ROWS_XML.format("<row/>")[:-9])
    lab.land("x", "3.xml", "nothing of the kind")
    lab.files("c", "id INT, t STRING", format="csv", multi_line="true")
    lab.land("c", "1.csv", 'id,t,more\n1,"a\r\n\nb ""c""",\nx,y,z\n2,z\n')
    lab.land("c", "2.csv", 'id,t\n1,a\n2,"b\n')
    lab.land("c", "3.csv", "id\n1\n")
    lab.files("t", "line STRING", format="text", max_record_bytes="10")
    lab.land("t", "1.txt", b"a\n\n\xff\nb, c\r\n12345678901\nd")
    for name in "oaxct":
        assert lab.refresh(name).error is None

    assert (lab.rows("o"), lab.rows("a")) == ([{"id": 1}], [{"id": 1}])
    assert rejected(lab, "o") == [
        ("1.orc", 2, "VALUE_CHANGED(id)"),
        ("2.orc", None, "UNREADABLE"),
        ("3.orc", None, "NOT_ORC"),
    ]
    assert rejected(lab, "a") == [
        ("2.avro", 1, "NOT_AVRO"),
        ("3.avro", None, "UNREADABLE"),
        ("4.avro", None, "NOT_AVRO"),
    ]
    assert lab.rows("x") == [{"id": 1, "t": "a & b", "n": [1, 2]}]
    assert rejected(lab, "x") == [
        ("1.xml", 4, "NOT_XML"), ("1.xml", 4, "NOT_XML"), ("1.xml", 5, "NOT_XML"), ("2.xml", None, "UNREADABLE"),
        ("3.xml", None, "NOT_XML"),
    ]  # fmt: skip
    assert b"<row><id>x</id></row>" in [row["raw"] for row in lab.quarantine("x")]
    assert lab.rows("c") == [{"id": 1, "t": 'a\r\n\nb "c"'}]
    assert rejected(lab, "c") == [
        ("1.csv", 5, "NOT_CSV"), ("1.csv", 6, "NOT_CSV"), ("2.csv", None, "UNREADABLE"),
        ("3.csv", 1, "HEADER_MISMATCH"), ("3.csv", 2, "HEADER_MISMATCH"),
    ]  # fmt: skip
    assert [row["line"] for row in lab.rows("t")] == ["", "a", "b, c", "d"]
    assert rejected(lab, "t") == [("1.txt", 3, "NOT_UTF8"), ("1.txt", 5, "TOO_LARGE")]


@pytest.mark.parametrize("points", few_or_many(POINTS[1::2], POINTS))
def test_events_are_recognized_whatever_file_has_them_and_wherever_it_is_stopped(lab, points):
    columns = "id INT, amount DECIMAL(10,2), at TIMESTAMP, CONSTRAINT some EXPECT (amount > 0) ON VIOLATION QUARANTINE"
    lab.files("s", columns, format="avro", primary_key=["id"])
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 1}
    schema = avro_record(id=["null", "int"], amount=amount)

    def land(name, *rows):
        lab.land("s", name, avro_file(schema, [{"id": key, "amount": Decimal(value)} for key, value in rows]))

    land("1.avro", (1, "1.5"), (1, "1.5"), (None, "2.5"), (2, "-1"))
    for point in points:
        crash(lab, point, "s", lose_control_store=True)
    assert lab.refresh("s").strategy == "noop"
    land("2.avro", (1, "1.5"), (1, "1.6"), (3, "3.5"))
    union, _ = lab.union("s")
    outcome = lab.refresh("s")

    assert (outcome.rows_out, outcome.rejected) == (1, 1)
    assert lab.rows("s") == union == [
        {"id": 1, "amount": Decimal("1.50"), "at": None}, {"id": 3, "amount": Decimal("3.50"), "at": None}
    ]  # fmt: skip
    assert {row["error"]: json.loads(row["raw"]) for row in lab.quarantine("s")} == {
        "NULL_KEY": {"id": None, "amount": 2.50, "at": None},
        "CONSTRAINT(some)": {"id": 2, "amount": -1.00, "at": None},
        "KEY_CONFLICT": {"id": 1, "amount": 1.60, "at": None},
    }


def test_names_of_files_are_only_names_in_tasks_too(lab, in_tasks):
    folder = lab.files(
        "s", "id BIGINT, f STRING METADATA FROM 'file', r BIGINT METADATA FROM 'record'", format="parquet"
    )
    names = [
        "a b.parquet",
        "50%20.parquet",
        "10:30.parquet",
        "[x]{y}*?.parquet",
        "ü€.parquet",
        "x.parquet/y=1/p.parquet",
    ]
    for number, name in enumerate(names):
        lab.land("s", name, parquet_file(pa.table({"id": [number, number]}), row_group_size=1))
    (folder / "link.parquet").symlink_to(folder / names[0])
    outcome = lab.refresh("s")

    assert [(problem.where or "").rpartition("/")[2] for problem in outcome.problems] == ["link.parquet"]
    found = sorted((row["f"], row["id"], row["r"]) for row in lab.rows("s"))
    assert found == sorted((name, number, record) for number, name in enumerate(names) for record in (1, 2))


def test_a_file_that_is_replaced_while_it_is_read_commits_nothing(lab, monkeypatch):
    lab.files("s", "id BIGINT", format="parquet")
    path = lab.land("s", "1.parquet", parquet_file(pa.table({"id": [1, 2]})))
    read = contained.read_contained

    def replacing(*args, **options):
        partial = path.with_name(".new")
        partial.write_bytes(parquet_file(pa.table({"id": [3, 4, 5]})))
        partial.replace(path)
        return read(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(files_reader, "read_contained", replacing)
        outcome = lab.refresh("s")
    assert (outcome.state, outcome.error.code) == ("FAILED", "FILES_MISREAD")

    assert lab.refresh("s").error is None
    assert [row["id"] for row in lab.rows("s")] == [3, 4, 5]


def test_a_new_field_is_left_out_and_reported_once(lab):
    lab.files("s", "id BIGINT", format="parquet")
    lab.land("s", "1.parquet", parquet_file(pa.table({"id": [1], "old": [1]})))
    assert lab.refresh("s").problems == ()
    lab.land("s", "2.parquet", parquet_file(pa.table({"id": [2], "old": [1], "new": [{"a": [Decimal("1.5")]}]})))
    (problem,) = lab.refresh("s").problems

    assert problem.code == "UNDECLARED_FIELDS"
    assert "`new` STRUCT<`a`: ARRAY<DECIMAL(2,1)>>" in str(problem)
    assert problem.where.endswith("2.parquet")
    lab.restart(lose_control_store=True)
    lab.land("s", "3.parquet", parquet_file(pa.table({"id": [3], "new": [1]})))
    assert lab.refresh("s").problems == ()
    assert [row["id"] for row in lab.rows("s")] == [1, 2, 3]


def test_packed_files_are_unpacked_where_the_format_has_no_packing_of_its_own(lab):
    lab.files("x", "id INT", format="xml", row_tag="row")
    lab.land("x", "1.xml.gz", gzip.compress(ROWS_XML.format("<row><id>1</id></row>").encode()))
    lab.land("x", "2.xml.gz", gzip.compress(ROWS_XML.format("<row/>").encode())[:-9])
    lab.files("c", "id INT, t STRING", format="csv", multi_line="true")
    lab.land("c", "1.csv.zst", pa.compress(b'id,t\n1,"a\nb"\n', "zstd", asbytes=True))
    lab.files(
        "t", "whole STRING, f STRING METADATA FROM 'file'", format="text", whole_file="true", max_record_bytes="100"
    )
    lab.land("t", "1.txt.bz2", bz2.compress("é\n\nb".encode()))
    lab.land("t", "2.txt.gz", gzip.compress(bytes(30 << 20)))
    lab.land("t", "3.txt", b"\xff")
    for name in "xct":
        assert lab.refresh(name).error is None

    assert (lab.rows("x"), rejected(lab, "x")) == ([{"id": 1}], [("2.xml.gz", None, "UNREADABLE")])
    assert lab.rows("c") == [{"id": 1, "t": "a\nb"}]
    assert lab.rows("t") == [{"whole": "é\n\nb", "f": "1.txt.bz2"}]
    assert rejected(lab, "t") == [("2.txt.gz", 1, "TOO_LARGE"), ("3.txt", 1, "NOT_UTF8")]


@pytest.mark.parametrize("name", long_but(["xml"], ["xml", "csv"]))
def test_many_texts_are_read_in_tasks_as_here(lab, in_tasks, name):
    options = {"xml": {"row_tag": "row"}, "csv": {"multi_line": "true"}}[name]
    lab.files("s", "id INT, t STRING", format=name, **options)
    rows = [{"id": number, "t": f"<a>\n{number}" if number % 3 else None} for number in range(2_000)]
    lab.land("s", "1", rows)
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.rejected) == (None, 0)
    assert sorted(lab.rows("s"), key=lambda row: row["id"]) == rows

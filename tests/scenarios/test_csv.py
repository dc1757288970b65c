"""CSV is what RFC 4180, or Spark's own writer, says that it is: each record is the row that was written, or none."""

from __future__ import annotations

import csv
import io
import os
import random
from datetime import date

import pytest

from freshline.engine.ingest import Ingest
from tests.asgi import ask_asgi
from tests.lanes import few_or_many

SAID = [
    (1, 'say "hi, you"'),
    (2, "a, b"),
    (3, "c:\\dir\\"),
    (4, ""),
    (5, 'two\nlines, "one\\" quote'),
    (6, None),
    (7, '\\"'),
    (8, ' "blanks" '),
    (9, '"'),
    (10, '\\\\"\\n\r\nend'),
]


def stored(lab, name):
    return sorted((row["id"], row["t"]) for row in lab.rows(name))


def codes(lab, name):
    return {bytes(row["raw"]).decode(): row["error"] for row in lab.quarantine(name)}


def posted(lab, folder, source, body):
    """A body that was posted to the door of an engine."""
    ingest = Ingest(lambda: lab.runtime.graph, lab.settings.root, os.environ)
    headers = {"content-type": "text/csv", "authorization": "Bearer the-token-of-csv", "content-length": str(len(body))}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": f"/ingest/{source}", "headers": pairs}
    status, answer = ask_asgi(ingest, scope, body)
    ingest.close()
    assert status == 202, answer


@pytest.fixture
def written(lab, tmp_path):
    """The rows as Spark writes them, with options of its own."""

    def write(name, rows, **options):
        folder = tmp_path / name
        frame = lab.runtime.sessions.root.createDataFrame(rows, "id INT, t STRING").coalesce(1)
        keep = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
        frame.write.options(header="true", **keep, **options).csv(str(folder))
        (file,) = folder.glob("part-*.csv")
        return file.read_bytes()

    return write


def test_rows_that_spark_wrote_are_the_same_rows(lab, written, tmp_path, monkeypatch):
    monkeypatch.setenv("CSV_TOKEN", "the-token-of-csv")
    columns = "id INT, t STRING"
    lab.files("escaped", columns, format="csv", multi_line="true", escape="\\")
    lab.files("doubled", columns, format="csv", multi_line="true")
    lab.files("tabs", columns, format="csv", multi_line="true", escape="\\", separator="tab")
    lab.files("marked", columns, format="csv", multi_line="true", escape="\\", null_value="NA")
    lab.files("lines", columns, format="csv", escape="\\", separator=";")
    (tmp_path / "posts").mkdir()
    lab.declare(
        f"CREATE SOURCE posts ({columns}) WITH ('connector' = 'http', 'path' = '{tmp_path / 'posts'}', "
        "'token' = '${env:CSV_TOKEN}', 'format' = 'csv', 'multi-line' = 'true', 'escape' = '\\\\')"
    )
    body = written("escaped", SAID)
    single = [(key, text) for key, text in SAID if "\n" not in (text or "")]
    lab.land("escaped", "1.csv", body)
    lab.land("doubled", "1.csv", written("doubled", SAID, escape='"'))
    lab.land("tabs", "1.csv", written("tabs", SAID, sep="\t"))
    lab.land("marked", "1.csv", written("marked", SAID, nullValue="NA"))
    lab.land("lines", "1.csv", written("lines", single, sep=";", quoteAll="true", nullValue="\u0000"))
    posted(lab, tmp_path, "posts", body)
    outcomes = lab.refresh_all()

    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    assert {name: codes(lab, name) for name in ("escaped", "doubled", "tabs", "marked", "posts")} == {
        name: {} for name in ("escaped", "doubled", "tabs", "marked", "posts")
    }
    for name in ("escaped", "doubled", "tabs", "marked", "posts"):
        assert stored(lab, name) == SAID, name
    assert [row for row in stored(lab, "lines") if row[0] != 6] == [row for row in single if row[0] != 6]


def test_quotes_that_are_none_are_no_row(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("CSV_TOKEN", "the-token-of-csv")
    lab.files("a", "id INT, t STRING", format="csv", header="false")
    lab.files("b", "id INT, t STRING", format="csv", header="false", multi_line="true")
    (tmp_path / "posts").mkdir()
    lab.declare(
        f"CREATE SOURCE posts (id INT, t STRING) WITH ('connector' = 'http', 'path' = '{tmp_path / 'posts'}', "
        "'token' = '${env:CSV_TOKEN}', 'format' = 'csv', 'header' = 'false')"
    )
    broken = [r'1,"say \"hi, you\""', r'2,"say \"hi\""', '3,"a"b', '4,"a" ', r'5,"\""']
    text = "\n".join([*broken, '6,"fine"', '7,5" disk']) + "\n"
    lab.land("a", "1.csv", text)
    # With several lines a quote that stays open would take in the rest.
    lab.land("b", "1.csv", text.replace(f"{broken[-1]}\n", ""))
    posted(lab, tmp_path, "posts", text.encode())
    lab.refresh_all()

    for name, expected in (("a", broken), ("b", broken[:-1]), ("posts", broken)):
        assert stored(lab, name) == [(6, "fine"), (7, '5" disk')], name
        assert codes(lab, name) == dict.fromkeys(expected, "NOT_CSV"), name


def test_an_empty_text_in_quotes_is_none_of_null(lab):
    lab.files("a", "id INT, t STRING", format="csv")
    lab.files("b", "id INT, t STRING", format="csv", null_value="NA")
    lab.files("c", "id INT, t STRING", format="csv", null_value="")
    for name in ("a", "b", "c"):
        lab.land(name, "1.csv", 'id,t\n1,""\n2,\n"",x\n')
    lab.refresh_all()

    assert stored(lab, "a") == stored(lab, "b") == [(1, ""), (2, None)]
    assert codes(lab, "a") == codes(lab, "b") == {'"",x': "NOT_CSV"}
    assert {(row["id"], row["t"]) for row in lab.rows("c")} == {(1, None), (2, None), (None, "x")}


def test_names_of_columns_that_are_not_read_may_be_blank_or_there_twice(lab):
    lab.files("a", "id INT, t STRING", format="csv")
    lab.land("a", "1.csv", "id,t,,\n1,x,,\n")
    lab.land("a", "2.csv", "note,id,note,t\n,2,,y\n")
    lab.land("a", "3.csv", '"T",other,"I""D",\n"z",,3,\n')
    lab.land("a", "4.csv", "id,t,ID\n4,x,5\n")
    lab.refresh("a")

    assert stored(lab, "a") == [(1, "x"), (2, "y")]
    rejected = lab.quarantine("a")
    assert {(row["file"], row["error"]) for row in rejected} == {
        ("3.csv", "HEADER_MISMATCH"),
        ("4.csv", "HEADER_MISMATCH"),
    }
    assert {row["message"] for row in rejected} == {
        "the first line of the file does not name each declared column once"
    }


def test_numbers_and_days_have_the_form_that_json_has(lab):
    lab.files("a", "id INT, n BIGINT, d DATE, f BOOLEAN", format="csv", header="false")
    good = ["1,-5,2026-01-05,true", "2,0,0001-12-31,False", "3,,,"]
    wrong = ["+5", "00012", "-01", "\u0663", "1_000", "5.", "1e3", "0x1", " 5"]
    lines = [f"9,{text},," for text in wrong]
    days = [f"9,,{day}," for day in ("2026-1-5", "2026-01-5", "\u0662026-01-05", "20260105")]
    flags = ["9,,,1", "9,,,yes", "9,,,t"]
    lab.land("a", "1.csv", "\n".join([*good, *lines, *days, *flags]) + "\n")
    lab.refresh("a")

    assert sorted(tuple(row.values()) for row in lab.rows("a")) == [
        (1, -5, date(2026, 1, 5), True),
        (2, 0, date(1, 12, 31), False),
        (3, None, None, None),
    ]
    found = codes(lab, "a")
    assert found.keys() == {*lines, *days, *flags}
    assert {found[line] for line in (*lines, *flags)} == {"NOT_CSV"}
    assert {found[line] for line in days} <= {"NOT_CSV", "VALUE_CHANGED(d)"}


@pytest.mark.parametrize("count", few_or_many(2_000, 100_000))
def test_random_files_are_read_as_python_reads_them(lab, count):
    """With and without line breaks inside quotes: a row where Python reads a record, else in quarantine."""
    seed = int(os.environ.get("FRESHLINE_SEED", "1"))
    chance = random.Random(seed)
    columns = "x STRING, y STRING, z STRING"
    lab.files("a", columns, format="csv", header="false")
    lab.files("b", columns, format="csv", header="false", multi_line="true")
    lines = ["x" + "".join(chance.choices('",;a \\\u00e9', k=chance.randrange(12))) for _ in range(count)]
    rows = [["".join(chance.choices('",;a\n\r \\', k=chance.randrange(6))) for _ in "xyz"] for _ in range(count)]
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    lab.land("a", "1.csv", "\n".join(lines) + "\n")
    lab.land("b", "1.csv", text.getvalue().encode())
    assert [outcome.error for outcome in lab.refresh_all()] == [None, None]

    records = [fields_of(line) for line in lines]
    found = sorted(tuple(value or "" for value in row.values()) for row in lab.rows("a"))
    assert found == sorted(tuple(fields) for fields in records if len(fields) == 3), f"FRESHLINE_SEED={seed}"
    rejected = [number for number, fields in enumerate(records, 1) if len(fields) != 3]
    assert sorted(row["line"] for row in lab.quarantine("a")) == rejected, f"FRESHLINE_SEED={seed}"
    assert sorted(tuple(row.values()) for row in lab.rows("b")) == sorted(map(tuple, rows)), f"FRESHLINE_SEED={seed}"


def fields_of(line):
    """The fields of a record as Python reads them, none where it is no record."""
    try:
        (fields,) = csv.reader([line], strict=True)
    except csv.Error:
        return []
    return fields

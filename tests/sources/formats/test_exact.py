"""A value is stored as it arrived or the record is in quarantine, whichever way the record is read."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.compute.inputs import RECORD
from freshline.sources.files.lines import Inspected, LineReading, inspect_files
from freshline.sources.files.plain_json import DOUBT, end_reading, parse_plain
from freshline.sources.files.position import FileMark
from freshline.sources.kafka.reader import as_records
from freshline.sources.reader import Group
from freshline.sources.records import ERROR, judge_records
from freshline.values.names import TableName
from tests.sources.formats import values

# Key, record as text, the code of quarantine or None, and what is stored.
Case = tuple[int, str, str | None, dict[str, Any]]


def cases(*, nested: bool) -> list[Case]:
    kept = values.KEPT + (values.KEPT_NESTED if nested else [])
    refused = values.REFUSED + (values.REFUSED_NESTED if nested else [])
    found: list[tuple[str, str | None, dict[str, Any]]] = []
    found += [(f'{{"k":KEY,"{name}":{text}}}', None, {name: value}) for name, text, value in kept]
    for name, text, code in refused:
        shown = f"{code}({name})" if code == values.CHANGED else code
        found.append((f'{{"k":KEY,"{name}":{text}}}', shown, {}))
    found += [(text, None, row) for text, row in values.BESIDE + (values.BESIDE_NESTED if nested else [])]
    found += [(text, code, {}) for text, code in values.WHOLE]
    return [(key, text.replace("KEY", str(key)), code, row) for key, (text, code, row) in enumerate(found, 1)]


def declared(*, nested: bool) -> str:
    columns = values.COLUMNS | (values.NESTED if nested else {})
    return ", ".join(["k INT", *(f"{name} {kind}" for name, kind in columns.items())])


def plain(value: Any) -> Any:
    """A value of Spark's as one of Python's."""
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def in_utc(rows: DataFrame) -> DataFrame:
    """Rows whose times Python does not move into its own zone."""
    for name in {"at", "deep"} & set(rows.columns):
        kind = rows.schema[name].dataType.simpleString().replace("timestamp", "timestamp_ntz")
        rows = rows.withColumn(name, F.col(name).cast(kind))
    return rows


def expected(found: list[Case]) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    kept = {key: row for key, _, code, row in found if code is None}
    return kept, {key: code for key, _, code, _ in found if code is not None}


def check(found: list[Case], rows: dict[int, dict[str, Any]], codes: dict[int, str]) -> None:
    kept, refused = expected(found)
    texts = {key: text[:90] for key, text, _, _ in found}
    wrong = [(texts[key], kept.get(key), rows.get(key)) for key in kept.keys() ^ rows.keys()]
    assert not wrong, wrong
    for key, row in kept.items():
        for name, value in row.items():
            assert plain(rows[key][name]) == plain(value), texts[key]
            assert type(plain(rows[key][name])) is type(value), texts[key]
    different = [(texts[key], refused.get(key), codes.get(key)) for key in texts if refused.get(key) != codes.get(key)]
    assert not different, different


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (k)"], ids=["no key", "key"])
def test_a_value_of_a_file_is_stored_as_it_arrived_or_in_quarantine(lab, key):
    found = cases(nested=True)
    assert len(found) >= 200
    lab.files("ev", declared(nested=True) + key)
    lab.land("ev", "a.json", "".join(f"{text}\n" for _, text, _, _ in found))

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    check(found, {row["k"]: row for row in lab.rows("ev")}, {row["line"]: row["error"] for row in lab.quarantine("ev")})
    assert all(row["message"] for row in lab.quarantine("ev"))
    assert {bytes(row["raw"]).decode() for row in lab.quarantine("ev")} == {t for _, t, code, _ in found if code}


@pytest.mark.slow
def test_a_value_of_a_topic_is_stored_as_it_arrived_or_in_quarantine(lab):
    found = cases(nested=True)
    marked = len(found) + 1
    found.append((marked, f'\ufeff{{"k":{marked},"text":"marked"}}', None, {"text": "marked"}))
    pretty = marked + 1
    found.append((pretty, f'\n{{\n "k" : {pretty},\r\n "number" : 1\n}}\n', None, {"number": 1.0}))
    lab.declare(
        f"CREATE SOURCE ev ({declared(nested=True)}) WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 't', "
        "'bootstrap.servers' = 'localhost:1')"
    )
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    records = lab.runtime.sessions.root.createDataFrame(
        [(None, text.encode(), "t", 0, key, moment, None) for key, text, _, _ in found],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )

    spec = lab.runtime.graph.spec(TableName.parse("ev"))
    rows = in_utc(judge_records([Group(as_records(records))], spec)).collect()

    kept = {row[RECORD]: row.asDict() for row in rows if row[ERROR] is None}
    check(found, kept, {row[RECORD]: row[ERROR] for row in rows if row[ERROR] is not None})


def _are_plain(folder: Path, lines: list[bytes]) -> list[bool]:
    marks = []
    for number, line in enumerate(lines):
        file = folder / str(number)
        file.write_bytes(line)
        marks.append(FileMark(file.name, len(line), file.stat().st_mtime_ns))
    return [each.plain for each in inspect_files(folder, marks, LineReading("json", 1 << 20, False))]


def test_the_short_way_stores_what_the_long_way_stores_or_leaves_the_record_to_it(lab, spark, tmp_path):
    found = cases(nested=False)
    # Bytes that are no UTF-8, and that Spark's reader takes: half a character, and characters of too many bytes.
    odd = [b'{"k":1,"text":"\xed\xa0\x80"}', b'{"k":1,"text":"\xc0\x80"}', b'{"k":1,"text":"\xc1\x81"}']
    folder = lab.files("ev", declared(nested=False))
    file = folder / "a.json"
    file.write_bytes("".join(f"{text}\n" for _, text, _, _ in found).encode() + b"\n".join(odd) + b"\n")
    spec = lab.runtime.graph.spec(TableName.parse("ev"))
    mark = FileMark("a.json", file.stat().st_size, file.stat().st_mtime_ns)
    session = lab.runtime.sessions.root
    lines = file.read_bytes().split(b"\n")[:-1]
    is_short = _are_plain(tmp_path, lines)
    rows = in_utc(parse_plain(session, spec, Path(folder), [Inspected(mark)])).orderBy(RECORD).collect()
    end_reading(session)

    assert len(is_short) == len(rows) == len(found) + len(odd)
    short = {
        number: row.asDict()
        for number, (row, is_one) in enumerate(zip(rows, is_short, strict=True), 1)
        if is_one and not row[DOUBT]
    }
    kept, _ = expected(found)
    assert short.keys() <= kept.keys(), [found[key - 1][1] for key in short.keys() - kept.keys() if key <= len(found)]
    assert len(short) > 65
    check([case for case in found if case[0] in short], short, {})


def test_a_batch_with_one_value_in_doubt_is_read_the_long_way(lab):
    lab.files("ev", "k INT, money DECIMAL(10,2)")
    lab.land("ev", "a.json", '{"k": 1, "money": 1.5}\n{"k": 2, "money": 1.005}\n')

    outcome = lab.refresh("ev")

    assert (outcome.rows_out, outcome.rejected) == (1, 1)
    (row,) = lab.quarantine("ev")
    assert (row["line"], row["error"]) == (2, "VALUE_CHANGED(money)")
    assert row["message"].startswith("a value of column money cannot be stored as DECIMAL(10,2)")


def test_names_beyond_ascii_are_found_escaped_or_not(lab):
    lab.files("ev", "k INT, `größe` DECIMAL(38,20), PRIMARY KEY (k)")
    number = "0.12345678901234567891"
    lab.land("ev", "a.json", f'{{"k":1,"größe":{number}}}\n{{"k":2,"gr\\u00f6\\u00DFe":{number}}}\n')

    assert lab.refresh("ev").rejected == 0
    assert {str(row["größe"]) for row in lab.rows("ev")} == {number}


def test_a_value_of_a_csv_is_stored_as_it_arrived_or_in_quarantine(lab):
    columns = [*values.COLUMNS]
    kept: list[tuple[str, str, Any]] = [
        ("text", "\0begins with a NUL", "\0begins with a NUL"),
        ("text", '" a\rb "', " a\rb "),
        ("text", "1.10", "1.10"),
        ("text", "#", "#"),
        ("flag", "true", True),
        ("tiny", "-128", -128),
        ("whole", "-7", -7),
        ("number", "1e308", 1e308),
        ("number", "-Infinity", float("-inf")),
        ("money", "1.500", Decimal("1.50")),
        ("money", "15e-1", Decimal("1.50")),
        ("day", "2026-02-28", date(2026, 2, 28)),
        ("at", "2026-01-01 10:11", datetime(2026, 1, 1, 10, 11, tzinfo=UTC)),
        ("blob", "a?", b"a?"),
    ]
    refused = [
        ("tiny", "200", "NOT_CSV"),
        ("whole", "007", "NOT_CSV"),
        ("whole", "+7", "NOT_CSV"),
        ("flag", "1", "NOT_CSV"),
        ("day", "2026-2-28", "VALUE_CHANGED(day)"),
        ("whole", "1.5", "NOT_CSV"),
        ("whole", "2147483648", "NOT_CSV"),
        ("single", "1e39", "VALUE_CHANGED(single)"),
        ("number", "1e400", "VALUE_CHANGED(number)"),
        ("number", "1d", "NOT_CSV"),
        ("number", "0x1p3", "NOT_CSV"),
        ("money", "1.005", "VALUE_CHANGED(money)"),
        ("money", '"1,234.50"', "NOT_CSV"),
        ("money", "1e400000000", "VALUE_CHANGED(money)"),
        ("day", "2026", "VALUE_CHANGED(day)"),
        ("day", "2026-02-28 10:00", "VALUE_CHANGED(day)"),
        ("day", "2026-02-30", "NOT_CSV"),
        ("at", "12:30", "VALUE_CHANGED(at)"),
        ("at", "1700000000", "NOT_CSV"),
        ("local", "2026-01-01T00:00:00Z", "VALUE_CHANGED(local)"),
    ]
    lab.files("ev", declared(nested=False), format="csv")

    def line(key: int, name: str, text: str) -> str:
        return ",".join([str(key), *(text if column == name else "" for column in columns)]) + "\n"

    lines = [line(key, name, text) for key, (name, text, _) in enumerate([*kept, *refused], 1)]
    lab.land("ev", "a.csv", "".join([",".join(["k", *columns]) + "\n", *lines]))

    lab.refresh("ev")

    rows = {row["k"]: row for row in lab.rows("ev")}
    assert {row["line"] - 1: row["error"] for row in lab.quarantine("ev")} == {
        key: code for key, (_, _, code) in enumerate(refused, len(kept) + 1)
    }
    found = {key: plain(rows[key][name]) for key, (name, _, _) in enumerate(kept, 1)}
    assert found == {key: plain(value) for key, (_, _, value) in enumerate(kept, 1)}

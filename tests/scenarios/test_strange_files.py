"""Files as others write them, in each format: exact rows, or quarantine with a reason, whatever else is beside them."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.lanes import long_but
from tests.typed_rows import aborting_orc_file, avro_file, avro_record, orc_file, parquet_file

COLUMNS = "id BIGINT, d DECIMAL(6,2), at TIMESTAMP, n STRUCT<a: INT, b: STRING>, file STRING METADATA FROM 'file'"
DECIMAL_3 = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}
NANOSECONDS = {"type": "long", "logicalType": "timestamp-nanos"}
INNER = {"type": "record", "name": "inner", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_NS = int(NOON.timestamp()) * 10**9
OPTIONS = {"xml": {"row_tag": "r"}, "csv": {"multi_line": "true"}}


def typed(name, columns):
    """A file of columns of Arrow, each with its type and values."""
    table = pa.table({key: pa.array(values, kind) for key, (kind, values) in columns.items()})
    return parquet_file(table) if name == "parquet" else orc_file(table)


def in_order(name):
    """A file that is as declared."""
    if name in ("parquet", "orc"):
        inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
        return typed(name, {
            "id": (pa.int64(), [1]), "d": (pa.decimal128(6, 2), [Decimal("1.50")]),
            "at": (pa.timestamp("us" if name == "parquet" else "ns", "UTC"), [NOON]),
            "n": (inner, [{"a": 1, "b": "x"}]),
        })  # fmt: skip
    if name == "avro":
        schema = avro_record(id="long", d=DECIMAL_3, at=NANOSECONDS, n=INNER)
        return avro_file(schema, [{"id": 1, "d": Decimal("1.500"), "at": NOON_NS, "n": {"a": 1, "b": "x"}}])
    if name == "xml":
        return b"<f><r><id>1</id><d>1.50</d><at>2026-01-01T12:00:00Z</at><n><a>1</a><b>x</b></n></r></f>"
    return b'id,d,at\n1,1.50,"2026-01-01T12:00:00Z"\n'


def strange(name):
    """A file with columns in another order, of other types, one more and one less; only its first row fits."""
    if name in ("parquet", "orc"):
        inner = pa.struct(
            [("more", pa.bool_()), ("b", pa.large_string() if name == "parquet" else pa.string()), ("a", pa.int64())]
        )
        return typed(name, {
            "more": (pa.list_(pa.int8()), [[1], [], None, [2]]),
            "n": (inner, [{"more": True, "b": "y", "a": 2}, None, None, {"a": 2**40}]),
            "at": (pa.timestamp("ns", "UTC"), [NOON_NS, NOON_NS + 1, None, None]),
            "id": (pa.int32(), [2, 3, 4, 5]),
        })  # fmt: skip
    if name == "avro":
        schema = avro_record(more="int", n=["null", INNER], at=["null", NANOSECONDS], id="int")
        return avro_file(schema, [
            {"more": 1, "n": {"b": "y", "a": 2}, "at": NOON_NS, "id": 2},
            {"more": 1, "n": None, "at": NOON_NS + 1, "id": 3},
            {"more": 1, "n": None, "at": None, "id": 4},
            {"more": 1, "n": {"b": "", "a": 2**40}, "at": None, "id": 5},
        ])  # fmt: skip
    if name == "xml":
        return (
            b"<f><more/><r more='1'><n more='1'><b>y</b><a>2</a></n><at>2026-01-01T12:00:00.000000000Z</at>"
            b"<id>2</id></r>"
            b"<r><at>2026-01-01T12:00:00.000000001Z</at><id>3</id></r><r><id>4</id></r>"
            b"<r><n><a>1099511627776</a></n><id>5</id></r></f>"
        )
    return (
        b'more,at,id,d\n"a\nb",2026-01-01T12:00:00.000000000Z,2,\n,2026-01-01T12:00:00.000000001Z,3,\n,,4,\n,,5,10000\n'
    )


def other_scale(name):
    """Numbers with more digits behind the point, which are zeros in the first row."""
    values = [Decimal("9999.990"), Decimal("0.001"), Decimal("10000.000")]
    if name in ("parquet", "orc"):
        return typed(name, {"id": (pa.int64(), [6, 7, 8]), "d": (pa.decimal128(9, 3), values)})
    if name == "avro":
        rows = [{"id": 6 + number, "d": value} for number, value in enumerate(values)]
        return avro_file(avro_record(id="long", d=DECIMAL_3), rows)
    texts = [f"<r id='{6 + number}'><d>{value}</d></r>" for number, value in enumerate(values)]
    if name == "xml":
        return f"<f>{''.join(texts)}</f>".encode()
    return b"id,d,at\n" + "".join(f"{6 + number},{value},\n" for number, value in enumerate(values)).encode()


def without_rows(name):
    if name in ("parquet", "orc"):
        return typed(name, {"id": (pa.int64(), [])})
    return {"avro": avro_file(avro_record(id="long"), []), "xml": b"<f/>", "csv": b"id,d,at\n"}[name]


@pytest.mark.parametrize("name", long_but(["parquet", "xml"], ["parquet", "orc", "avro", "xml", "csv"]))
def test_files_as_others_write_them(lab, name):
    columns = COLUMNS if name != "csv" else COLUMNS.replace(" n STRUCT<a: INT, b: STRING>,", "")
    folder = lab.files("s", columns, format=name, **OPTIONS.get(name, {}))
    good, is_text = in_order(name), name in ("xml", "csv")
    other = orc_file if name == "parquet" else parquet_file
    of_another = b'{"id": 1}\n' if is_text else other(pa.table({"id": [1]}))
    files = {
        "another format.x": of_another, "empty.x": b"", "cut.x": good[:-6],
        "no rows.x": without_rows(name), "scale 50%20.x": other_scale(name), "strange ü€.json": strange(name),
        "same.x": good, "one.parquet": good, "packed.gz": gzip.compress(good), "wrong.gz": good,
        "bomb.gz": gzip.compress(b" " * (50 << 20)), "nothing.gz": gzip.compress(b""),
    }  # fmt: skip
    if name == "orc":
        files["ends its reader.x"] = aborting_orc_file()
    for file, content in files.items():
        lab.land("s", file, content)
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.problems) == (None, ())
    found = {(row.pop("file"), row["id"]): row for row in lab.rows("s")}
    first: dict[str, Any] = {"id": 1, "d": Decimal("1.50"), "at": NOON, "n": {"a": 1, "b": "x"}}
    nothing: dict[str, Any] = {"d": None, "at": None, "n": None}
    expected: dict[tuple[str, int], dict[str, Any]] = {
        ("same.x", 1): first, ("one.parquet", 1): first,
        ("strange ü€.json", 2): {**nothing, "id": 2, "at": NOON, "n": {"a": 2, "b": "y"}},
        ("strange ü€.json", 4): {**nothing, "id": 4},
        ("scale 50%20.x", 6): {**nothing, "id": 6, "d": Decimal("9999.99")},
        # The name of a file says that it is packed where the format has no packing of its own.
        ("packed.gz" if is_text else "wrong.gz", 1): first,
    }  # fmt: skip
    if name == "csv":
        expected = {key: {name: row[name] for name in row if name != "n"} for key, row in expected.items()}
    assert found == expected

    codes: dict[str, list[str]] = {}
    for row in lab.quarantine("s"):
        codes.setdefault(row["file"], []).append(row["error"])
        assert row["message"]
    mark = f"NOT_{name.upper()}"
    # In texts a number that is too large for its type is of another form.
    lost = {"csv": "VALUE_CHANGED(d)", "xml": "NOT_XML"}.get(name, "VALUE_CHANGED(n)")
    assert sorted(codes.pop("strange ü€.json")) == sorted(["VALUE_CHANGED(at)", lost])
    assert codes.pop("scale 50%20.x") == ["VALUE_CHANGED(d)", "VALUE_CHANGED(d)"]
    of_packed = (
        {"wrong.gz": ["UNREADABLE"], "nothing.gz": ["EMPTY_FILE"]}
        if is_text
        else {"packed.gz": [mark], "nothing.gz": [mark]}
    )
    if name == "orc":
        assert codes.pop("ends its reader.x") == ["UNREADABLE"]
    assert codes == {
        "another format.x": ["HEADER_MISMATCH" if name == "csv" else mark], "empty.x": ["EMPTY_FILE"],
        "cut.x": ["UNREADABLE"], "bomb.gz": ["TOO_LARGE" if name == "csv" else mark], **of_packed,
    }  # fmt: skip

    (folder / "one.parquet").write_bytes(strange(name))
    later = lab.refresh("s")
    assert [problem.code for problem in later.problems] == ["FILE_CHANGED"]
    assert (later.strategy, len(lab.rows("s"))) == ("noop", len(expected))

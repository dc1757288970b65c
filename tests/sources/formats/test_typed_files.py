"""Files whose values have types of their own: what is read of them, without Spark."""

from __future__ import annotations

import bz2
import io
import itertools
import json
import lzma
import random
import tracemalloc
import zlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshline.sources.formats.avro_files import AvroRecords
from freshline.sources.formats.container import NoContainer
from freshline.sources.formats.fit import CUT_BYTES, Wanted, fit
from freshline.sources.formats.orc_files import OrcRows
from freshline.sources.formats.parquet_files import ParquetRows
from freshline.sources.formats.parquet_pages import page_sizes, read_chunks
from tests.typed_rows import (
    TYPES,
    UTC_TIME,
    avro_file,
    avro_record,
    avro_rows,
    avro_schema,
    orc_file,
    parquet_file,
    random_rows,
)

pytestmark = pytest.mark.seconds

MANY = 4 << 20


def read(container, data, start=0, end=None, before=0):
    """The rows (values or code) of a file by their numbers; it is inspected first, as always."""
    container.inspect(io.BytesIO(data), len(data), lambda: None)
    rows = {}
    for batch in container.read(io.BytesIO(data), start, end, before):
        assert batch.schema == container.rows
        for row in batch.to_pylist():
            rows[row["_freshline_record"]] = row["_freshline_verdict"] or row["_freshline_parsed"]
    return rows


def raw(container, data):
    batches = container.read(io.BytesIO(data), 0, None, 0)
    return [row["value"] for batch in batches for row in batch.to_pylist()]


def wanted(most_bytes=MANY, **types):
    return Wanted(pa.schema(list(types.items())), most_bytes)


# -- from one type to another


@pytest.mark.parametrize(
    ("given", "of", "kind", "found"),
    [
        ([1, -128, 127, 128, None], pa.int64(), pa.int8(), [1, -128, 127, "lost", None]),
        ([0, 2**64 - 1], pa.uint64(), pa.int64(), [0, "lost"]),
        ([5], pa.uint8(), pa.int32(), [5]),
        ([2**53 + 1], pa.int64(), pa.float64(), [float(2**53)]),
        ([7, -7, 1000], pa.int32(), pa.decimal128(5, 2), [Decimal("7.00"), Decimal("-7.00"), "lost"]),
        ([1.5, float("inf"), None], pa.float32(), pa.float64(), [1.5, float("inf"), None]),
        ([0.5, 0.1, float("-inf")], pa.float64(), pa.float32(), [0.5, "lost", float("-inf")]),
        ([1.0], pa.float64(), pa.int32(), ["lost"]),
        ([1.0], pa.float64(), pa.decimal128(5, 2), ["lost"]),
        ([Decimal("1.50"), Decimal("1.25")], pa.decimal128(10, 2), pa.decimal128(3, 1), [Decimal("1.5"), "lost"]),
        ([Decimal("12345678901234567890.5")], pa.decimal256(60, 30), pa.decimal128(38, 1), "same"),
        ([Decimal("12"), Decimal("2147483648")], pa.decimal128(10, 0), pa.int32(), [12, "lost"]),
        ([Decimal("0.1")], pa.decimal128(3, 1), pa.float64(), [0.1]),
        ([Decimal("0.1")], pa.decimal128(3, 1), pa.int32(), ["lost"]),
        (["x", "é\x00"], pa.large_string(), pa.string(), "same"),
        ([b"ab", b"\xff", b"\xc3"], pa.binary(), pa.string(), ["ab", "lost", "lost"]),
        (["ab"], pa.string(), pa.binary(), ["lost"]),
        ([b"ab"], pa.binary(2), pa.binary(), [b"ab"]),
        ([b"ab"], pa.binary(2), pa.string(), ["lost"]),
        (["1"], pa.string(), pa.int32(), ["lost"]),
        ([1], pa.int32(), pa.string(), ["lost"]),
        ([True], pa.bool_(), pa.int32(), ["lost"]),
        ([True, None], pa.bool_(), pa.bool_(), "same"),
        ([1], pa.int32(), pa.bool_(), ["lost"]),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), pa.date32(), "same"),
        ([date(2026, 1, 2)], pa.date32(), UTC_TIME, [datetime(2026, 1, 2, tzinfo=UTC)]),
        ([date(2026, 1, 2)], pa.date64(), pa.date32(), "same"),
        ([datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)], pa.timestamp("s"), pa.timestamp("us"), "same"),
        ([1_767_312_000_000], pa.timestamp("ms"), UTC_TIME, [1_767_312_000_000_000]),
        ([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("ms", "Asia/Tokyo"), UTC_TIME, "same"),
        ([datetime(2026, 1, 2, tzinfo=UTC)], UTC_TIME, pa.timestamp("us"), ["lost"]),
        ([1_000, 1_001, -1_000], pa.timestamp("ns"), pa.timestamp("us"), [1, "lost", -1]),
        ([-62_135_596_801, -62_135_596_800, 253_402_300_799, 253_402_300_800], pa.timestamp("s"), pa.timestamp("us"),
         ["lost", -62_135_596_800_000_000, 253_402_300_799_000_000, "lost"]),
        ([-719_163, -719_162, 2_932_896, 2_932_897], pa.date32(), pa.date32(), ["lost", -719_162, 2_932_896, "lost"]),
        ([None, None], pa.null(), pa.int32(), "same"),
        ([1], pa.time64("us"), pa.int64(), ["lost"]),
        (["a", None, "a"], pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", None, "a"]),
    ],
)  # fmt: skip
def test_a_value_is_stored_as_it_is_or_lost(given, of, kind, found):
    if of == pa.dictionary(pa.int8(), pa.string()):
        values = pa.array(given).dictionary_encode()
    elif isinstance(given[0], int) and not (pa.types.is_integer(of) or pa.types.is_boolean(of)):
        size = pa.int32() if of == pa.date32() else pa.int64()
        values = pa.array(given, size).cast(of)
    else:
        values = pa.array(given, of)
    # A slice of a longer array, as batches are.
    values = pa.concat_arrays([values, values]).slice(len(given))
    fitted, lost = fit(values, kind)

    assert fitted.type == kind
    if isinstance(found, list) and any(isinstance(value, int) for value in found) and pa.types.is_temporal(kind):
        fitted = fitted.cast(pa.int32() if kind == pa.date32() else pa.int64())
    result = ["lost" if lost is not None and lost[row] else value for row, value in enumerate(fitted.to_pylist())]
    assert result == (given if found == "same" else found)


INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])


@pytest.mark.parametrize(
    ("given", "of", "kind", "found"),
    [
        ([[1, 300], [], None, [None]], pa.list_(pa.int64()), pa.list_(pa.int8()), ["lost", [], None, [None]]),
        ([[1, 2], None], pa.list_(pa.int8(), 2), pa.list_(pa.int64()), [[1, 2], None]),
        ([[1], None], pa.large_list(pa.int8()), pa.list_(pa.int64()), [[1], None]),
        ([{"b": "x", "z": 1}, None, {}], pa.struct([("z", pa.int8()), ("b", pa.string())]), INNER,
         [{"a": None, "b": "x"}, None, {"a": None, "b": None}]),
        ([{"a": 2**40}, {"a": 1}, None], pa.struct([("a", pa.int64())]), INNER, ["lost", {"a": 1, "b": None}, None]),
        ([{"A": 1}], pa.struct([("A", pa.int32())]), INNER, [{"a": None, "b": None}]),
        ([[("k", 1), ("l", None)], [], None, [("k", 300)], [("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()),
         pa.map_(pa.string(), pa.int8()), [[("k", 1), ("l", None)], [], None, "lost", "lost"]),
        ([[(1, 1)]], pa.map_(pa.int64(), pa.int8()), pa.map_(pa.int8(), pa.int8()), "same"),
        ([[(300, 1)], [(1, 2)]], pa.map_(pa.int64(), pa.int8()), pa.map_(pa.int8(), pa.int8()), ["lost", [(1, 2)]]),
        ([[{"a": 1}, {"a": 2**40}], [{"a": 2}]], pa.list_(pa.struct([("a", pa.int64())])), pa.list_(INNER),
         ["lost", [{"a": 2, "b": None}]]),
        ([[1]], pa.list_(pa.int8()), pa.string(), ["lost"]),
        (["x"], pa.string(), pa.list_(pa.string()), ["lost"]),
        ([{"a": 1}], pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32()), ["lost"]),
    ],
)  # fmt: skip
def test_values_within_values_are_stored_as_they_are_or_the_record_is_lost(given, of, kind, found):
    values = pa.array([*given[:1], *given], of).slice(1)
    fitted, lost = fit(values, kind)

    assert fitted.type == kind
    fitted.validate(full=True)
    result = ["lost" if lost is not None and lost[row] else value for row, value in enumerate(fitted.to_pylist())]
    assert result == (given if found == "same" else found)


# -- whole files


def test_each_format_finds_columns_by_name_and_a_missing_one_is_null():
    table = pa.table({"b": ["x", "y"], "more": [1, 2], "ID": [5, 6]})
    columns = wanted(id=pa.int32(), b=pa.string())
    found = {1: {"id": None, "b": "x"}, 2: {"id": None, "b": "y"}}

    assert read(ParquetRows(columns), parquet_file(table)) == found
    assert read(OrcRows(columns), orc_file(table)) == found
    rows = avro_file(avro_record(b="string", more="int", ID="int"), table.to_pylist())
    assert read(AvroRecords(columns), rows) == found


def test_rows_without_any_declared_column_are_still_rows():
    table, columns = pa.table({"other": [1, 2, 3]}), wanted(id=pa.int32())
    found = {number: {"id": None} for number in (1, 2, 3)}

    assert read(ParquetRows(columns), parquet_file(table)) == found
    assert read(OrcRows(columns), orc_file(table)) == found
    assert read(AvroRecords(columns), avro_file(avro_record(other="int"), table.to_pylist())) == found


@pytest.mark.parametrize(("make", "container"), [(parquet_file, ParquetRows), (orc_file, OrcRows)])
def test_a_value_that_does_not_fit_rejects_its_record_alone(make, container):
    table = pa.table({"id": pa.array([1, 2**40, 3], pa.int64()), "t": ["a", "b", None]})
    columns = container(wanted(id=pa.int32(), t=pa.string()))

    assert read(columns, make(table)) == {1: {"id": 1, "t": "a"}, 2: "VALUE_CHANGED(id)", 3: {"id": 3, "t": None}}
    assert raw(columns, make(table)) == [None, b'{"id": 1099511627776, "t": "b"}', None]


@pytest.mark.parametrize(("make", "container"), [(parquet_file, ParquetRows), (orc_file, OrcRows)])
def test_a_record_that_is_too_large_is_cut_and_the_others_are_rows(make, container):
    table = pa.table({"t": ["small", "x" * 500_000, "y" * 400_000, None]})
    columns = container(wanted(400_000, t=pa.string()))

    assert {number: str(row)[:12] for number, row in read(columns, make(table)).items()} == {
        1: "{'t': 'small", 2: "TOO_LARGE", 3: "{'t': 'yyyyy", 4: "{'t': None}"
    }  # fmt: skip
    found = raw(columns, make(table))[1]
    assert found.startswith(b'{"t": "xxx')
    assert len(found) == CUT_BYTES


def test_parquet_is_read_by_groups_of_rows_with_their_numbers():
    table = pa.table({"id": range(10)})
    data = parquet_file(table, row_group_size=3)
    container = ParquetRows(wanted(id=pa.int64()))

    assert read(container, data, 1, 3, 3) == {number + 1: {"id": number} for number in range(3, 9)}
    assert len(read(container, data)) == 10


def test_ten_thousand_groups_of_rows_are_read():
    data = parquet_file(pa.table({"id": range(10_000)}), row_group_size=1)

    rows = read(ParquetRows(wanted(id=pa.int64())), data)

    assert [row["id"] for row in rows.values()] == list(range(10_000))


def test_a_dictionary_within_values_that_ends_within_a_group_of_rows_is_read():
    """Writers give a dictionary up once it is too large."""
    rows = [{"l": [f"text {n % 7}", f"text {n}" * 20], "s": {"t": f"{n}" * 30}} for n in range(5_000)]
    data = parquet_file(
        pa.Table.from_pylist(rows), dictionary_pagesize_limit=10_000, data_page_size=5_000, row_group_size=4_000
    )

    found = read(ParquetRows(wanted(l=pa.list_(pa.string()), s=pa.struct([("t", pa.string())]))), data)

    assert list(found.values()) == rows


def test_a_large_text_that_stands_in_a_dictionary_is_unfolded_row_by_row():
    text = "x" * 1_000_000
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 3_000, pa.int32()), [text])
    data = parquet_file(pa.table({"t": column, "l": [["k"]] * 3_000}), store_schema=False)
    container = ParquetRows(wanted(t=pa.string(), l=pa.list_(pa.string())))
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for batch in container.read(io.BytesIO(data), 0, None, 0):
        most, count = max(most, pa.total_allocated_bytes() - before), count + batch.num_rows
        assert batch.nbytes < 6 << 20

    assert count == 3_000
    # Unfolded they would be 3 GB.
    assert most < 100 << 20


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (b'{"id": 1}\n', "NOT", "does not begin with"),
        (b"", "NOT", "does not begin with"),
    ],
)
@pytest.mark.parametrize("container", [ParquetRows, OrcRows, AvroRecords])
def test_data_that_is_no_file_of_the_format_has_its_code(container, data, code, reason):
    with pytest.raises(NoContainer, match=reason) as found:
        container(wanted(id=pa.int32())).inspect(io.BytesIO(data), len(data), lambda: None)
    assert found.value.code.startswith(code)


FILES = {
    "parquet": (ParquetRows, lambda: parquet_file(pa.table({"id": range(1000), "t": ["abc"] * 1000}))),
    "orc": (OrcRows, lambda: orc_file(pa.table({"id": range(1000), "t": ["abc"] * 1000}))),
    "avro": (
        AvroRecords,
        lambda: avro_file(avro_record(id="long", t="string"), [{"id": n, "t": "abc"} for n in range(1000)]),
    ),
}
UNREADABLE = (NoContainer, OSError, EOFError, ValueError, OverflowError, zlib.error, pa.ArrowException)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_ends_too_early_is_not_read(name):
    kind, make = FILES[name]
    data, container = make(), kind(wanted(id=pa.int64(), t=pa.string()))
    for length in (4, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(UNREADABLE):
            container.inspect(io.BytesIO(data[:length]), length, lambda: None)


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_changed_byte_is_refused_or_has_as_many_records_as_were_counted(name):
    kind, make = FILES[name]
    data, container = make(), kind(wanted(id=pa.int64(), t=pa.string()))
    chance = random.Random(7)
    for _ in range(60):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        try:
            found = container.inspect(io.BytesIO(damaged), len(data), lambda: None)
        except UNREADABLE:
            continue
        rows = [row for batch in container.read(io.BytesIO(damaged), 0, None, 0) for row in batch.to_pylist()]
        assert len(rows) == found.records


# -- Avro


def page_of(unpacked, packed):
    """The beginning of the header of a page of values: its kind and its sizes."""
    return b"\x15\x00\x15" + number(unpacked) + b"\x15" + number(packed)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((80_008, 2**31 - 1), "the page at byte 4 has a damaged header"),
        ((80_008, -1), "the page at byte 4 has a damaged header"),
        ((2**31 - 1, 80_008), "has 2147483647 bytes, and at most 268435456 are read. Write smaller pages"),
    ],
)
def test_a_page_of_parquet_that_promises_too_much_is_refused_before_room_is_made_for_it(sizes, reason):
    table = pa.table({"id": pa.array(range(10_000), pa.int64())})
    whole = parquet_file(table, compression="none", use_dictionary=False)
    data = whole.replace(page_of(80_008, 80_008), page_of(*sizes), 1)
    container = ParquetRows(wanted(id=pa.int64()))

    assert len(read(container, whole)) == 10_000
    assert data != whole
    before = pa.total_allocated_bytes()
    with pytest.raises(UNREADABLE, match=reason):
        container.inspect(io.BytesIO(data), len(data), lambda: None)
    assert pa.total_allocated_bytes() - before < 1 << 20
    # Nobody reads the column where it is not declared.
    assert len(read(ParquetRows(wanted(other=pa.int64())), data)) == 10_000


def test_headers_of_pages_are_read_whatever_they_have():
    texts = [str(n % 100) * 2_000 for n in range(3_000)]
    table = pa.table({"t": texts, "id": range(3_000), "l": [[n] * (n % 3) for n in range(3_000)]})
    for version in ("1.0", "2.0"):
        for dictionary in (True, False):
            data = parquet_file(
                table, use_dictionary=dictionary, data_page_version=version, data_page_size=1_000,
                write_page_checksum=dictionary, row_group_size=1_700, write_page_index=dictionary,
            )  # fmt: skip
            metadata, chunks = pq.read_metadata(io.BytesIO(data)), read_chunks(io.BytesIO(data))
            for group, leaf in itertools.product(range(2), range(3)):
                theirs, ours = metadata.row_group(group).column(leaf), chunks[group][leaf]
                assert (ours.size, ours.unpacked) == (theirs.total_compressed_size, theirs.total_uncompressed_size)
                assert (ours.has_dictionary, ours.is_bytes) == (theirs.has_dictionary_page, leaf == 0)
                assert 1 <= len(list(page_sizes(io.BytesIO(data), ours))) <= 1_700
            assert len(read(ParquetRows(wanted(t=pa.string(), l=pa.list_(pa.int64()))), data)) == 3_000


def test_times_of_int96_keep_all_digits_or_their_record_is_rejected():
    noon = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 10**9
    kind = pa.timestamp("ns", "UTC")
    table = pa.table(
        {
            "at": pa.array([noon + 1_000, noon + 1_001, None, -1, -1_000, noon], kind),
            "n": pa.array([[{"x": noon}], [], None, [], [{"x": noon}, None], [{"x": noon}, {"x": 1}]],
                          pa.list_(pa.struct([("x", kind)]))),
            "m": pa.array([[], [("a", noon)], None, [("a", 1)], [("a", None)], []], pa.map_(pa.string(), kind)),
        }
    )  # fmt: skip
    data = parquet_file(table, use_deprecated_int96_timestamps=True, row_group_size=4)
    micro = UTC_TIME
    container = ParquetRows(wanted(at=micro, n=pa.list_(pa.struct([("x", micro)])), m=pa.map_(pa.string(), micro)))
    found = read(container, data)

    assert [row if isinstance(row, str) else row["at"] for row in found.values()] == [
        datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC), "VALUE_CHANGED(at)", None, "VALUE_CHANGED(at)",
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "VALUE_CHANGED(n)",
    ]  # fmt: skip
    assert read(container, data, 1, None, 4).keys() == {5, 6}
    assert [
        row if isinstance(row, str) else row["m"]
        for row in read(ParquetRows(wanted(m=pa.map_(pa.string(), micro))), data).values()
    ][3] == "VALUE_CHANGED(m)"


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}])
def test_a_file_of_parquet_without_rows_has_none(options):
    container = ParquetRows(wanted(id=pa.int64(), t=pa.string()))
    nothing = pa.table({"id": pa.array([], pa.int64()), "t": pa.array([], pa.string())})
    assert read(container, parquet_file(nothing, **options)) == {}

    some = pa.table({"id": [1], "t": pa.array([None], pa.string())})
    file = io.BytesIO()
    with pq.ParquetWriter(file, some.schema, **options) as writer:
        for table in (nothing, some, nothing, some):
            writer.write_table(table)
    assert read(container, file.getvalue()) == {1: {"id": 1, "t": None}, 2: {"id": 1, "t": None}}


def test_times_of_int96_may_be_of_any_year():
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1600, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    table = pa.table({"at": pa.array(times, UTC_TIME)})
    data = parquet_file(table, use_deprecated_int96_timestamps=True)

    assert [row["at"] for row in read(ParquetRows(wanted(at=UTC_TIME)), data).values()] == times


def test_a_damaged_footer_of_parquet_does_not_end_the_process():
    kind = pa.map_(pa.string(), pa.int32())
    table = pa.table({"id": range(100), "m": pa.array([[("a", 1)]] * 100, kind)})
    data, container = parquet_file(table), ParquetRows(wanted(id=pa.int64(), m=kind))

    # A group of rows has another path than the schema, which is the first that has it.
    renamed = b"key_valuf".join(data.rsplit(b"key_value", 1))
    assert len(read(container, renamed)) == 100
    # The column has no NULL any more, but a histogram of two levels.
    required = data.replace(b"\x25\x02\x18\x02id", b"\x25\x00\x18\x02id", 1)
    assert required != data
    with pytest.raises(UNREADABLE, match="histogram size mismatch"):
        read(container, required)
    # The footer says that it has groups of rows without columns.
    with pytest.raises(UNREADABLE):
        read(container, data.replace(b"\x19\x1c", b"\x19\x0c"))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_blocks_of_avro_are_unpacked(codec):
    rows = [{"id": number, "t": "abc" * 100} for number in range(2_000)]
    data = avro_file(avro_record(id="long", t="string"), rows, codec)

    assert list(read(AvroRecords(wanted(id=pa.int64(), t=pa.string())), data).values()) == rows


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_blocks_of_avro_by_codecs_of_other_writers_are_unpacked(codec):
    rows = [{"id": number} for number in range(100)]
    body = io.BytesIO()
    schema = fastavro.parse_schema(avro_record(id="long"))
    for row in rows:
        fastavro.schemaless_writer(body, schema, row)
    packed = {
        "snappy": lambda: (
            pa.compress(body.getvalue(), "snappy", asbytes=True) + zlib.crc32(body.getvalue()).to_bytes(4, "big")
        ),
        "zstandard": lambda: pa.compress(body.getvalue(), "zstd", asbytes=True),
    }[codec]()
    data = container_file(json.dumps(avro_record(id="long")), codec, [(100, packed)])
    container = AvroRecords(wanted(id=pa.int64()))

    assert list(read(container, data).values()) == rows
    wrong = container_file(json.dumps(avro_record(id="long")), codec, [(100, packed[:-1])])
    with pytest.raises(UNREADABLE):
        container.inspect(io.BytesIO(wrong), len(wrong), lambda: None)


def number(value):
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def text(value):
    return number(len(value)) + value


def container_file(schema, codec, blocks):
    sync = b"s" * 16
    head = b"Obj\x01" + number(2) + text(b"avro.schema") + text(schema.encode()) + text(b"avro.codec")
    head += text(codec.encode()) + number(0) + sync
    return head + b"".join(number(count) + text(data) + sync for count, data in blocks)


def test_a_block_that_is_no_avro_is_rejected_as_a_whole_and_the_next_one_is_read():
    good = b"".join(text(value) for value in (b"a", b"b"))
    blocks = [(2, good), (2, text(b"c") + number(90) + b"d"), (1, text(b"e") + b"more"), (1, text(b"f"))]
    data = container_file(json.dumps(avro_record(t="string")), "null", blocks)
    container = AvroRecords(wanted(t=pa.string()))

    assert read(container, data) == {
        1: {"t": "a"}, 2: {"t": "b"}, 3: "NOT_AVRO", 4: "NOT_AVRO", 5: "NOT_AVRO", 6: {"t": "f"}
    }  # fmt: skip
    assert raw(container, data) == [None, None, blocks[1][1], b"", blocks[2][1], None]


BOMB_BYTES = 240 << 20


@pytest.mark.parametrize(
    ("schema", "codec", "blocks", "reason"),
    [
        (avro_record(id="long"), "lz77", [], "its codec is lz77"),
        ("no JSON", "null", [], "its schema cannot be read"),
        ({"type": "string"}, "null", [], "it is no record"),
        (avro_record(a={"type": "array", "items": "null"}), "null", [], "an array of values without bytes"),
        (avro_record(id="long"), "null", [(2**40, b"\x02")], "fewer bytes than its"),
        (avro_record(nothing="null"), "null", [(2**40, b"")], "fewer bytes than its"),
        (avro_record(id="long"), "deflate", lambda: zlib.compress(bytes(BOMB_BYTES))[2:-4], "has more than"),
        (avro_record(id="long"), "bzip2", lambda: bz2.compress(bytes(BOMB_BYTES)), "has more than"),
        (avro_record(id="long"), "xz", lambda: lzma.compress(bytes(BOMB_BYTES), preset=0), "has more than"),
        (avro_record(id="long"), "snappy", lambda: b"\xff\xff\xff\xff\x0f" + bytes(8), "has more than"),
        (
            avro_record(id="long"),
            "zstandard",
            lambda: pa.compress(bytes(BOMB_BYTES), "zstd", asbytes=True),
            "has more than",
        ),
    ],
)
def test_avro_that_cannot_be_read_is_refused_in_little_memory(schema, codec, blocks, reason):
    # The bombs are packed by their test: to pack them all whenever tests are collected takes seconds.
    packed = [(1, blocks())] if callable(blocks) else blocks
    data = container_file(schema if isinstance(schema, str) else json.dumps(schema), codec, packed)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(NoContainer, match=reason) as found:
            AvroRecords(wanted(id=pa.int64())).inspect(io.BytesIO(data), len(data), lambda: None)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.value.code == "UNREADABLE"
    # A block of 64 MiB, once as it grew and once as a whole.
    assert taken + pa.total_allocated_bytes() - before < 160 << 20


def test_values_of_logical_types_have_their_meaning():
    moment = datetime(2026, 11, 26, 12, 30, 15, 123456, tzinfo=UTC)
    schema = avro_record(
        d={"type": "int", "logicalType": "date"},
        ms={"type": "long", "logicalType": "timestamp-millis"},
        us={"type": "long", "logicalType": "timestamp-micros"},
        ns={"type": "long", "logicalType": "timestamp-nanos"},
        local={"type": "long", "logicalType": "local-timestamp-micros"},
        b={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        f={"type": "fixed", "name": "f8", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 3},
        u={"type": "string", "logicalType": "uuid"},
        t={"type": "int", "logicalType": "time-millis"},
        odd={"type": "long", "logicalType": "unknown"},
    )
    plain = json.loads(json.dumps(schema).replace("logicalType", "was"))
    micros = int(moment.timestamp()) * 10**6 + 123456
    row = {
        "d": (moment.date() - date(1970, 1, 1)).days, "ms": micros // 1000, "us": micros, "ns": micros * 1000,
        "local": micros, "b": (-12345).to_bytes(2, "big", signed=True), "f": (1).to_bytes(8, "big"),
        "u": "c0ffee00-0000-0000-0000-000000000000", "t": 77, "odd": 5,
    }  # fmt: skip
    body = io.BytesIO()
    parsed = fastavro.parse_schema(plain)
    rows = [row, {**row, "ns": micros * 1000 + 1}, {**row, "us": 2**62}, {**row, "b": b"\x7f" * 40}]
    for each in rows:
        fastavro.schemaless_writer(body, parsed, each)
    data = container_file(json.dumps(schema), "null", [(4, body.getvalue())])
    columns = wanted(
        d=pa.date32(), ms=UTC_TIME, us=UTC_TIME, ns=UTC_TIME, local=pa.timestamp("us"), b=pa.decimal128(38, 2),
        f=pa.decimal128(20, 4), u=pa.string(), t=pa.int32(), odd=pa.int64(),
    )  # fmt: skip

    found = read(AvroRecords(columns), data)

    assert found[1] == {
        "d": moment.date(), "ms": moment - timedelta(microseconds=456), "us": moment, "ns": moment,
        "local": moment.replace(tzinfo=None), "b": Decimal("-123.45"), "f": Decimal("0.0010"), "u": row["u"], "t": 77,
        "odd": 5,
    }  # fmt: skip
    assert [found[n] for n in (2, 3, 4)] == ["VALUE_CHANGED(ns)", "VALUE_CHANGED(us)", "VALUE_CHANGED(b)"]


def test_unions_enums_and_nested_types_of_avro():
    schema = avro_record(
        u=["null", "long"],
        many=["null", "int", "long", "string", "double"],
        e={"type": "enum", "name": "e", "symbols": ["A", "B"]},
        l={
            "type": "array",
            "items": ["null", {"type": "record", "name": "i", "fields": [{"name": "a", "type": "int"}]}],
        },
        m={"type": "map", "values": ["long", "string"]},
        again=["null", "i"],
    )
    rows: list[dict[str, Any]] = [
        {"u": 1, "many": 5, "e": "A", "l": [{"a": 1}, None], "m": {"k": 1}, "again": {"a": 2}},
        {"u": None, "many": None, "e": "B", "l": [], "m": {}, "again": None},
        {"u": None, "many": "text", "e": "B", "l": [], "m": {}, "again": None},
        {"u": None, "many": 1, "e": "B", "l": [], "m": {"k": 1, "l": "text"}, "again": None},
    ]
    item = pa.struct([("a", pa.int32())])
    columns = wanted(
        u=pa.int64(), many=pa.int64(), e=pa.string(), l=pa.list_(item), m=pa.map_(pa.string(), pa.int64()), again=item
    )

    found = read(AvroRecords(columns), avro_file(schema, rows))

    assert found == {
        1: {**rows[0], "m": [("k", 1)]},
        2: {**rows[1], "m": []},
        3: "VALUE_CHANGED(many)",
        4: "VALUE_CHANGED(m)",
    }


def test_a_field_is_found_by_the_name_that_it_had_before():
    schema = avro_record(id="int")
    schema["fields"].append({"name": "amount", "type": "int", "aliases": ["price"]})

    found = read(AvroRecords(wanted(price=pa.int32())), avro_file(schema, [{"id": 1, "amount": 5}]))

    assert found == {1: {"price": 5}}
    data = avro_file(schema, [])
    contents = AvroRecords(wanted(price=pa.int32())).inspect(io.BytesIO(data), len(data), lambda: None)
    assert contents.fields == (("id", "INT"),)


def test_a_schema_of_the_declaration_gives_aliases_and_defaults():
    asked = {
        "type": "record", "name": "r",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "total", "type": "double", "aliases": ["amount"]},
            {"name": "currency", "type": "string", "default": "EUR"},
        ],
    }  # fmt: skip
    container = AvroRecords(wanted(id=pa.int64(), total=pa.float64(), currency=pa.string()), json.dumps(asked))

    found = read(container, avro_file(avro_record(id="int", amount="float"), [{"id": 1, "amount": 0.5}]))
    assert found == {1: {"id": 1, "total": 0.5, "currency": "EUR"}}
    data = avro_file(avro_record(id="string"), [{"id": "x"}])
    with pytest.raises(NoContainer, match="cannot be resolved to avro.schema"):
        container.inspect(io.BytesIO(data), len(data), lambda: None)


def test_a_recursive_schema_is_read_as_deep_as_it_is_declared():
    schema = avro_record(id="int", next=["null", "r"])
    rows = [{"id": 1, "next": {"id": 2, "next": {"id": 3, "next": None}}}]
    columns = wanted(id=pa.int32(), next=pa.struct([("id", pa.int32())]))

    assert read(AvroRecords(columns), avro_file(schema, rows)) == {1: {"id": 1, "next": {"id": 2}}}


def test_records_within_each_other_to_any_depth_break_nothing_but_their_block():
    schema = avro_record(id="int", next=["null", "r"])
    deep = b"\x02\x02" * 1_000_000 + b"\x02\x00"
    data = container_file(json.dumps(schema), "null", [(1, deep), (1, b"\x04\x00")])

    assert read(AvroRecords(wanted(id=pa.int32())), data) == {1: "NOT_AVRO", 2: {"id": 2}}


def test_a_schema_that_grows_by_its_names_is_refused():
    kind: dict[str, Any] = {"type": "record", "name": "n0", "fields": []}
    for number in range(1, 60):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"n{number - 1}"}]
        kind = {"type": "record", "name": f"n{number}", "fields": fields}
    data = container_file(json.dumps(kind), "null", [])

    with pytest.raises(NoContainer, match="more than 100000 values"):
        AvroRecords(wanted(id=pa.int32())).inspect(io.BytesIO(data), len(data), lambda: None)


def test_a_day_that_is_none_is_lost():
    schema = avro_record(d={"type": "int", "logicalType": "date"})
    body = b"".join(number(day) for day in (0, 2**40, -(2**40)))
    data = container_file(json.dumps(schema), "null", [(3, body)])

    found = read(AvroRecords(wanted(d=pa.date32())), data)
    assert found == {1: {"d": date(1970, 1, 1)}, 2: "VALUE_CHANGED(d)", 3: "VALUE_CHANGED(d)"}


def test_a_file_weighs_what_its_rows_do():
    """Otherwise a small file of many equal texts would be read here, where all of it is in memory."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), ["x" * 100_000])
    data = parquet_file(pa.table({"t": column}), store_schema=False)
    found = ParquetRows(wanted(t=pa.string())).inspect(io.BytesIO(data), len(data), lambda: None)

    assert len(data) < 100_000
    assert found.size > 30_000_000


# -- random rows


@pytest.mark.parametrize("seed", range(3))
def test_random_rows_of_all_types_are_read_as_they_were_written(seed):
    chance = random.Random(seed)
    kinds = {name: kind for name, (kind, _) in TYPES.items()}
    rows = random_rows(chance, kinds, 400)
    table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
    options = {"row_group_size": chance.choice([1, 7, 400]), "compression": chance.choice(["snappy", "zstd", "gzip"])}

    assert list(read(ParquetRows(wanted(**kinds)), parquet_file(table, **options)).values()) == rows
    written = avro_file(avro_schema(kinds), avro_rows(rows, kinds), "deflate", sync_interval=1_000)
    assert list(read(AvroRecords(wanted(**kinds)), written).values()) == rows
    # Arrow writes no time of ORC that nanoseconds do not reach, nor reads one.
    times = ["m", "n", "q"]
    for name in times:
        kinds.pop(name)
    found = read(OrcRows(wanted(**kinds)), orc_file(table.drop_columns(times)))
    assert list(found.values()) == table.drop_columns(times).to_pylist()

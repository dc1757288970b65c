"""Files of texts whose records are no lines: CSV with line breaks inside quotes, XML, and whole files."""

from __future__ import annotations

import csv
import io
import json
import random

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from freshline.sources.formats import csv_files, text_files, xml_files
from freshline.sources.formats.container import NoContainer
from freshline.sources.formats.csv_files import QuotedRecords
from freshline.sources.formats.fit import CUT_BYTES, Wanted
from freshline.sources.formats.text_files import WholeFile
from freshline.sources.formats.xml_files import Elements
from freshline.sources.formats.xml_values import NoElement, to_json


def read_in_blocks(monkeypatch, size):
    for module in (csv_files, text_files, xml_files):
        monkeypatch.setattr(module, "BLOCK_BYTES", size)


@pytest.fixture(params=[5, 64, 4 << 20])
def block(request, monkeypatch):
    """How much is read at once: what does not depend on it cannot be broken by where a block ends."""
    read_in_blocks(monkeypatch, request.param)


@pytest.fixture(params=[10_007, 4 << 20])
def large_block(request, monkeypatch):
    read_in_blocks(monkeypatch, request.param)


def read(container, data, start=0, end=None, before=0):
    found = container.inspect(io.BytesIO(data), len(data), lambda: None)
    rows = [r for batch in container.read(io.BytesIO(data), start, end, before) for r in batch.to_pylist()]
    if start == 0 and end is None:
        assert len(rows) == found.records
    return rows


# -- CSV


def records(data, most=1_000, **options):
    rows = read(QuotedRecords(most, **options), data)
    return [(row["_freshline_line"], row["_freshline_verdict"] or row["value"]) for row in rows]


def test_a_line_break_inside_quotes_is_part_of_the_value(block):
    data = b'a,"x\ny",b\r\n\n"1\r\n2""\n3",,\r\nlast'

    assert records(data) == [(1, b'a,"x\ny",b'), (4, b'"1\r\n2""\n3",,'), (7, b"last")]


def test_a_quote_within_a_value_begins_nothing(block):
    assert records(b'5" disk,a\nb,6" disk\n') == [(1, b'5" disk,a'), (2, b'b,6" disk')]


def test_a_byte_order_mark_is_no_part_of_the_first_record(block):
    assert records(b'\xef\xbb\xbf"a\nb"\n') == [(1, b'"a\nb"')]


def test_a_quote_that_is_not_closed_refuses_the_file(block):
    with pytest.raises(NoContainer, match="in the record of line 3 is not closed") as found:
        records(b'a,b\nc,d\n"e,f\n')
    assert found.value.code == "UNREADABLE"
    with pytest.raises(NoContainer, match="in the record of line 2 is not closed"):
        records(b'a,b\nc,"' + b"x\n" * 2_000)


def test_a_record_that_is_too_large_is_cut_and_the_next_one_is_whole(large_block):
    large = b'a,"' + b"x\n" * 100_000 + b'""",b'
    found = records(b"1\n" + large + b"\n2\n" + b"y" * 200_000 + b'\n3,"\n"\n', most=100_000)

    assert found == [(1, b"1"), (2, "TOO_LARGE"), (100_003, b"2"), (100_004, "TOO_LARGE"), (100_005, b'3,"\n"')]
    rows = read(QuotedRecords(100_000), large + b"\n")
    assert rows[0]["value"] == large[:CUT_BYTES]


def test_a_quote_with_an_escape_before_it_ends_nothing(large_block):
    data = b'a;"x\\"\ny\\\\";b\n"' + b'\\"\n' * 60_000 + b'\\\\"\nlast\n"1""\n2;3\n'
    found = records(data, most=100_000, separator=";", escape="\\")

    # A quote behind a closing one has no meaning, and the record is rejected later.
    last = [(60_004, b"last"), (60_005, b'"1""'), (60_006, b"2;3")]
    assert found == [(1, b'a;"x\\"\ny\\\\";b'), (3, "TOO_LARGE"), *last]


def test_the_code_itself_is_sent_to_tasks():
    """A machine of a cluster has nothing but pyarrow."""
    container = QuotedRecords(1_000, ";", "\\")
    for module in container.modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        assert b"_Ending" in cloudpickle.dumps(container)
    finally:
        for module in container.modules:
            cloudpickle.unregister_pickle_by_value(module)


def test_the_first_record_names_the_columns(block):
    data = b'"a\nb",c\n1,2\n'
    container = QuotedRecords(1_000)

    assert container.inspect(io.BytesIO(data), 0, lambda: None).first == b'"a\nb",c'
    (batch,) = container.behind_header().read(io.BytesIO(data), 0, None, 0)
    assert batch.to_pydict()["value"] == [b"1,2"]


def test_parts_of_a_file_have_its_records_once(monkeypatch):
    monkeypatch.setattr(csv_files, "PART_BYTES", 40)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 16)
    data = b"\xef\xbb\xbfhead\n" + b"".join(b'%d,"a\n\nb"\n' % n for n in range(50))
    container = QuotedRecords(1_000)
    found = container.inspect(io.BytesIO(data), len(data), lambda: None)
    starts = [(0, 0), *found.breaks]
    ends = [*(place for place, _ in found.breaks), None]
    parts = [read(container, data, start, end, before) for (start, before), end in zip(starts, ends, strict=True)]

    assert len(parts) > 5
    assert [row for part in parts for row in part] == read(container, data)


@pytest.mark.parametrize("seed", range(4))
def test_random_records_are_those_of_pythons_reader(seed, block):
    chance = random.Random(seed)
    rows = [["".join(chance.choices('ab,"\n\r x', k=chance.randrange(6))) for _ in range(3)] for _ in range(50)]
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=chance.choice(["\n", "\r\n"])).writerows(rows)

    found = [
        row
        for _, record in records(text.getvalue().encode())
        for row in csv.reader(io.StringIO(record.decode(), newline=""))
    ]

    assert found == rows


# -- XML

SCHEMA = pa.schema([("id", pa.int32()), ("t", pa.string())])


def elements(data, most=1_000, tag="row", schema=SCHEMA):
    rows = read(Elements(Wanted(schema, most), tag), data)
    return [
        (row["_freshline_record"], row["_freshline_line"], row["_freshline_verdict"] or row["_freshline_json"])
        for row in rows
    ]


def values(data, **options):
    return [value for _, _, value in elements(data, **options)]


def test_each_element_of_the_name_is_a_record(block):
    data = b"""\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE rows [ <!ENTITY x "<row>1</row>"> ]>
<!-- <row><id>0</id></row> -->
<rows at="<">
  <row><id>1</id><t>a &lt; b</t></row> <row id="2"/>
  <rowing><id>9</id></rowing>
  <group><row id='3' t = "x>y">
    <other><row><id>8</id></row></other><![CDATA[</row>]]><!-- </row> --></row></group>
</rows>
""".replace(b' at="<"', b' at=">"')

    assert elements(data) == [
        (1, 5, '{"id": 1, "t": "a < b"}'), (2, 5, '{"id": 2}'), (3, 7, '{"id": 3, "t": "x>y"}')
    ]  # fmt: skip


def test_a_broken_element_is_rejected_and_the_next_one_is_read(block):
    data = b'<r><row><id>1</row><row><id>2</id></row><row id="3><t>x</t></row><row><id>x</id></row>'
    data += b"<row><t>&no;</t></row><row/></r>"

    assert values(data) == ["NOT_XML", '{"id": 2}', "NOT_XML", "NOT_XML", "NOT_XML", "{}"]
    rows = read(Elements(Wanted(SCHEMA, 1_000), "row"), data)
    assert rows[0]["value"] == b"<row><id>1</row>"
    assert rows[2]["value"] == b'<row id="3><t>x</t></row>'


def test_many_brackets_in_an_attribute_take_no_time():
    data = b'<r><row t="' + b">" * 1_000_000 + b'"/><row/></r>'

    assert values(data, most=2_000_000) == [f'{{"t": "{">" * 1_000_000}"}}', "{}"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<r><row/>", "it ends before <r> does"),
        (b"<r><row/></s></r>", "</?s> ends in line 1 without having begun"),
        (b"<row/></row>", "<row> ends in line 1 without having begun"),
        (b"nothing of the kind", "there is no element in it"),
        ("<r><row/></r>".encode("utf-16"), "it is UTF-16 or UTF-32"),
        (b'<?xml version="1.0" encoding="ISO-8859-1"?><r/>', "it is ISO-8859-1, and only UTF-8"),
        (b"<a>" * 2_000, "more than 1000 elements"),
    ],
)
def test_a_file_whose_frame_is_not_whole_is_refused(data, reason, block):
    with pytest.raises(NoContainer, match=reason):
        elements(data)


def test_an_element_that_does_not_end_is_rejected_with_its_bytes(block):
    data = b"<row><id>1</id></row><row><id>2</id>"

    assert values(data) == ['{"id": 1}', "NOT_XML"]


def test_an_element_that_is_too_large_is_cut_and_the_next_one_is_read(large_block):
    data = b"<r><row><t>" + b"x" * 400_000 + b"</t></row>\n<row " + b"y" * 400_000 + b"/><row><id>1</id></row></r>"

    assert elements(data, most=100_000) == [(1, 1, "TOO_LARGE"), (2, 2, "TOO_LARGE"), (3, 2, '{"id": 1}')]


def test_bytes_that_are_no_utf8_are_left_to_the_check_of_every_format(block):
    assert values(b"<r><row><t>\xff</t></row><row/></r>") == [None, "{}"]


KINDS = pa.schema(
    [
        ("n", pa.int64()), ("d", pa.decimal128(10, 2)), ("f", pa.float64()), ("b", pa.bool_()), ("s", pa.string()),
        ("x", pa.binary()), ("day", pa.date32()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32())),
        ("st", pa.struct([("a", pa.int32()), ("_VALUE", pa.string()), ("l", pa.list_(pa.string()))])),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("<n> +007 </n>", {"n": 7}), ("<n>-0</n>", {"n": 0}), ("<d>.5</d>", {"d": 0.5}), ("<d>5.</d>", {"d": 5}),
        ("<f>1E5</f>", {"f": 1e5}), ("<n/>", {"n": None}), ("<n></n>", {"n": None}), ("<b>1</b>", {"b": True}),
        ("<b>false</b>", {"b": False}), ("<b>yes</b>", None), ("<n>1x</n>", None), ("<n>.</n>", None),
        ("<n>e5</n>", None),
        ("<s> a  b </s>", {"s": " a  b "}), ("<s/>", {"s": ""}), ("<s>a<![CDATA[<b>]]>c</s>", {"s": "a<b>c"}),
        ("<s>a<b/>c</s>", None), ('<s a="1">x</s>', {"s": "x"}), ('<s xsi:nil="true"/>', {"s": None}),
        ("<x> QUI= </x>", {"x": "QUI="}), ("<day> 2026-01-02\n</day>", {"day": "2026-01-02"}),
        ("<l>1</l><other>5</other><l>2</l>", {"l": [1, 2]}), ("<n>1</n><n>2</n>", None), ("", {}),
        ("<m><k>1</k><j>2</j></m>", {"m": {"k": 1, "j": 2}}), ("<m><k>1</k><k>2</k></m>", None), ("<m/>", {"m": {}}),
        ('<st a="1">text</st>', {"st": {"a": 1, "_VALUE": "text"}}),
        ("<st><a>2</a><l>x</l><l/></st>", {"st": {"a": 2, "_VALUE": "", "l": ["x", ""]}}),
        ("<N>1</N>", {}), ("<n>1</n", None), ("<n>&#1;</n>", None),
    ],
)  # fmt: skip
def test_an_element_becomes_an_object_of_json(written, found):
    element = f"<row>{written}</row>".encode()
    if found is None:
        with pytest.raises(NoElement):
            to_json(element, KINDS)
    else:
        assert json.loads(to_json(element, KINDS)) == found


def test_an_attribute_and_an_element_of_one_name_are_two_values():
    with pytest.raises(NoElement, match="more than once"):
        to_json(b'<row n="1"><n>2</n></row>', KINDS)
    assert to_json(b'<row l="1"><l>2</l></row>', KINDS) == '{"l": [1, 2]}'


def test_a_million_elements_in_each_other_break_nothing():
    deep = b"<row>" + b"<a>" * 300_000 + b"</a>" * 300_000 + b"<n>1</n></row>"

    assert to_json(deep, KINDS) == '{"n": 1}'


# -- whole files


def test_a_file_is_one_record(block):
    (row,) = read(WholeFile(100), b"\xef\xbb\xbfa\r\n\nb")

    assert (row["value"], row["_freshline_record"], row["_freshline_verdict"]) == (b"a\r\n\nb", 1, None)


def test_of_a_file_that_is_too_large_only_the_beginning_is_read(block):
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size=-1):
            self.given += size
            return b"x" * size

    source = Endless()
    (batch,) = WholeFile(200_000).read(source, 0, None, 0)
    (row,) = batch.to_pylist()

    assert (len(row["value"]), row["_freshline_verdict"]) == (CUT_BYTES, "TOO_LARGE")
    assert source.given < 9 << 20

"""Lines are found as they stand in the files, whatever their size and wherever a block ends."""

from __future__ import annotations

import bz2
import gzip
import random
import time
import tracemalloc
from dataclasses import replace

import pyarrow as pa
import pytest

from freshline.sources.files import lines
from freshline.sources.files.lines import LineReading, Piece, inspect_files, pieces_of, read_pieces
from freshline.sources.files.position import FileMark

JSON = LineReading("json", 1000, follow_links=False)
CSV = LineReading("csv", 1_000_000, follow_links=False)
EVERY = LineReading("every", 1000, follow_links=False)


def mark(path):
    status = path.stat()
    return FileMark(path.name, status.st_size, status.st_mtime_ns)


def read(path, reading):
    """The file as it was inspected, and its records: number, bytes, verdict."""
    (found,) = inspect_files(path.parent, [mark(path)], reading)
    if found.error is not None:
        return found, []
    rows = [row for batch in read_pieces(pieces_of(path.parent, [found], [0]), reading) for row in batch.to_pylist()]
    return found, [(row[lines.PLACE], row[lines.VALUE], row[lines.VERDICT]) for row in rows]


def expected(data, reading):
    """The same, by the plainest of means."""
    texts = data.split(b"\n")
    if texts[-1] == b"":
        texts.pop()
    out = []
    for number, text in enumerate(texts, 1):
        text = text.removeprefix(lines.BYTE_ORDER_MARK).rstrip(b"\r")
        if number <= reading.skip or not (text.strip(b" ") if reading.format == "json" else text):
            continue
        large = len(text) > reading.most_bytes
        out.append((number, text[: lines.CUT_BYTES] if large else text, "TOO_LARGE" if large else None))
    return out


@pytest.mark.parametrize("block", [2, 7, 64])
def test_lines_are_the_same_wherever_blocks_and_pieces_end(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    monkeypatch.setattr(lines, "PIECE_BYTES", 3 * block)
    chance = random.Random(block)
    parts = [
        b"",
        b" ",
        b"  \r",
        b"x",
        b"abc",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf{}",
        b"\r",
        b"\xff",
        b'{"a":1}',
        b"y" * 40,
    ]
    for turn in range(60):
        data = b"".join(chance.choice(parts) + chance.choice([b"\n", b"\r\n"]) for _ in range(chance.randrange(12)))
        data += chance.choice([b"", b"end", b"z" * 33])
        kind = chance.choice([JSON, CSV, replace(CSV, skip=1)])
        reading = replace(kind, most_bytes=chance.choice([20, 1000]))
        file = tmp_path / str(turn)
        file.write_bytes(data)

        found, rows = read(file, reading)

        if not data:
            assert found.error == "EMPTY_FILE"
            continue
        wanted = expected(data, reading)
        assert [(number, verdict) for number, _, verdict in sorted(rows)] == [(n, verdict) for n, _, verdict in wanted]
        # Only the beginning of a line that is too large is as it is written, with its byte order mark.
        assert [text for _, text, verdict in sorted(rows) if not verdict] == [text for _, text, v in wanted if not v]
        assert found.records(reading.skip) == len(wanted)


def test_packed_files_are_unpacked_and_damaged_ones_say_why(tmp_path):
    text = b"".join(b"%d\n" % number for number in range(5000))
    packed = {
        ".gz": gzip.compress(text) + gzip.compress(b"member\n"),
        ".bz2": bz2.compress(text) + bz2.compress(b"member\n"),
        ".zst": pa.compress(text, codec="zstd", asbytes=True) + pa.compress(b"member\n", codec="zstd", asbytes=True),
        ".lz4": pa.compress(text, codec="lz4", asbytes=True) + pa.compress(b"member\n", codec="lz4", asbytes=True),
    }
    for ending, data in packed.items():
        file = tmp_path / f"a{ending}"
        file.write_bytes(data)
        found, rows = read(file, JSON)
        assert (found.error, len(rows)) == (None, 5001), (ending, found)
        for cut in (1, 3, len(data) // 3, len(data) - 1):
            file.write_bytes(data[:cut])
            found, _ = read(file, JSON)
            assert found.error == "UNREADABLE", (ending, cut)
            assert found.reason
        file.write_bytes(b"")
        assert read(file, JSON)[0].error == "EMPTY_FILE"
        # The bytes behind are no padding, but may be the rest of a damaged file.
        member = data.rindex(data[:3])
        file.write_bytes(data[:member] + b"?" + data[member + 1 :])
        assert read(file, JSON)[0].error == "UNREADABLE", ending


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_streams_of_bzip2_are_read_one_behind_the_other_with_zeros_behind(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    file = tmp_path / "a.bz2"
    whole = b"".join(bz2.compress(text) for text in (b"a\nb", b"", b"c\n", b"d\n"))
    for data, error in {
        whole: None, whole + bytes(9): None, bytes(9): "UNREADABLE", whole + b"\0x": "UNREADABLE",
        whole[:-1]: "UNREADABLE", whole + whole[:3]: "UNREADABLE", bz2.compress(b""): "EMPTY_FILE",
    }.items():  # fmt: skip
        file.write_bytes(data)
        found, rows = read(file, JSON)
        assert (found.error, [text for _, text, _ in rows]) == (error, [b"a", b"bc", b"d"] if error is None else [])


def test_plain_json_is_objects_that_end_with_their_only_closing_brace_in_whole_characters(tmp_path):
    file = tmp_path / "a.json"
    plain = [b"{}\n", b'{"a":1}\r\n{"b":"x"}', '{"a":"ü✓😀"}'.encode()]
    other = [
        b"{}\n\n{}",
        b" {}",
        b"{} ",
        b"{}{}",
        b'{"a":{}}',
        b'{"a":"}"}',
        b"\xef\xbb\xbf{}",
        b"x",
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        rb'{"a":"\ud800"}',
        b"{" + b" " * 1000 + b"}",
    ]
    for data in (*plain, *other):
        file.write_bytes(b"{}\n" + data)
        assert read(file, JSON)[0].plain == (data in plain), data


def test_a_bomb_takes_no_more_memory_than_a_block(tmp_path):
    file = tmp_path / "bomb.gz"
    with gzip.open(file, "wb", 1) as packed:
        for _ in range(100):
            packed.write(b"x" * (1 << 20))
    tracemalloc.start()
    found, rows = read(file, JSON)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [(number, verdict, len(text)) for number, text, verdict in rows] == [(1, "TOO_LARGE", lines.CUT_BYTES)]
    assert found.records(0) == 1
    assert most < 8 * lines.BLOCK_BYTES


def test_a_file_that_ends_early_or_is_gone_when_it_is_read_is_an_error(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"1\n2\n3\n")
    (found,) = inspect_files(tmp_path, [mark(file)], JSON)
    pieces = pieces_of(tmp_path, [found], [0])
    assert sum(batch.num_rows for batch in read_pieces(pieces, JSON)) == found.lines == 3
    file.write_bytes(b"1\n")

    with pytest.raises(OSError, match=rf"{lines.ENDED} \(it is shorter than it was\) of .*/a"):
        list(read_pieces(pieces, JSON))
    with pytest.raises(OSError, match=rf"{lines.ENDED} \(No such file or directory\) of /nowhere"):
        list(read_pieces([Piece(1, b"/nowhere")], JSON))


@pytest.mark.parametrize("reading", [JSON, CSV, EVERY])
def test_a_text_in_utf_16_is_no_text(tmp_path, reading):
    file = tmp_path / "a"
    for text in ("a\nb\n", "{}\n", "x" * 3000):
        for order in ("utf-16-le", "utf-16-be"):
            file.write_bytes(("\ufeff" + text).encode(order))
            found, rows = read(file, reading)
            assert (found.error, rows) == ("UNREADABLE", [])
            assert "UTF-16" in found.reason


def test_a_million_carriage_returns_before_a_line_feed_are_no_work(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"x" + b"\r" * 3_000_000 + b"\ny\r\r\n")
    begun = time.process_time()

    _, rows = read(file, replace(CSV, most_bytes=4_000_000))

    assert rows == [(1, b"x", None), (2, b"y", None)]
    assert time.process_time() - begun < 5


def test_where_every_line_is_a_record_empty_ones_are_too(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"\n a\r\n\n\n b")

    found, rows = read(file, EVERY)

    assert rows == [(1, b"", None), (2, b" a", None), (3, b"", None), (4, b"", None), (5, b" b", None)]
    assert found.lines == 5

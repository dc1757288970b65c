"""The body of a post: what becomes a line, what stays as it is, and what is refused as a whole."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest

from freshline.sources.http.body import BodyError, LargeBodyError, lines_of_json, unpack


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{"a": 1}', [b'{"a": 1}']),
        (b'[{"a": 1}, {"a": 2}]', [b'{"a": 1}', b'{"a": 2}']),
        (b" [ ] ", []),
        (b'[{"a": "],[{\\"\\\\"},2]', [b'{"a": "],[{\\"\\\\"}', b"2"]),
        (b"[[1, [2]], []]", [b"[1, [2]]", b"[]"]),
        ('{"a": "\u2028\u0085"}'.encode(), ['{"a": "\u2028\u0085"}'.encode()]),
        (b'\xef\xbb\xbf{"a": 1}\r\n', [b'{"a": 1}']),
        (b'{"a": "\\n"}', [b'{"a": "\\n"}']),
        # Values that Python reads, and JSON has not, are for the format to judge.
        (b'[NaN, {"a": Infinity}]', [b"NaN", b'{"a": Infinity}']),
        # The digits and the names are those that were sent.
        (b'[{"a": 1.10, "a": 1e400}]', [b'{"a": 1.10, "a": 1e400}']),
        (b"[" + b"9" * 10_000 + b"]", [b"9" * 10_000]),
        (b'"half \\ud800"', [b'"half \\ud800"']),
    ],
)
def test_a_value_is_a_line_and_a_list_is_one_for_each_element(body, lines):
    assert lines_of_json(body) == b"".join(line + b"\n" for line in lines)


@pytest.mark.parametrize("between", [b"\n", b"\r\n", b"\r", b"\n\n\t\n"])
def test_line_ends_within_a_value_are_blanks(between):
    value = b'{"a":' + between + b"1," + between + b'"b": [2,' + between + b"3]}"
    line = lines_of_json(value)

    assert (line.count(b"\n"), line.count(b"\r")) == (1, 0)
    assert json.loads(line) == {"a": 1, "b": [2, 3]}
    assert lines_of_json(b"[" + between + value + between + b"," + value + b"]") == line + line


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b'{"a": 1', b"[1", b"[1,", b"[1,]", b"[,1]", b"[1 2]", b"]", b"nul", b'{"a" 1}'),
        *(b'{"a": 1}\n{"a": 2}', b"[1] 2", b"[1],", b'{"a": "x\ny"}', b'{"a": "\x00"}', b"\xff"),
        b'{"a": "\xed\xa0\x80"}',
        *('{"a": 1}'.encode("utf-16"), b"[" * 100_000, b'{"a":' * 100_000),
    ],
)
def test_a_body_that_is_no_json_is_refused_as_a_whole(body):
    with pytest.raises(BodyError) as refused:
        lines_of_json(body)

    assert str(refused.value).endswith(".")


def test_lines_sent_as_one_value_are_an_error_that_says_what_to_do():
    with pytest.raises(BodyError, match=r"at character 8, there is more.*application/x-ndjson"):
        lines_of_json(b'{"a": 1}\n{"a": 2}\n')


@pytest.mark.parametrize("data", [b"", b"x", b"y" * 3_000_000, bytes(range(256)) * 20_000])
def test_gzip_is_unpacked(data):
    packed = gzip.compress(data, mtime=0)

    assert unpack(packed, len(data)) == data
    assert unpack(packed + packed, 2 * len(data)) == data + data
    if data:
        with pytest.raises(LargeBodyError):
            unpack(packed, len(data) - 1)
        with pytest.raises(LargeBodyError):
            unpack(packed + packed, 2 * len(data) - 1)


@pytest.mark.parametrize("cut", [0, 1, 9, 10, 15, -9, -8, -4, -1])
def test_gzip_that_ends_early_is_refused(cut):
    with pytest.raises(BodyError):
        unpack(gzip.compress(b"x" * 100_000)[: cut or 0], 1 << 20)


@pytest.mark.parametrize(
    "body",
    [b"{}", zlib.compress(b"x"), gzip.compress(b"x", mtime=0) + b"\0", gzip.compress(b"x", mtime=0)[:-8] + bytes(8)],
)
def test_a_body_that_is_no_gzip_is_refused(body):
    with pytest.raises(BodyError):
        unpack(body, 1 << 20)


@pytest.mark.seconds
def test_a_bomb_is_left_at_the_limit():
    bomb = gzip.compress(bytes(200 << 20), 9)
    tracemalloc.start()
    with pytest.raises(LargeBodyError):
        unpack(bomb, 1 << 20)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 8 << 20

"""The body of a post becomes the content of a landing file, or is refused as a whole.

Lines are stored as they come, so that what is no record goes to quarantine as it is, like a line of any file. Only what
cannot be cut into records is refused: a damaged body has none that could be kept.
"""

from __future__ import annotations

import json
import re
import zlib

_AS_GZIP = 16 + zlib.MAX_WBITS
_BLOCK_BYTES = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
_LINE_ENDS = re.compile(r"[\r\n]+")
# Where a value ends is all that is asked for: numbers keep their digits, and objects are not kept.
_VALUES = json.JSONDecoder(object_pairs_hook=lambda _: None, parse_float=str, parse_int=str, parse_constant=str)


class BodyError(ValueError):
    """A body that is not what its headers say, in one sentence."""


class LargeBodyError(ValueError):
    """A body that is too large once it is unpacked."""


def unpack(body: bytes, most: int) -> bytes:
    """A body of gzip unpacked, in one member or several. Never keeps more than `most` bytes and a block.

    >>> import gzip
    >>> unpack(gzip.compress(b"a") + gzip.compress(b"b"), 10)
    b'ab'

    Raises BodyError and LargeBodyError.
    """
    found = bytearray()
    rest = body
    try:
        while True:
            member = zlib.decompressobj(_AS_GZIP)
            while not member.eof:
                block = member.decompress(rest, min(_BLOCK_BYTES, most + 1 - len(found)))
                rest = member.unused_data if member.eof else member.unconsumed_tail
                found += block
                if len(found) > most:
                    raise LargeBodyError
                if not block and not rest and not member.eof:
                    raise BodyError("the body ends within its gzip. Send all of it.")
            if not rest:
                return bytes(found)
    except zlib.error as error:
        raise BodyError("the body is not gzip, as Content-Encoding says. Correct the header or the body.") from error


def lines_of_json(body: bytes) -> bytes:
    r"""One value of JSON as a line, or each element of a list. The text of a value stays as it is, but for its lines.

    >>> lines_of_json(b'[{"a": 1.50},\n {"a":\n 2}]')
    b'{"a": 1.50}\n{"a":  2}\n'

    Raises BodyError.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BodyError("the body is not UTF-8. Send JSON in UTF-8.") from error
    begin = _skip(text, 0)
    try:
        if text[begin : begin + 1] == "[":
            values, end = _elements(text, begin + 1)
        else:
            end = _end_of_value(text, begin)
            values = [text[begin:end]]
    except RecursionError as error:
        raise BodyError("the body is nested too deeply. Send flatter values.") from error
    if _skip(text, end) != len(text):
        raise BodyError(
            f"behind the value of JSON, at character {end}, there is more. Send several values as a list, or one on "
            "each line as application/x-ndjson."
        )
    # A line end within a value stands between two of its signs: in a text of JSON it is an escape.
    return "".join(f"{_LINE_ENDS.sub(' ', value)}\n" for value in values).encode()


def _elements(text: str, at: int) -> tuple[list[str], int]:
    """The elements of a list that begins before `at`, and where it ends."""
    found: list[str] = []
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        end = _end_of_value(text, at)
        found.append(text[at:end])
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return found, at + 1
        if text[at : at + 1] != ",":
            raise BodyError(f"the body is no list of JSON: at character {at} there is neither a comma nor its end.")
        at = _skip(text, at + 1)


def _end_of_value(text: str, at: int) -> int:
    try:
        return _VALUES.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise BodyError(
            f"the body is not JSON: {error.msg} at character {error.pos}. Correct it, or send lines as "
            "application/x-ndjson."
        ) from error


def _skip(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()

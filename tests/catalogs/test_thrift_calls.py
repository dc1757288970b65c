"""Answers of a metastore that are none: they cost no memory, and are errors of the catalog."""

from __future__ import annotations

import struct

import pytest
from thrift.transport.TTransport import TMemoryBuffer

from freshline.catalogs.hive.metastore import Metastore
from freshline.catalogs.hive.registrar import Hive
from freshline.catalogs.hive.thrift_calls import Calls
from freshline.errors import CatalogError

REPLY = struct.pack("!I", 0x80010002) + struct.pack("!I", 17) + b"get_all_databases" + struct.pack("!I", 1)


class Answer:
    """The side of a connection that has answered already."""

    def __init__(self, answer: bytes) -> None:
        buffer = TMemoryBuffer(answer)
        self.read, self.readAll = buffer.read, buffer.readAll

    def write(self, _: bytes) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    "answer",
    [
        REPLY + b"\x0f\x00\x00\x0b" + struct.pack("!i", 2**31 - 1),
        REPLY + b"\x0f\x00\x00\x0b" + struct.pack("!ii", 1, 2**31 - 1) + b"x",
        REPLY + b"\x0f\x00\x00\x0b" + struct.pack("!ii", 1, 2) + b"\xff\xfe\x00",
        REPLY[:20],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
    ],
    ids=["many", "long", "no-utf-8", "cut", "http", "nothing"],
)
def test_an_answer_that_is_none_is_an_error_of_the_catalog(answer):
    opened = Metastore(Hive("thrift://metastore:9083"), Calls(Answer(answer)))

    with pytest.raises(CatalogError, match="the metastore does not answer"):
        list(opened.find("w", ["default.orders"]))

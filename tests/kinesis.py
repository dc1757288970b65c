"""A Kinesis service for a run of tests: moto's server, on loopback, with what it does otherwise than AWS set right.

moto 5.2.5 routes records of a closed shard's keys to that shard, copies the records of merged shards into the new one,
numbers records from 1 in each shard, says that a shard has nothing more at the end of a page, and never says that a
closed one has come to its end. A reader that is right for AWS would find that wrong, and the other way round.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import md5
from itertools import count
from pathlib import Path
from typing import Any

import boto3
from moto.kinesis import models
from moto.kinesis.utils import decompose_shard_iterator
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

REGION, ACCOUNT = "eu-west-1", "123456789012"
MAGIC = b"\xf3\x89\x9a\xc2"

# Numbers grow over all shards, and have as many digits as those of AWS, too many for a BIGINT.
_NAMES = count()
_NUMBERS = count(49 * 10**54 + 10**10, 10**6 + 7)


class _Shard(models.Shard):
    def put_record(self, partition_key: str, data: str, explicit_hash_key: str) -> str:
        number = next(_NUMBERS)
        self.records[number] = models.Record(partition_key, data, number, explicit_hash_key)
        return str(number)

    def get_records(self, last_sequence_id: str, limit: int | None) -> tuple[list[Any], int, int]:
        records, last, behind = super().get_records(last_sequence_id, limit)
        if any(number > last for number in self.records):
            behind = max(1, behind)
        return records, last, behind

    def is_at_end(self, last_sequence_id: str) -> bool:
        return not self.is_open and not any(number > int(last_sequence_id) for number in self.records)


class _Stream(models.Stream):
    def _open_shard(self, first: int, last: int, *parents: str) -> None:
        number = 1 + max(shard._shard_id for shard in self.shards.values())
        shard = _Shard(number, first, last, *parents)
        self.shards[shard.shard_id] = shard
        for parent in parents:
            self.shards[parent].is_open = False

    def split_shard(self, shard_to_split: str, new_starting_hash_key: str) -> None:
        shard, middle = self.shards[shard_to_split], int(new_starting_hash_key)
        assert shard.is_open
        assert shard.starting_hash < middle <= shard.ending_hash
        self._open_shard(shard.starting_hash, middle - 1, shard_to_split)
        self._open_shard(middle, shard.ending_hash, shard_to_split)

    def merge_shards(self, shard_to_merge: str, adjacent_shard_to_merge: str) -> None:
        one, other = self.shards[shard_to_merge], self.shards[adjacent_shard_to_merge]
        assert one.is_open
        assert other.is_open
        first, last = min(one.starting_hash, other.starting_hash), max(one.ending_hash, other.ending_hash)
        self._open_shard(first, last, shard_to_merge, adjacent_shard_to_merge)

    def get_shard_for_key(self, partition_key: str, explicit_hash_key: str) -> Any:
        key = int(explicit_hash_key) if explicit_hash_key else hash_of(partition_key)
        return next(
            each for each in self.shards.values() if each.is_open and each.starting_hash <= key <= each.ending_hash
        )


_get_records = models.KinesisBackend.get_records


def _get_records_to_the_end(
    self: Any, stream_arn: Any, shard_iterator: str, limit: int | None
) -> tuple[Any, list[Any], int]:
    following, records, behind = _get_records(self, stream_arn, shard_iterator, limit)
    name, shard, last = decompose_shard_iterator(following)
    at_end = self.streams[name].shards[shard].is_at_end(last)
    return None if at_end else following, records, behind


def hash_of(key: str) -> int:
    """The hash by which a key has a shard."""
    return int(md5(key.encode(), usedforsecurity=False).hexdigest(), 16)


class _Quiet(WSGIRequestHandler):
    def log_request(self, *args: Any, **more: Any) -> None:
        """Not said: there are thousands."""


Answer = Callable[[dict[str, Any]], tuple[int, dict[str, Any] | bytes]]


def error(code: str, status: int = 400, message: str = "") -> Answer:
    """An answer that is an error."""
    return lambda _: (status, {"__type": code, "message": message})


def page_of_a_proxy(body: bytes) -> Answer:
    """An answer that is none of the service."""
    return lambda _: (200, body)


def empty_page(asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """An answer without records, although there are some: AWS gives these where a shard has long stretches without."""
    return 200, {"Records": [], "NextShardIterator": asked["ShardIterator"], "MillisBehindLatest": 5_000}


@dataclass
class KinesisServer:
    """The service. Its streams stay while it is away.

    `answers` are those that it gives instead of its own to the next questions of a kind, one after another. `asked`
    counts the questions. No question is answered while `is_hanging` is set.
    """

    certificate: tuple[Path, Path] | None = None
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    is_hanging: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    _server: BaseWSGIServer | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}" if self.certificate is None else f"https://localhost:{self.port}"

    # -- the process

    def start(self) -> None:
        """Listen, on the port of the last time where there was one."""
        context = None
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
        self._server = make_server(
            "127.0.0.1", self.port, self._app, threaded=True, ssl_context=context, request_handler=_Quiet
        )
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take it away. Ending it again changes nothing."""
        self.is_hanging.clear()
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The service takes questions, and answers none."""
        self.is_hanging.set()
        try:
            yield
        finally:
            self.is_hanging.clear()

    def _app(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        operation = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        self.asked[operation] += 1
        while self.is_hanging.is_set():
            threading.Event().wait(0.02)
        waiting = self.answers.get(operation)
        if not waiting:
            answer: Iterable[bytes] = _moto(environ, start_response)
            return answer
        asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        status, body = waiting.pop(0)(asked)
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        start_response(f"{status} it is", [("Content-Type", "application/x-amz-json-1.1")])
        return [text]

    # -- what tests do with it

    @property
    def streams(self) -> dict[str, Any]:
        found: dict[str, Any] = models.kinesis_backends[ACCOUNT][REGION].streams
        return found

    def create(self, shards: int = 1, name: str = "", hours: int = 24) -> str:
        """A stream, whose records are kept for so many hours; its name."""
        name = name or f"stream-{next(_NAMES)}"
        models.kinesis_backends[ACCOUNT][REGION].create_stream(name, shards, retention_period_hours=hours)
        return name

    def delete(self, name: str) -> None:
        del self.streams[name]

    def send(self, name: str, records: Sequence[bytes], *, key: str = "", shard: str = "") -> None:
        """Put records one after another, by the keys `k0`, `k1`, .. or one key, or into one shard."""
        for number, data in enumerate(records):
            at = {"ExplicitHashKey": str(self.streams[name].shards[shard].starting_hash)} if shard else {}
            self.client.put_record(StreamName=name, Data=data, PartitionKey=key or f"k{number}", **at)

    @cached_property
    def client(self) -> Any:
        return boto3.client(
            "kinesis",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="tests",
            aws_secret_access_key="tests",
            verify=None if self.certificate is None else str(self.certificate[0]),
        )

    def split(self, name: str, shard: str) -> list[str]:
        """Split a shard in the middle; the new ones."""
        before, found = set(self.streams[name].shards), self.streams[name].shards[shard]
        self.streams[name].split_shard(shard, str((found.starting_hash + found.ending_hash + 1) // 2))
        return sorted(self.streams[name].shards.keys() - before)

    def merge(self, name: str, one: str, other: str) -> str:
        """Merge two shards that are beside each other; the new one."""
        before = set(self.streams[name].shards)
        self.streams[name].merge_shards(one, other)
        (new,) = self.streams[name].shards.keys() - before
        return str(new)

    def open_shards(self, name: str) -> list[str]:
        return [shard for shard, found in self.streams[name].shards.items() if found.is_open]

    def expire(self, name: str, shard: str, number: int | None = None) -> None:
        """Let the oldest records of a shard expire, so many or all; a closed shard without records is gone then."""
        found = self.streams[name].shards[shard]
        for each in list(found.records)[:number]:
            del found.records[each]

    def forget(self, name: str, shard: str) -> None:
        """Let a closed shard expire."""
        assert not self.streams[name].shards[shard].is_open
        del self.streams[name].shards[shard]


@contextmanager
def running_kinesis(certificate: tuple[Path, Path] | None = None) -> Iterator[KinesisServer]:
    """A service without any stream of its own. `certificate` are the files of a certificate and its key."""
    server = KinesisServer(certificate)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _set_right(moto: Any) -> None:
    moto.Shard, moto.Stream = _Shard, _Stream
    moto.KinesisBackend.get_records = _get_records_to_the_end


_set_right(models)
_moto: Any = create_backend_app("kinesis")


# -- aggregates, byte by byte as the library's documentation has them


def aggregate(records: Sequence[tuple[str, bytes]], *, hashes: Sequence[int | None] = ()) -> bytes:
    """An aggregate of user records, each a key and data, with explicit hashes in their order where there are some."""
    keys = list(dict.fromkeys(key for key, _ in records))
    given = [hash_ for hash_ in hashes if hash_ is not None]
    body = b"".join(_field(1, key.encode()) for key in keys)
    body += b"".join(_field(2, str(hash_).encode()) for hash_ in given)
    for number, (key, data) in enumerate(records):
        hash_ = hashes[number] if number < len(hashes) else None
        record = b"\x08" + _varint(keys.index(key))
        record += b"" if hash_ is None else b"\x10" + _varint(given.index(hash_))
        body += _field(3, record + _field(3, data))
    return sealed(body)


def sealed(body: bytes) -> bytes:
    """A body between the bytes with which an aggregate begins and its digest."""
    return MAGIC + body + md5(body, usedforsecurity=False).digest()


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])

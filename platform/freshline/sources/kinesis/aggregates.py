"""Aggregates of the Kinesis Producer Library: one record of the stream that has many user records in it.

Its data begin with four bytes, then comes a message of Protobuf, and at the end the MD5 of the message. All of an
aggregate is read, or nothing. A user record belongs to the shard that has the hash of its key. An aggregate that was
made before a split may come to a shard which has not all of its keys: the library then sends those again that are of
another shard, so that here they are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from freshline.sources.kinesis.client import KinesisRecord
from freshline.sources.kinesis.shards import Shard

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16
NOT_AGGREGATE, OTHER_SHARD = "NOT_AGGREGATE", "OTHER_SHARD"


class UserRecord(NamedTuple):
    """A record as its producer sent it. `sub_sequence` is its number in an aggregate, None for one by itself.

    `verdict` is a code of quarantine, None for a record that is to be decoded.
    """

    key: str
    data: bytes
    sub_sequence: int | None
    verdict: str | None


def user_records(record: KinesisRecord, shard: Shard, *, all_keys: bool) -> Iterator[UserRecord]:
    """The user records in a record of a shard, in their order; with `all_keys` also those of other shards."""
    if not record.data.startswith(MAGIC):
        yield UserRecord(record.key, record.data, None, None)
        return
    found = _parsed(record.data)
    if found is None:
        yield UserRecord(record.key, record.data, None, NOT_AGGREGATE)
        return
    keys = [as_text(key) for key in found.partition_key_table]
    hashes = [int.from_bytes(_digest(key), "big") for key in found.partition_key_table]
    explicit = [int(key) for key in found.explicit_hash_key_table]
    for number, each in enumerate(found.records):
        has_hash = each.HasField("explicit_hash_key_index")
        key_hash = explicit[each.explicit_hash_key_index] if has_hash else hashes[each.partition_key_index]
        is_here = all_keys or shard.first_hash <= key_hash <= shard.last_hash
        yield UserRecord(keys[each.partition_key_index], each.data, number, None if is_here else OTHER_SHARD)


def as_text(key: bytes) -> str:
    """A key as a text; bytes that are not UTF-8 are written as `\\xff`."""
    return key.decode("utf-8", "backslashreplace")


def _parsed(data: bytes) -> Any:
    """The message of an aggregate, all of whose numbers name something; None for what is none."""
    body, digest = data[len(MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(data) < len(MAGIC) + _DIGEST_BYTES or _digest(body) != digest:
        return None
    try:
        found = _Aggregate.FromString(body)
        # Python reads more than digits as a number.
        if not all(key.isdigit() and int(key) < 2**128 for key in found.explicit_hash_key_table):
            return None
    except (DecodeError, ValueError):
        return None
    keys, hashes = len(found.partition_key_table), len(found.explicit_hash_key_table)
    is_whole = all(
        each.partition_key_index < keys
        and (not each.HasField("explicit_hash_key_index") or each.explicit_hash_key_index < hashes)
        for each in found.records
    )
    return found if is_whole else None


def _digest(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).digest()


def _message() -> Any:
    """The message of an aggregate, as the library's documentation has it. Its texts are bytes: they may be anything."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="aggregate.proto", package="freshline.kinesis", syntax="proto2")

    def add(message: Any, number: int, name: str, kind: Any, label: Any, of: str | None = None) -> None:
        message.field.add(name=name, number=number, type=kind, label=label, type_name=of)

    whole = file.message_type.add(name="Aggregate")
    add(whole, 1, "partition_key_table", kinds.TYPE_BYTES, kinds.LABEL_REPEATED)
    add(whole, 2, "explicit_hash_key_table", kinds.TYPE_BYTES, kinds.LABEL_REPEATED)
    add(whole, 3, "records", kinds.TYPE_MESSAGE, kinds.LABEL_REPEATED, ".freshline.kinesis.Record")
    record = file.message_type.add(name="Record")
    add(record, 1, "partition_key_index", kinds.TYPE_UINT64, kinds.LABEL_REQUIRED)
    add(record, 2, "explicit_hash_key_index", kinds.TYPE_UINT64, kinds.LABEL_OPTIONAL)
    add(record, 3, "data", kinds.TYPE_BYTES, kinds.LABEL_REQUIRED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("freshline.kinesis.Aggregate"))


_Aggregate = _message()

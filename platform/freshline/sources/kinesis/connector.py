"""A stream of Kinesis: every record once, by the sequence numbers of its shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import urlsplit

from freshline.errors import StreamError
from freshline.sources.kinesis.position import KinesisPosition
from freshline.sources.starting import read_starting
from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.connector import RECORD, WHEN_INGESTED, Metadata, Position
from freshline.values.options import Kind, Option, Options

if TYPE_CHECKING:
    from freshline.values.spec import SourceSpec

SHARD = "_freshline_shard"
SEQUENCE = "_freshline_sequence"
SUB_SEQUENCE = "_freshline_sub_sequence"
PARTITION_KEY = "_freshline_partition_key"
TIMESTAMP = "_freshline_timestamp"

OF_SHARD, ALL = "of-shard", "all"
# The service takes times since 1970.
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
_REGION = re.compile(r"[a-z0-9-]{1,64}\Z")
_GAP = re.compile(r"([a-zA-Z0-9_.-]{1,128}):([0-9]{1,129})\Z")
_IDENTITY = re.compile(r"arn:[^@\s]{1,300}@[0-9TZ:.-]{20,30}\Z")


@dataclass(frozen=True)
class Kinesis(TlsConnector):
    """A stream, as it is declared.

    `region` and `endpoint` are where it is, None for what the SDK of AWS finds. The keys are references, empty where
    the SDK finds them in its chain. `starting` is `earliest`, `latest` or a moment in UTC as ISO 8601 has it.
    `user_records` says which records of an aggregate are rows. `accepted_gaps` are shards with the number of the newest
    record that was read of each, behind which records may be missing; `accepted_stream` is the identity of a stream
    that may take the place of the one that was read.
    """

    stream: str
    region: str | None = None
    endpoint: str | None = None
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    starting: str = "earliest"
    user_records: str = OF_SHARD
    accepted_gaps: tuple[tuple[str, str], ...] = ()
    accepted_stream: str | None = None

    name: ClassVar[str] = "kinesis"
    title: ClassVar[str] = "Kinesis"
    options: ClassVar[tuple[Option, ...]] = (
        Option("stream", "the stream", required="the stream's name"),
        Option("region", "the region of AWS"),
        Option("endpoint", "the address of the service"),
        Option("access-key-id", "the id of the access key", secret=True),
        Option("secret-access-key", "the access key", secret=True),
        Option("session-token", "the token of a temporary access key", secret=True),
        Option("starting", "where a source begins that has read nothing yet"),
        Option("user-records", "which records of an aggregate are rows", Kind.CHOICE, choices=(OF_SHARD, ALL)),
        Option("accept-gap", "shards of which records may be missing", field="accepted_gaps"),
        Option("accept-stream", "the stream that takes the place of the one that was read", field="accepted_stream"),
        *TLS_OPTIONS,
    )
    # The place of a record is its shard, and its number there. An aggregate has the numbers of the records in it.
    metadata: ClassVar[Mapping[str, Metadata]] = {
        **WHEN_INGESTED,
        "shard": Metadata("STRING", SHARD, quarantined=True, in_place="^(.*)$"),
        "number": Metadata("BIGINT", RECORD, ordered=True, quarantined=True),
        "sequence_number": Metadata("STRING", SEQUENCE, quarantined=True),
        "sub_sequence_number": Metadata("BIGINT", SUB_SEQUENCE, quarantined=True),
        "partition_key": Metadata("STRING", PARTITION_KEY, quarantined=True),
        "timestamp": Metadata("TIMESTAMP", TIMESTAMP, ordered=True),
    }
    position: ClassVar[type[Position] | None] = KinesisPosition
    reader: ClassVar[str | None] = "freshline.sources.kinesis.reader:KinesisReader"
    partition: ClassVar[str | None] = SHARD
    kind: ClassVar[str | None] = "kinesis"

    @classmethod
    def declare(cls, options: Options) -> Self:
        for key in ("access-key-id", "secret-access-key"):
            other = "secret-access-key" if key == "access-key-id" else "access-key-id"
            options.require(key, f"the option '{other}'", other in options)
        options.require("session-token", "the option 'access-key-id'", "access-key-id" in options)
        is_plain = (options.text("endpoint") or "").startswith("http:")
        for option in TLS_OPTIONS:
            options.require(option.name, "an endpoint that begins with https://", not is_plain)
        options.require("tls.key", "the option 'tls.certificate'", "tls.certificate" in options)
        return cls(
            stream=options.matching("stream", _NAME, "a name of up to 128 letters, digits and signs of _.-") or "",
            region=options.matching("region", _REGION, "the name of a region, such as eu-west-1"),
            endpoint=_endpoint(options),
            access_key_id=options.text("access-key-id") or "",
            secret_access_key=options.text("secret-access-key") or "",
            session_token=options.text("session-token") or "",
            starting=read_starting(options, since=_FIRST_MOMENT),
            user_records=options.choice("user-records", (OF_SHARD, ALL)) or OF_SHARD,
            accepted_gaps=_accepted_gaps(options),
            accepted_stream=options.matching("accept-stream", _IDENTITY, "what STREAM_REPLACED shows, arn@time"),
            **options.values(TLS_OPTIONS),
        )

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.stream,)

    @property
    def shown(self) -> Mapping[str, str]:
        where = {"region": self.region, "endpoint": self.endpoint}
        return {"stream": self.stream, **{name: text for name, text in where.items() if text is not None}}

    def open(self, spec: SourceSpec, host: Any) -> Any:
        try:
            return super().open(spec, host)
        except ModuleNotFoundError as error:
            # It is there only where the extra is installed.
            if error.name not in ("boto3", "botocore"):
                raise
            raise StreamError(
                "boto3 is not installed, by which Kinesis is read. Run: pip install 'freshline[kinesis]'.",
                where=str(spec.written_at),
            ) from error


def _endpoint(options: Options) -> str | None:
    text = options.text("endpoint")
    if text is None:
        return None
    try:
        found = urlsplit(text)
        is_address = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        is_address = False
    else:
        is_address = is_address and not (found.username or found.password or found.query or found.fragment)
    if not is_address:
        options.reject("endpoint", "an address such as https://kinesis.eu-west-1.amazonaws.com, without a name in it")
        return None
    return text


def _accepted_gaps(options: Options) -> tuple[tuple[str, str], ...]:
    text = options.text("accept-gap")
    found = []
    for part in [] if text is None else text.split(","):
        match = _GAP.match(part.strip())
        if match is None:
            options.reject("accept-gap", "what OFFSETS_LOST or SHARD_GONE shows, shard:number, several with commas")
            return ()
        found.append((match[1], match[2]))
    return tuple(found)

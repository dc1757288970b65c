"""Requests to the service: by boto3, one at a time, again where the service is busy.

A request that it refuses for good is not repeated. No error and no text of this module shows a key. Waiting ends with
a cancellation.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

from freshline.compute.cancellation import Cancellation
from freshline.errors import UNREADABLE, BrokerError, SourceError, StreamError
from freshline.sources.kinesis.connector import Kinesis
from freshline.sources.kinesis.shards import Shard, StreamState, milliseconds_of
from freshline.sources.tls import tls_context

CONNECT_SECONDS, ANSWER_SECONDS = 10, 20
# A page has at most so many records, which is as many as the service gives, and 10 MB.
PAGE_RECORDS = 10_000
# The attempts of one request: where the service says that it is asked too often, and where it fails.
_ATTEMPTS_WHEN_BUSY, _ATTEMPTS = 8, 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_BUSY = {
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
    "KMSThrottlingException",
    "ThrottlingException",
    "Throttling",
    "RequestThrottled",
    "RequestLimitExceeded",
    "TooManyRequestsException",
    "SlowDown",
}
# Codes that come with a status of 400, and pass by themselves.
_PASSING = {"ResourceInUseException", "InternalFailure", "InternalFailureException", "ServiceUnavailable"}
# The service's text about a signature may have parts of the signed request.
_WRONG_KEYS = {
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "OptInRequired",
    "NotAuthorized",
}
_NO_KEYS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.InvalidConfigError,
    exceptions.ConfigParseError,
    exceptions.SSOError,
)
_UNREACHED = (
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.IncompleteReadError,
    ResponseParserError,
)


class KinesisRecord(NamedTuple):
    """A record as the service has it; `arrived` is in milliseconds since 1970, None where it does not say."""

    sequence: str
    key: str
    data: bytes
    arrived: int | None


@dataclass(frozen=True)
class Page:
    """The answer to one request. `following` is where the next begins, None at the end of a shard that is closed.

    `behind_ms` is how far the end of the page is behind the newest record, and `now` when it was given.
    """

    records: tuple[KinesisRecord, ...]
    following: str | None
    behind_ms: int
    now: int
    is_full: bool

    @property
    def is_last(self) -> bool:
        """Whether the shard has nothing behind it now. An empty page alone does not say that."""
        return self.following is None or (self.behind_ms == 0 and not self.is_full)


class IteratorExpiredError(Exception):
    """An iterator is too old, and is asked for again."""


class SequenceGoneError(Exception):
    """The service takes a sequence number for none of the shard."""


class KinesisClient:
    """Asks about one stream. Safe to use in several threads.

    `secret` gives what an option stands for that is a reference. `where` is the place that errors name.
    """

    def __init__(self, declared: Kinesis, secret: Callable[[str, str], str], where: str) -> None:
        self._declared, self._secret, self._where = declared, secret, where
        self._lock = threading.Lock()
        self._client: Any = None
        # The hash of the texts that the client was made of; a text that is a secret is not kept.
        self._made_of: int | None = None

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def describe(self, cancellation: Cancellation) -> StreamState:
        """The stream with all shards that it lists. Raises StreamError and BrokerError."""
        return replace(self.summary(cancellation), shards={each.name: each for each in self._shards(cancellation)})

    def summary(self, cancellation: Cancellation) -> StreamState:
        """The stream without its shards."""
        answer = self._ask(
            "describe_stream_summary", "StreamDescriptionSummary", cancellation, StreamName=self._declared.stream
        )
        found = answer["StreamDescriptionSummary"]
        if found["StreamStatus"] in ("CREATING", "DELETING"):
            raise BrokerError(
                f"stream {self._declared.stream} is {found['StreamStatus'].lower()}. Nothing was read; it is tried "
                "again.",
                where=self._where,
            )
        return StreamState(
            self._declared.stream,
            str(found["StreamARN"]),
            milliseconds_of(found["StreamCreationTimestamp"]),
            int(found["RetentionPeriodHours"]) * 3_600_000,
            _answered_at(answer),
        )

    def _shards(self, cancellation: Cancellation) -> list[Shard]:
        shards: list[Shard] = []
        asked: dict[str, Any] = {"StreamName": self._declared.stream}
        while True:
            answer = self._ask("list_shards", "Shards", cancellation, **asked)
            shards += [_shard(each) for each in answer["Shards"]]
            if not answer.get("NextToken"):
                return shards
            asked = {"NextToken": answer["NextToken"]}

    def iterator(self, shard: str, cancellation: Cancellation, kind: str, **at: Any) -> str:
        """The iterator with which a reading of a shard begins. Raises SequenceGoneError."""
        answer = self._ask(
            "get_shard_iterator",
            "ShardIterator",
            cancellation,
            StreamName=self._declared.stream,
            ShardId=shard,
            ShardIteratorType=kind,
            **at,
        )
        return str(answer["ShardIterator"])

    def page(self, iterator: str, cancellation: Cancellation, most: int | None = None) -> Page:
        """The next records of a shard, at most so many. Raises IteratorExpiredError."""
        limit = PAGE_RECORDS if most is None else most
        answer = self._ask("get_records", "Records", cancellation, ShardIterator=iterator, Limit=limit)
        records = tuple(_record(each) for each in answer["Records"])
        behind = int(answer.get("MillisBehindLatest") or 0)
        following = answer.get("NextShardIterator") or None
        return Page(records, following, behind, _answered_at(answer), len(records) >= limit)

    # -- one question

    def _ask(self, operation: str, expected: str, cancellation: Cancellation, **asked: Any) -> dict[str, Any]:
        """The answer to a question, which has the field `expected`."""
        attempt = 0
        while True:
            cancellation.check()
            try:
                return _answered(getattr(self._connected(), operation), expected, asked)
            except (exceptions.BotoCoreError, exceptions.ClientError, ResponseParserError) as error:
                attempt += 1
                _raise_known(error)
                if attempt >= _attempts(error):
                    raise source_error(error, self._declared, where=self._where) from None
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)
            # Not all whom the service let wait come back at once.
            cancellation.wait(pause * random.uniform(0.5, 1.0))

    def _connected(self) -> Any:
        declared = self._declared
        keys = {
            option: self._secret(option, text)
            for option, text in (
                ("access-key-id", declared.access_key_id),
                ("secret-access-key", declared.secret_access_key),
                ("session-token", declared.session_token),
            )
            if text
        }
        made_of = hash(tuple(keys.items()))
        with self._lock:
            if self._client is None or self._made_of != made_of:
                if self._client is not None:
                    self._client.close()
                self._client, self._made_of = self._connect(keys), made_of
            return self._client

    def _connect(self, keys: Mapping[str, str]) -> Any:
        declared = self._declared
        self._check_files()
        certificate = (declared.tls_certificate, declared.tls_key) if declared.tls_key else declared.tls_certificate
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            # A question is asked again here, where a request that is cancelled is heard.
            retries={"total_max_attempts": 1, "mode": "standard"},
            client_cert=certificate,
            user_agent_extra="freshline",
        )
        try:
            # A session of its own: one is not safe in several threads.
            session = boto3.session.Session(
                aws_access_key_id=keys.get("access-key-id"),
                aws_secret_access_key=keys.get("secret-access-key"),
                aws_session_token=keys.get("session-token"),
                region_name=declared.region,
            )
            return session.client("kinesis", endpoint_url=declared.endpoint, verify=declared.tls_ca, config=config)
        except ValueError:
            # The fault is a region or an endpoint of the SDK's own settings.
            raise StreamError(
                "the SDK of AWS cannot make a client of 'region', 'endpoint' and its own settings. Correct them.",
                where=self._where,
            ) from None

    def _check_files(self) -> None:
        """Raise StreamError for files of TLS that are none; the SDK would say that the service is not reached."""
        declared = self._declared
        try:
            tls_context(declared.tls_ca, declared.tls_certificate, declared.tls_key)
        except (OSError, ValueError) as error:
            said = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is none"
            raise StreamError(
                f"a file of 'tls.ca', 'tls.certificate' or 'tls.key' cannot be used: {said}. Correct it.",
                where=self._where,
            ) from None


def _answered(ask: Callable[..., dict[str, Any]], expected: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the SDK. Raises ResponseParserError for one that is none of the service, such as a proxy's page."""
    try:
        answer = ask(**asked)
    except UNREADABLE as error:
        if isinstance(error, exceptions.BotoCoreError):
            raise
        raise ResponseParserError("it is not of the service") from error
    if expected not in answer:
        # The SDK takes any page for an answer without fields.
        raise ResponseParserError(f"it has no {expected}")
    return answer


def _raise_known(error: Exception) -> None:
    """Raise for what who asked knows how to go on from."""
    code = _code_of(error)
    if code == "ExpiredIteratorException":
        raise IteratorExpiredError from None
    if code == "InvalidArgumentException" and "SequenceNumber" in str(error):
        raise SequenceGoneError from None


def _code_of(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, exceptions.ClientError) else ""


def _status_of(error: Exception) -> int:
    if not isinstance(error, exceptions.ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _attempts(error: Exception) -> int:
    """The attempts of a request that fails like this."""
    if _code_of(error) in _BUSY or _status_of(error) == 429:
        return _ATTEMPTS_WHEN_BUSY
    return _ATTEMPTS if _passes(error) else 1


def _passes(error: Exception) -> bool:
    if isinstance(error, exceptions.ClientError):
        return _status_of(error) >= 500 or _status_of(error) == 429 or _code_of(error) in _BUSY | _PASSING
    if isinstance(error, exceptions.SSLError):
        return not _is_of_certificate(error)
    # The server was not reached, or broke off, or something else than the service is there.
    return isinstance(error, _UNREACHED)


def _is_of_certificate(error: Exception) -> bool:
    return "CERTIFICATE" in str(error).upper()


def source_error(error: Exception, declared: Kinesis, *, where: str) -> SourceError:
    """The error to report for one of the SDK. It shows no key."""
    code, stream = _code_of(error), declared.stream
    if code == "ResourceNotFoundException":
        return StreamError(
            f"there is no stream {stream}{_in(declared)}, or no such shard of it. Create it, or correct `stream`, "
            "`region` or the keys, which say whose streams are meant.",
            where=where,
        )
    if code in _WRONG_KEYS:
        return StreamError(
            f"the service refuses the access key ({code}). Correct 'access-key-id' and 'secret-access-key', or what "
            "the SDK of AWS finds.",
            where=where,
        )
    if isinstance(error, _NO_KEYS):
        return StreamError(
            f"the SDK of AWS finds no access key ({type(error).__name__}). Declare 'access-key-id' and "
            "'secret-access-key', or set up the SDK's own.",
            where=where,
        )
    if isinstance(error, exceptions.NoRegionError):
        return StreamError("the SDK of AWS finds no region. Declare 'region'.", where=where)
    if isinstance(error, exceptions.SSLError) and _is_of_certificate(error):
        return StreamError(
            f"the certificate of the service{_in(declared)} is not accepted. Name the "
            "authority that signed it in 'tls.ca', and the host as the certificate has it in `endpoint`.",
            where=where,
        )
    if _passes(error):
        said = f" ({code})" if code else ""
        return BrokerError(
            f"the service of stream {stream}{_in(declared)} does not answer{said}. Nothing was read; it is tried "
            "again.",
            where=where,
        )
    said = code or type(error).__name__
    more = "" if not isinstance(error, exceptions.ClientError) else _message_of(error)
    return StreamError(
        f"the service refuses what it is asked of stream {stream}: {said}{more}. Correct the declaration or the rights "
        "of the access key.",
        where=where,
    )


def _message_of(error: exceptions.ClientError) -> str:
    said = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())[:300].rstrip(". ")
    return f" ({said})" if said else ""


def _in(declared: Kinesis) -> str:
    if declared.endpoint is not None:
        return f" at {declared.endpoint}"
    return "" if declared.region is None else f" in {declared.region}"


# -- what it answers


def _answered_at(answer: Mapping[str, Any]) -> int:
    """The time of an answer, in milliseconds since 1970 by the service's own clock, which says whole seconds."""
    text = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return milliseconds_of(parsedate_to_datetime(text).astimezone(UTC))
    except ValueError:
        return milliseconds_of(datetime.now(UTC))


def _shard(answer: Mapping[str, Any]) -> Shard:
    parents = [answer.get("ParentShardId"), answer.get("AdjacentParentShardId")]
    hashes = answer["HashKeyRange"]
    return Shard(
        str(answer["ShardId"]),
        tuple(str(parent) for parent in parents if parent),
        int(hashes["StartingHashKey"]),
        int(hashes["EndingHashKey"]),
    )


def _record(answer: Mapping[str, Any]) -> KinesisRecord:
    arrived = answer.get("ApproximateArrivalTimestamp")
    return KinesisRecord(
        str(answer["SequenceNumber"]),
        str(answer["PartitionKey"]),
        answer["Data"],
        None if arrived is None else milliseconds_of(arrived),
    )

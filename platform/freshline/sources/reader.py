"""The heavy half of a connector: how its records are read into a log table.

A reader is bound to one source, and is kept by the engine between refreshes, so that it may keep connections and
remember. A refresh calls it in this order: `inspect` fixes an end; `cut` takes a portion of what is there; `prepare`
and `read` give its records; `confirm` is the last word before they are committed together with the position; `release`
follows the commit. After a kill anywhere between, the next refresh begins from the position in the newest receipt, and
so the receipt alone decides what was read.

Decoding, quarantine, deduplication, receipts and failpoints are the loop's, for every connector (`freshline.ingest.log`
and its neighbours `batch` and `looked`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from freshline.commit.warehouse import Warehouse
from freshline.compute.cancellation import Cancellation
from freshline.errors import FreshlineError, SourceError
from freshline.values.connector import Position
from freshline.values.outside_half import OutsideHalf
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec
from freshline.values.watermark import WHOLE_SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# A batch of up to this many records may be judged in the driver's own memory.
SMALL_ROWS = 20_000
# A position names at most so many fields that are not declared.
MOST_UNDECLARED = 500
# In the message of an error with which rows end that were expected to be good.
STOPPED = "FRESHLINE_RECORD_IN_DOUBT"
# Columns of records beside VALUE, FILE and RECORD: the line in a file, and a code of quarantine that is known before.
LINE = "_freshline_line"
VERDICT = "_freshline_verdict"

T = TypeVar("T")


class Host(Protocol):
    """The part of the engine that a reader may use."""

    @property
    def root(self) -> Path:
        """The folder of the project."""

    @property
    def spark(self) -> SparkSession:
        """The session of the process. Records are read in the session that `read` is given."""

    @property
    def warehouse(self) -> Warehouse:
        """The folder of the tables, and the files beside them."""

    @property
    def epoch(self) -> int:
        """The epoch of this writer."""

    @property
    def clock(self) -> Callable[[], datetime]:
        """The time now, in UTC."""

    @property
    def failpoint(self) -> Callable[[str], None]:
        """Called with the name of a point at which a test may want to stop the process."""

    @property
    def require_warehouse(self) -> Callable[[], None]:
        """Raises StorageError where the warehouse is not at its path any more. Call it before a table is made."""

    def provide_jars(self, name: str) -> None:
        """Make the classes of a set of jars known to the JVM; doing it again changes nothing. Raises JarError."""

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """A thing that all readers of a connector share, made when it is first asked for."""


@dataclass(frozen=True)
class ReadRequest:
    """A request for new records. `wait` says that a person waits, also for what is just about to be complete."""

    cancellation: Cancellation
    progress: Callable[[str], None] = lambda message: None
    wait: bool = False


@dataclass(frozen=True)
class Inspection:
    """The state of a source when it was inspected; connectors add fields of their own.

    Once all of it is read, the log table has everything that the source had at `at`. `left` is how much there is to be
    read, in the connector's own measure, 0 for nothing; `is_new` says that there is a portion to commit, which may have
    no record in it but a first position. `problems` are reported and fail nothing. `retained_bytes` is how much the
    system keeps because the source has not read it yet, None where it keeps nothing for it.
    """

    at: datetime
    left: int
    is_new: bool
    problems: tuple[FreshlineError, ...] = ()
    retained_bytes: int | None = None


@dataclass(frozen=True)
class Portion:
    """A part of what an inspection found, which becomes one commit; connectors add fields of their own.

    `before` is the position at which it begins, `after` the one that it leads to. `at` is up to when the log then has
    everything, None where that stays as it was. `left` is how much of the inspection is behind it. `small` says that it
    has at most SMALL_ROWS records, or so few bytes that they fit in the driver's memory. `clean` says that its records
    are expected to be good. `pieces` is how many things were new where records are not what people count, as with
    files.
    """

    before: Position | None
    after: Position
    at: datetime | None
    left: int
    progress: str
    most_records: int = 0
    small: bool = False
    clean: bool = False
    pieces: int | None = None


L = TypeVar("L", bound=Inspection)
P = TypeVar("P", bound=Portion)


@dataclass(frozen=True)
class Group:
    """Records that are decoded alike.

    `rows` has the columns VALUE (text or bytes), FILE and RECORD (the place: a text and a number), and one for each
    metadata of the connector that is stored; it may have LINE and VERDICT. `columns` are the names of the fields in a
    line where a file has its own, by default the declared ones. With `error` nothing is decoded: it is the code of
    every record that has no VERDICT. `kept` are other columns that stay beside what is decoded.
    """

    rows: DataFrame
    columns: tuple[str, ...] = ()
    error: str | None = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Records:
    """The records of a portion, not decoded yet, in one group at least.

    `counts` are how many there must be of each FILE, where that is known: they are counted before they are committed,
    and `Reader.confirm` is given the result.
    """

    groups: tuple[Group, ...]
    counts: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Certain:
    """Rows of the declared types, with FILE and RECORD, that end with STOPPED where one of them is in doubt.

    `count` is how many there are, None where that is not known before.
    """

    rows: DataFrame
    count: int | None


@dataclass(frozen=True)
class Tail:
    """The places of the records between two positions: in the log where `logged` is true, the others in a portion."""

    logged: Column | None = None
    unread: Any = None


class Reader(OutsideHalf, ABC, Generic[L, P]):
    """Reads one source. Its methods are called by one refresh at a time; those of the tail by others beside it.

    `reason` is the code with which a refresh says that something was new. `pauses` says that a loop may go on with the
    tables below between two portions. `has_tail` says that the source can be read beyond a position without moving on,
    so that `union_read` works.
    """

    failure: ClassVar[type[SourceError]] = SourceError
    spec: SourceSpec
    host: Host
    reason: ClassVar[str] = "NEW_RECORDS"
    pauses: ClassVar[bool] = True
    has_tail: ClassVar[bool] = False

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        self.spec = spec
        self.host = host

    # -- methods of every connector

    @abstractmethod
    def inspect(self, position: Any, asked: ReadRequest) -> L:
        """Fix the end of what is there; `position` is None before the first batch. Starts no Spark job, writes nothing.

        Raises the errors of sources, also where the source is not the one that was read up to `position`.
        """

    @abstractmethod
    def cut(self, inspection: L, position: Any) -> P | None:
        """The next portion of an inspection from a position; None where there is none, or none may be read now."""

    @abstractmethod
    def read(self, spark: SparkSession, portion: P) -> Records:
        """The records of a portion, at least each one once. The same portion gives the same records again."""

    # -- methods of some

    def prepare(self, spark: SparkSession, portion: P, previous: Receipt | None, cancellation: Cancellation) -> P:
        """Called before a portion is read; may find out more about it, and move what makes a position too long.

        With an `after` that is its `before` there is nothing new in it: it is not read, and nothing is committed.
        """
        return portion

    def partitions(self, inspection: L, position: Any, left: int) -> Mapping[str, bool]:
        """The source's partitions, each with whether it has records beyond a position, for the watermark.

        `left` is how much of the inspection is behind the position. They are named as the stored column
        `Connector.partition` has them, as a text; without that column, which is the default, the source is one.
        """
        return {WHOLE_SOURCE: left > 0}

    def note_fields(self, portion: P, fields: Mapping[str, str]) -> tuple[P, tuple[FreshlineError, ...]]:
        """Note in the position behind a portion that its records have fields which no column takes.

        `fields` are their names, each with the type to declare it with. Returns the portion, and what to report of
        fields that records before did not have. By default a position notes nothing, and nothing is reported.
        """
        return portion, ()

    def read_certain(self, spark: SparkSession, portion: P) -> Certain | None:
        """A shorter way to the rows where there is one; it is left at the first record in doubt."""
        return None

    def confirm(self, portion: P, found: Mapping[str, int] | None) -> None:
        """Raise an error where what was read is not what the portion stands for; nothing of it is then committed.

        `found` are how many records there were of each FILE, where they were counted.
        """

    def explain(self, error: Exception, portion: P) -> FreshlineError | None:
        """The error to report for one of Spark's; None where it is none of the source."""
        return None

    def finish(self, spark: SparkSession) -> None:
        """Give the session back as it was; called after a portion, whether it was committed or not."""

    def release(self, portion: P, *, seconds: float, rejected: int) -> None:
        """Called after the commit: the source may forget. A process that is killed before it never calls it.

        An error that it raises is reported as a problem of the refresh, whose rows are committed.

        `seconds` is how long the portion took, `rejected` how many of its records went to quarantine or were left out
        as tombstones.
        """

    def waiting(self, left: int) -> str:
        """The reason why a part of the records was not read."""
        return f"{left} records wait"

    def close(self) -> None:
        """Let go of all connections."""

    # -- union read

    def find_tail(self, position: Any, seq: int, asked: ReadRequest) -> tuple[Position, Position]:
        """The positions between which everything is that the source has beyond `position`, of batch `seq`."""
        raise NotImplementedError

    def tail(self, spark: SparkSession, start: Any, end: Any, position: Any, asked: ReadRequest) -> Tail:
        """The places of the records between two positions, when the log has read up to `position`."""
        raise NotImplementedError

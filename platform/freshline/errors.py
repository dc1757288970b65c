"""Every error that freshline raises on purpose.

```
FreshlineError                      code, retry_helps, where
├── DeclarationError                what is written in assets/ cannot be a table
│   └── DeclarationErrors           all of them at once
├── SettingsError                   the project's settings or environment
├── JarError                        a jar is missing or has the wrong sum
├── JavaError                       no Java, or one that Spark cannot use
├── EngineError                     the engine could not be started, reached or locked
│   └── EngineHeldError             another engine holds the warehouse
├── RefreshError                    one attempt at one table failed
│   ├── DuplicateKeyError           two rows for one primary key
│   ├── ConstraintError             rows do not meet a constraint ON VIOLATION FAIL
│   ├── LookupKeyError              two dimension rows for one lookup key
│   ├── QueryError                  Spark refuses the query
│   │   └── ForbiddenQueryError     the query reaches beyond the rows of declared tables
│   ├── PythonLimitError            a function in Python took too long or too much memory
│   ├── PartitionError              a partition that was named cannot be refreshed
│   ├── SourceError                 a source cannot be read, or is not what it was
│   │   ├── FileChangedError        a landing file changed after it was read
│   │   ├── FilesMisreadError       the records read of a landing file are not those that it has
│   │   ├── BrokerError             the Kafka brokers do not answer
│   │   ├── TopicError              a topic is not there, or the brokers refuse it
│   │   ├── TopicReplacedError      a topic is not the one that was read
│   │   └── OffsetsLostError        records of a topic are gone that were not read yet
│   ├── ForeignWriteError           somebody else wrote to a log table
│   ├── UpstreamChangedError        an upstream deleted or updated rows and the declaration says `error`
│   ├── DefinitionChangedError      the declaration changed in a way that needs a stated start
│   ├── FencedError                 another writer has taken the table over
│   ├── IncrementalError            `incremental = strict`, and only a full refresh would do
│   ├── HistoryRequiredError        a full refresh would lose rows that `requires-history` holds on to
│   └── StorageError                the disk is full or read-only
├── DeliveryError                   an alert's channel did not take a message
├── CancelledError                  the request was cancelled; nothing of it was committed
├── RequestError                    a request or statement that cannot be served
│   ├── ForbiddenStatementError     a statement that reaches beyond the rows of declared tables
│   ├── FreshnessError              a freshness that what drives the table does not deliver
│   ├── ReadError                   a version, time or change that is not there, or no longer
│   ├── ConsumerError               a consumer whose name is in use, unknown or no name
│   │   └── ConsumerExpiredError    a consumer that did not come for too long
│   └── SavepointError              a savepoint whose name is in use, unknown or no name
│       ├── SavepointGoneError      a version that the savepoint needs is no longer there
│       └── RestoreBusyError        refreshes did not end in time for a restore
└── FormatError                     written by a newer freshline
```

An error holds facts, says in one sentence what is wrong and where, and what to do. `code` is stable:
programs may rely on it. `retry_helps` says whether the same request can succeed later without a change
by a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar


class FreshlineError(Exception):
    """The facts that every error of freshline has. Two errors with the same facts are equal.

    `where` is a place a person can open: `file:line`, a table, or a partition of one.
    """

    code: ClassVar[str] = "FRESHLINE"
    retry_helps: ClassVar[bool] = False

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.message = message
        self.where = where
        super().__init__(f"{where}: {message}" if where else message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreshlineError) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((self.code, self.message, self.where))

    def as_json(self) -> dict[str, object]:
        """The error as a JSON object with the keys code, message, where, retry_helps."""
        return {
            "code": self.code,
            "message": self.message,
            "where": self.where,
            "retry_helps": self.retry_helps,
        }


class DeclarationError(FreshlineError):
    """A declaration that cannot become a table; `rule` is the stable code of the rule that it breaks.

    The rules, in upper case with underscores, are listed with their sentences in docs/errors.md.
    """

    code = "DECLARATION"

    def __init__(self, rule: str, message: str, *, where: str | None = None) -> None:
        self.rule = rule
        super().__init__(message, where=where)

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "rule": self.rule}


class DeclarationErrors(DeclarationError):
    """All declaration errors of a project, in the order of file and line."""

    def __init__(self, errors: Sequence[DeclarationError]) -> None:
        self.errors = tuple(errors)
        super().__init__("SEVERAL", "\n".join(str(error) for error in self.errors))

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "errors": [error.as_json() for error in self.errors]}


class SettingsError(FreshlineError):
    """A setting has a value that cannot be used, or there is no project here."""

    code = "SETTINGS"


class JarError(FreshlineError):
    """A jar of the lock is missing, cannot be fetched, or has another sum than the lock says."""

    code = "JAR"
    retry_helps = True


class JavaError(FreshlineError):
    """There is no Java that Spark can run on."""

    code = "JAVA"


class EngineError(FreshlineError):
    """The engine did not start, or does not answer."""

    code = "ENGINE"
    retry_helps = True


class EngineHeldError(EngineError):
    """Another engine holds the warehouse; the message names it."""

    code = "ENGINE_HELD"


class RefreshError(FreshlineError):
    """One attempt to refresh one table failed; the table is as it was before."""

    code = "REFRESH"


class DuplicateKeyError(RefreshError):
    """The query yields more than one row for a primary key.

    `samples` holds up to five of the keys, each a mapping of column to value.
    """

    code = "DUPLICATE_KEY"

    def __init__(self, table: str, key: Sequence[str], samples: Sequence[Mapping[str, object]]) -> None:
        self.table = table
        self.key = tuple(key)
        self.samples = tuple(dict(sample) for sample in samples)
        shown = "; ".join(", ".join(f"{k} = {v!r}" for k, v in sample.items()) for sample in self.samples)
        super().__init__(
            f"the query yields more than one row for PRIMARY KEY ({', '.join(self.key)}), for example {shown}. "
            "Aggregate or filter the query to one row a key, or declare a wider key.",
            where=table,
        )


class ConstraintError(RefreshError):
    """Rows do not meet a constraint that is declared ON VIOLATION FAIL.

    `rows` is how many do not, `samples` holds some of them as JSON texts.
    """

    code = "CONSTRAINT"

    def __init__(self, table: str, constraint: str, condition: str, rows: int, samples: Sequence[str]) -> None:
        self.table = table
        self.constraint = constraint
        self.rows = rows
        self.samples = tuple(samples)
        super().__init__(
            f"CONSTRAINT {constraint} EXPECT ({condition}) is not met by {rows} rows, for example "
            f"{'; '.join(self.samples)}. Correct the rows where they come from, or declare what becomes of them with "
            "ON VIOLATION DROP ROW or QUARANTINE.",
            where=table,
        )


class LookupKeyError(RefreshError):
    """A lookup join would meet more than one dimension row for one probe row."""

    code = "LOOKUP_KEY"

    def __init__(self, table: str, dimension: str, key: Sequence[str], samples: Sequence[Mapping[str, object]]) -> None:
        self.table = table
        self.dimension = dimension
        self.key = tuple(key)
        self.samples = tuple(dict(sample) for sample in samples)
        shown = "; ".join(", ".join(f"{k} = {v!r}" for k, v in sample.items()) for sample in self.samples)
        super().__init__(
            f"lookup of {dimension} on ({', '.join(self.key)}) meets more than one row, for example {shown}. "
            f"Make {dimension} unique on these columns, or join on its whole key.",
            where=table,
        )


class QueryError(RefreshError):
    """Spark refuses the declared query, or it failed while it ran."""

    code = "QUERY"


class ForbiddenQueryError(QueryError):
    """A declared query or expression does, as Spark reads it, more than to compute rows from declared tables."""

    code = "QUERY_FORBIDDEN"


class PythonLimitError(RefreshError):
    """A function in Python took longer or more memory than it may, and was ended.

    The same function would take as long again, so a person has to correct it or raise the limit.
    """

    code = "PYTHON_LIMIT"
    retry_helps = False

    def __init__(self, table: str, function: str, exceeded: str, *, where: str) -> None:
        self.table = table
        super().__init__(
            f"the function {function} of {table} {exceeded}, and was ended. Correct it, or raise the limit: "
            "'python.time-limit' in its options, `python-time-limit` or `python-memory` in [tool.freshline].",
            where=where,
        )


class PartitionError(RefreshError):
    """A partition was named that the table does not have or that cannot be refreshed."""

    code = "PARTITION"


class SourceError(RefreshError):
    """A source cannot be read, or its content is no longer what the receipts say."""

    code = "SOURCE"
    retry_helps = True


class FileChangedError(SourceError):
    """A landing file has another size or modification time than when it was read."""

    code = "FILE_CHANGED"
    retry_helps = False


class FilesMisreadError(SourceError):
    """The records that were read of a landing file are not those that it has, or it changed; nothing was committed."""

    code = "FILES_MISREAD"

    def __init__(self, found: str, where: str) -> None:
        super().__init__(f"{found} Nothing was committed; the next refresh reads the files again.", where=where)


class BrokerError(SourceError):
    """The brokers of a Kafka source cannot be reached, or do not answer in time."""

    code = "BROKER"


class TopicError(SourceError):
    """A topic is not there, or the brokers refuse what was asked of them."""

    code = "TOPIC"
    retry_helps = False


class TopicReplacedError(SourceError):
    """A topic was deleted and made anew, has fewer partitions, or is one of another cluster."""

    code = "TOPIC_REPLACED"
    retry_helps = False


class OffsetsLostError(SourceError):
    """Records of a topic that were not read yet are gone: they expired, or its offsets were reset."""

    code = "OFFSETS_LOST"
    retry_helps = False


class ForeignWriteError(RefreshError):
    """Somebody else wrote to a log table, which only grows by its engine's own batches."""

    code = "FOREIGN_WRITE"


class UpstreamChangedError(RefreshError):
    """An upstream updated or deleted rows, and the table's `upstream-deletes` is `error`."""

    code = "UPSTREAM_CHANGED"


class DefinitionChangedError(RefreshError):
    """The declaration differs from the one in the newest receipt by more than a refresh may take up."""

    code = "DEFINITION_CHANGED"


class FencedError(RefreshError):
    """The fence in the commit is closed to this writer: a newer engine has taken over."""

    code = "FENCED"
    retry_helps = True


class IncrementalError(RefreshError):
    """`incremental = strict`, and this change can only be brought in by a full refresh."""

    code = "INCREMENTAL"


class HistoryRequiredError(RefreshError):
    """An input no longer holds the history that the table's `requires-history` names, and a full refresh needs it."""

    code = "HISTORY_REQUIRED"


class StorageError(RefreshError):
    """The warehouse cannot be written: the disk is full or read-only."""

    code = "STORAGE"
    retry_helps = True


class DeliveryError(FreshlineError):
    """A channel did not take a message; the sentence holds no secret. `final`: another try would do harm."""

    code = "DELIVERY"
    retry_helps = True

    def __init__(self, message: str, *, where: str | None = None, final: bool = False) -> None:
        self.final = final
        super().__init__(message, where=where)


class CancelledError(FreshlineError):
    """The request was cancelled; nothing of it was committed after that."""

    code = "CANCELLED"


class RequestError(FreshlineError):
    """A request or a statement that cannot be served as it is."""

    code = "REQUEST"


class ForbiddenStatementError(RequestError):
    """A statement does, as Spark reads it, more than to compute rows from declared tables; nothing of it was run."""

    code = "STATEMENT_FORBIDDEN"


class FreshnessError(RequestError):
    """A freshness of a table that others stand against.

    `inputs` are these, each with the seconds that it delivers (what drives the table) or promises (what it drives).
    """

    code = "FRESHNESS"

    def __init__(self, message: str, *, table: str, inputs: Mapping[str, int]) -> None:
        self.table = table
        self.inputs = dict(inputs)
        super().__init__(message, where=table)

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "inputs": dict(self.inputs)}


class ReadError(RequestError):
    """A version, a time or changes that a table does not have, or has no longer."""

    code = "READ"


class ConsumerError(RequestError):
    """A consumer that cannot be registered, found or moved as it was asked for."""

    code = "CONSUMER"


class ConsumerExpiredError(ConsumerError):
    """A consumer that did not come for so long that its changes are kept no more."""

    code = "CONSUMER_EXPIRED"


class SavepointError(RequestError):
    """A savepoint that cannot be made, found or restored as it was asked for; nothing was changed."""

    code = "SAVEPOINT"


class SavepointGoneError(SavepointError):
    """A version that a savepoint needs is no longer there; nothing was restored."""

    code = "SAVEPOINT_GONE"


class RestoreBusyError(SavepointError):
    """Tables were refreshed for longer than a restore waits; nothing was restored."""

    code = "RESTORE_BUSY"
    retry_helps = True


class FormatError(FreshlineError):
    """A receipt, state file or control store was written by a newer freshline."""

    code = "FORMAT"


class ReportedError(FreshlineError):
    """An error that was stored or reported by another process, of a class that its code does not make again.

    It keeps its code, its place and all that was known of it.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.reported = dict(value)
        super().__init__(str(value.get("message", "no reason was given")), where=value.get("where"))
        # Of the instance: the class stands for every code.
        self.code = str(value.get("code", FreshlineError.code))  # type: ignore[misc]
        self.retry_helps = bool(value.get("retry_helps", False))  # type: ignore[misc]

    def as_json(self) -> dict[str, object]:
        return self.reported


def error_from_json(value: Mapping[str, Any] | str) -> FreshlineError:
    """The error that `as_json` made an object of: of its own class where its code says enough, else a ReportedError.

    A text is the sentence of an error alone.
    """
    if isinstance(value, str):
        return FreshlineError(value)
    message, where = str(value.get("message", "no reason was given")), value.get("where")
    code = str(value.get("code", FreshlineError.code))
    if value.get("errors"):
        return DeclarationErrors(
            [DeclarationError(str(each["rule"]), str(each["message"]), where=each["where"]) for each in value["errors"]]
        )
    if code == DeclarationError.code:
        return DeclarationError(str(value.get("rule", "SEVERAL")), message, where=where)
    kind = _plain_errors().get(code)
    return ReportedError(value) if kind is None else kind(message, where=where)


@cache
def _plain_errors() -> dict[str, type[FreshlineError]]:
    """The classes of errors, by code, that hold nothing but a sentence and a place."""
    found: dict[str, type[FreshlineError]] = {}
    pending: list[type[FreshlineError]] = [FreshlineError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__init__ is FreshlineError.__init__ and kind.as_json is FreshlineError.as_json:
            found[kind.code] = kind
    return found

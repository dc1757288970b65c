"""Every error that freshline raises on purpose.

```
FreshlineError                      code, retry_helps, where
├── DeclarationError                a declaration cannot become a table or source
│   └── DeclarationErrors           all declaration errors at once
├── SettingsError                   a setting or an environment variable is invalid
├── JarError                        a jar is missing or has the wrong checksum
├── JavaError                       no Java, or one that Spark cannot use
├── EngineError                     the engine could not be started, reached or locked
│   └── EngineHeldError             another engine has the lock of the warehouse
├── RefreshError                    one attempt at one table failed
│   ├── DuplicateKeyError           two rows for one primary key
│   ├── ConstraintError             rows violate a constraint ON VIOLATION FAIL
│   ├── LookupKeyError              two dimension rows for one lookup key
│   ├── AsOfDuplicateError          two versions of one key since one time
│   ├── QueryError                  Spark refuses the query
│   │   └── ForbiddenQueryError     the query does more than compute rows from declared tables
│   ├── PythonLimitError            a function in Python took too long or too much memory
│   ├── PromiseBrokenError          a function in Python does not keep `keys` or `append`
│   ├── ProcessFailedError          a class of freshline.process raised, or put out something else than declared
│   ├── ProcessKeyError             the keys of a class of freshline.process have types that do not serve
│   ├── ModelError                  a model cannot be asked with what it is given
│   │   ├── ModelChangedError       its file changed while it was read
│   │   └── ModelRuntimeError       ONNX Runtime is not installed
│   ├── PatternError                rows show that a MATCH_RECOGNIZE cannot be computed
│   │   ├── PatternBudgetError      its conditions leave more ways to match than are tried
│   │   ├── PatternSkipError        it skips to a row that a match has not, or began with
│   │   └── PatternExpressionError  its conditions compare values of kinds that cannot be compared
│   ├── GraphError                  a graph function cannot be computed over the edges that there are
│   ├── PartitionError              the named partition cannot be refreshed
│   ├── SourceError                 a source cannot be read, or its content has changed
│   │   ├── FileChangedError        a landing file changed after it was read
│   │   ├── FilesMisreadError       a landing file has other records than were read from it
│   │   ├── UndeclaredFieldsError   records have fields that the declaration has not
│   │   ├── TimeUnitError           numbers stand for times, and nothing says in which unit
│   │   ├── ChangeOrderError        changes have no common order in their database
│   │   ├── MessageKeyError         messages have another key than the declared one
│   │   ├── BrokerError             a broker does not answer
│   │   ├── TopicError              a topic does not exist, or the brokers refuse it
│   │   ├── TopicReplacedError      a topic is not the one that was read before
│   │   ├── OffsetsLostError        unread records of a topic or stream are gone
│   │   ├── RegistryError           a schema registry does not answer
│   │   ├── RegistryRefusedError    a schema registry refuses the request, or is none
│   │   ├── SchemaIdError           a schema registry does not know the schema of a record
│   │   ├── QueueError              a queue or stream does not exist, or the broker refuses it
│   │   ├── QueueReplacedError      a queue or stream is not the one that was read before
│   │   ├── QueueForeignError       a queue is read by somebody else
│   │   ├── RedeliveredError        messages of a queue were delivered many times
│   │   ├── StreamError             a stream of Kinesis does not exist, or the service refuses it
│   │   ├── StreamReplacedError     a stream of Kinesis is not the one that was read before
│   │   ├── ShardGoneError          a shard is gone before it was read to its end
│   │   ├── DatabaseError           a database server does not answer
│   │   ├── DatabaseRefusedError    a database refuses the request, or lacks what was declared of it
│   │   ├── DatabaseReplacedError   a database or table is not the one that was read before
│   │   ├── SourceKeyError          PRIMARY KEY of a source names several rows of the database's table
│   │   ├── LookupAwayError         a service that is asked for rows by their key does not answer
│   │   ├── LookupRefusedError      such a service refuses the request, or is none
│   │   ├── LookupAnswerError       an answer of such a service does not fit the declared columns
│   │   ├── SlotLostError           unread changes of a table are gone, or it is another table
│   │   ├── SlotForeignError        a replication slot is somebody else's, or in use
│   │   ├── ReplicaIdentityError    changes of a table do not name its rows by the declared key
│   │   ├── PublicationError        a publication does not have what the source needs of it
│   │   └── SourceTypeError         a column is declared with a type that its values do not fit
│   ├── SinkError                   a sink does not answer
│   │   ├── SinkRefusedError        a sink refuses the request, or lacks what was declared of it
│   │   ├── SinkFencedError         another engine, or another sink, writes there
│   │   ├── SinkHistoryError        a sink has a state that its table never had
│   │   ├── SinkSchemaError         a sink has other columns, or rows of somebody else
│   │   ├── SinkTypeError           a sink has no type for a column
│   │   └── SinkRejectedError       a sink does not take a row
│   ├── ForeignWriteError           another writer changed a log table
│   ├── UpstreamChangedError        an upstream deleted or updated rows, and `upstream-deletes` is `error`
│   ├── DefinitionChangedError      the declaration changed in a way that needs a start
│   ├── FencedError                 another writer has taken the table over
│   ├── IncrementalError            `incremental = strict`, and only a full refresh is possible
│   ├── HistoryRequiredError        a full refresh would lose rows that `requires-history` protects
│   └── StorageError                the disk is full or read-only
├── ExtensionFailedError            a class of another package raised, or does not keep what its seam asks
├── IngestError                     a post of events is refused, and nothing of it is stored
│   └── IngestBusyError             a post of events cannot be taken now
├── ChangesError                    a request to follow a table is refused
│   └── ChangesBusyError            too many clients follow tables of one engine
├── DeliveryError                   a channel did not accept an alert
├── CatalogError                    a catalog is away, or refuses an entry
├── CancelledError                  the request was cancelled
├── RequestError                    a request or statement is not possible
│   ├── ForbiddenStatementError     a statement does more than compute rows from declared tables
│   ├── FreshnessError              a freshness conflicts with other tables
│   ├── ReadError                   a version, time or change does not exist, or no longer
│   ├── ConsumerError               the name of a consumer is in use, unknown or invalid
│   │   └── ConsumerExpiredError    a consumer stayed away for too long
│   └── SavepointError              the name of a savepoint is in use, unknown or invalid
│       ├── SavepointGoneError      a version that the savepoint needs is gone
│       └── RestoreBusyError        running refreshes did not finish in time for a restore
└── FormatError                     a file was written by a newer freshline, or damaged
```

An error has facts as attributes. Its message names the mistake, the place and the remedy. `code` is stable, so programs
may rely on it. `retry_helps` is true if the same request can succeed later without a change by a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

# A value that was written by somebody else may lack a key or have another kind of value anywhere within.
UNREADABLE: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
# The same of a file, which may not be there either.
UNREADABLE_FILE: tuple[type[Exception], ...] = (OSError, *UNREADABLE)


class FreshlineError(Exception):
    """The base of all errors of freshline. Two errors with the same facts are equal.

    `where` is a place that a person can open: `file:line`, a table, or a partition of one.
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
    """A declaration cannot become a table or source. `rule` is the stable code of the broken rule.

    The rules are upper case with underscores. docs/errors.md lists them with their sentences.
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
    """A setting has an invalid value, or there is no project here."""

    code = "SETTINGS"


class JarError(FreshlineError):
    """A jar of the lock is missing, cannot be downloaded, or has another checksum than the lock."""

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
    """Another engine has the lock of the warehouse. The message names that engine."""

    code = "ENGINE_HELD"


class RefreshError(FreshlineError):
    """One attempt to refresh one table failed. The table is as it was before."""

    code = "REFRESH"


class DuplicateKeyError(RefreshError):
    """The query yields more than one row for a primary key.

    `samples` has up to five of the keys, each a mapping of column to value.
    """

    code = "DUPLICATE_KEY"

    def __init__(self, table: str, key: Sequence[str], samples: Sequence[Mapping[str, object]]) -> None:
        self.table = table
        self.key = tuple(key)
        self.samples = tuple(dict(sample) for sample in samples)
        shown = "; ".join(", ".join(f"{k} = {v!r}" for k, v in sample.items()) for sample in self.samples)
        super().__init__(
            f"the query yields more than one row for PRIMARY KEY ({', '.join(self.key)}), for example {shown}. "
            "Aggregate or filter the query to one row per key, or declare a wider key.",
            where=table,
        )


class ConstraintError(RefreshError):
    """Rows violate a constraint that is declared ON VIOLATION FAIL.

    `rows` is the number of these rows, `samples` has some of them as JSON texts.
    """

    code = "CONSTRAINT"

    def __init__(self, table: str, constraint: str, condition: str, rows: int, samples: Sequence[str]) -> None:
        self.table = table
        self.constraint = constraint
        self.rows = rows
        self.samples = tuple(samples)
        super().__init__(
            f"{rows} rows violate CONSTRAINT {constraint} EXPECT ({condition}), for example "
            f"{'; '.join(self.samples)}. Correct the rows at their origin, or declare ON VIOLATION DROP ROW or "
            "QUARANTINE.",
            where=table,
        )


class LookupKeyError(RefreshError):
    """The dimension of a lookup join has more than one row for a key."""

    code = "LOOKUP_KEY"

    def __init__(self, table: str, dimension: str, key: Sequence[str], samples: Sequence[Mapping[str, object]]) -> None:
        self.table = table
        self.dimension = dimension
        self.key = tuple(key)
        self.samples = tuple(dict(sample) for sample in samples)
        shown = "; ".join(", ".join(f"{k} = {v!r}" for k, v in sample.items()) for sample in self.samples)
        super().__init__(
            f"lookup of {dimension} on ({', '.join(self.key)}) finds more than one row, for example {shown}. "
            f"Make {dimension} unique on these columns, or join on its whole key.",
            where=table,
        )


class AsOfDuplicateError(RefreshError):
    """An as-of join finds two versions of one key that are valid since one time."""

    code = "ASOF_DUPLICATE"

    def __init__(self, table: str, versions: str, sample: str) -> None:
        self.table = table
        self.versions = versions
        self.sample = sample
        super().__init__(
            f"{versions} has two versions of one key since one time, for example {sample}. Remove one of them, or name "
            f"columns in the option 'as-of.tie-breaker' of {versions}: of two versions the one wins that has the "
            "greatest values there.",
            where=table,
        )


class QueryError(RefreshError):
    """Spark refuses the declared query, or the query failed while it ran."""

    code = "QUERY"


class ForbiddenQueryError(QueryError):
    """A declared query or expression does more, as Spark parses it, than compute rows from declared tables."""

    code = "QUERY_FORBIDDEN"


class PythonLimitError(RefreshError):
    """A function in Python exceeded its limit of time or memory, and was ended.

    A retry would exceed the limit again, so a person has to correct the function or raise the limit.
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


class PromiseBrokenError(RefreshError):
    """A function in Python does not keep the promise of its declaration: `keys` or `append`.

    A retry would find the same, so a person has to correct the function or the declaration.
    """

    code = "PROMISE_BROKEN"
    retry_helps = False

    def __init__(self, table: str, function: str, found: str, *, where: str) -> None:
        self.table = table
        super().__init__(
            f"the function {function} of {table} does not keep its promise: {found}. Correct the function, or remove "
            "`keys` or `append`, and the table is computed in full.",
            where=where,
        )


class ProcessFailedError(RefreshError):
    """A class of `freshline.process` raised, or put out a row that its columns do not take.

    A retry would read the same rows, so a person has to correct the class.
    """

    code = "PROCESS_FAILED"
    retry_helps = False


class ProcessKeyError(RefreshError):
    """The input shows types of a key by which a class of `freshline.process` cannot be given its rows.

    The declaration did not show them. A retry would find the same types, so a person has to correct it.
    """

    code = "PROCESS_KEY"
    retry_helps = False


class ModelError(RefreshError):
    """A model cannot be computed, or not with the values that ml_predict gives it."""

    code = "MODEL"


class ModelChangedError(ModelError):
    """The file of a model changed between the reading of the declarations and the refresh."""

    code = "MODEL_FILE_CHANGED"
    retry_helps = True


class ModelRuntimeError(ModelError):
    """ONNX Runtime is not installed, which the extra `freshline[onnx]` brings."""

    code = "MODEL_RUNTIME"


class PatternError(RefreshError):
    """The rows show that a MATCH_RECOGNIZE cannot be computed as it is declared."""

    code = "PATTERN"


class PatternBudgetError(PatternError):
    """The conditions on the match so far, or WITHIN, leave more ways to match one partition than are tried."""

    code = "PATTERN_BUDGET"


class PatternSkipError(PatternError):
    """AFTER MATCH SKIP TO names a variable that a match has no row of, or the row with which it began."""

    code = "PATTERN_EMPTY_SKIP"


class PatternExpressionError(PatternError):
    """A condition on the match so far compares or adds values of kinds that cannot be."""

    code = "PATTERN_EXPRESSION"


class GraphError(RefreshError):
    """A graph function cannot be computed over the edges that there are."""

    code = "GRAPH"
    retry_helps = False


class PartitionError(RefreshError):
    """The table does not have the named partition, or the partition cannot be refreshed."""

    code = "PARTITION"


class SourceError(RefreshError):
    """A source cannot be read, or its content no longer agrees with the receipts."""

    code = "SOURCE"
    retry_helps = True


class FileChangedError(SourceError):
    """A landing file has another size or modification time than when it was read."""

    code = "FILE_CHANGED"
    retry_helps = False


class FilesMisreadError(SourceError):
    """A landing file has other records than were read from it, or it changed. Nothing was committed."""

    code = "FILES_MISREAD"

    def __init__(self, found: str, where: str) -> None:
        super().__init__(f"{found} Nothing was committed. The next refresh reads the files again.", where=where)


class UndeclaredFieldsError(SourceError):
    """Records have fields that earlier ones had not and the declaration has not. All but these fields was read.

    `fields` are their names, each with the type to declare it with, empty where no column has such a type.
    """

    code = "UNDECLARED_FIELDS"
    retry_helps = False

    def __init__(self, fields: Sequence[tuple[str, str]], where: str) -> None:
        self.fields = tuple(fields)
        shown = ", ".join(f"`{name}` {kind}" if kind else f"`{name}`" for name, kind in self.fields[:20])
        more = f" and {len(self.fields) - 20} more" if len(self.fields) > 20 else ""
        super().__init__(
            f"records have new fields, which are not declared and were left out: {shown}{more}. To read them from now "
            "on, add them to the columns of the source. This is reported once.",
            where=where,
        )


class TimeUnitError(SourceError):
    """Records have numbers for a TIMESTAMP, and neither they nor the declaration say in which unit."""

    code = "TIME_UNIT"
    retry_helps = False

    def __init__(self, *, where: str) -> None:
        super().__init__(
            "a number stands for a TIMESTAMP, and its record has no inline schema with the unit. Nothing was read. Add "
            "'change.time-unit' = 'milliseconds', 'microseconds' or 'nanoseconds', as Debezium's time.precision.mode "
            "and the precision of the column have it.",
            where=where,
        )


class ChangeOrderError(SourceError):
    """Changes are to be taken in the order of their positions, and these have none with those that came before."""

    code = "CHANGE_ORDER"
    retry_helps = False

    def __init__(self, *, where: str, about: str) -> None:
        super().__init__(
            f"the positions of changes have no common order: {about}. Nothing was read. If the topic has the changes "
            "of another database server now, declare a source under a new name that reads it from a new snapshot. If "
            "each key stays in its partition, take 'change.order' = 'source' away.",
            where=where,
        )


class MessageKeyError(SourceError):
    """The keys of the messages of a change feed have other members than PRIMARY KEY."""

    code = "MESSAGE_KEY"
    retry_helps = False

    def __init__(self, *, where: str, about: str) -> None:
        members = about.partition(";")[0]
        super().__init__(
            f"what names a row in the messages is not what was declared: their key is {about}. Nothing was read. The "
            f"row that an event changes would be another one. Declare PRIMARY KEY ({members}) with a column for each: "
            "its value comes from the key where the row lacks it. Or let Debezium send the declared key, by "
            "message.key.columns.",
            where=where,
        )


class BrokerError(SourceError):
    """The brokers of a source of Kafka or RabbitMQ, or Kinesis, cannot be reached, or do not answer in time."""

    code = "BROKER"


class TopicError(SourceError):
    """A topic does not exist, or the brokers refuse the request."""

    code = "TOPIC"
    retry_helps = False


class TopicReplacedError(SourceError):
    """A topic was deleted and created again, has fewer partitions, or is of another cluster."""

    code = "TOPIC_REPLACED"
    retry_helps = False


class OffsetsLostError(SourceError):
    """Unread records of a topic or a stream are gone, because they expired or its offsets were reset."""

    code = "OFFSETS_LOST"
    retry_helps = False


class RegistryError(SourceError):
    """A schema registry cannot be reached, does not answer in time, or answers something else than a schema."""

    code = "REGISTRY"


class RegistryRefusedError(SourceError):
    """A schema registry refuses the request: wrong address, password or certificate, or a redirect."""

    code = "REGISTRY_REFUSED"
    retry_helps = False


class SchemaIdError(SourceError):
    """Records name schemas that the schema registry does not know. `ids` are their numbers, up to twenty of them.

    A wrong registry would make every record of the topic one of these, so nothing goes to quarantine unasked.
    """

    code = "SCHEMA_ID"
    retry_helps = False

    def __init__(self, ids: Sequence[int], url: str, *, where: str) -> None:
        self.ids = tuple(ids[:20])
        shown = ", ".join(map(str, self.ids)) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "")
        super().__init__(
            f"the schema registry at {url} does not know the schemas {shown} of new records. Nothing was read. Correct "
            "registry.url, or register the schemas again under their ids. To read the other records and to keep these "
            "in quarantine, add 'registry.unknown-id' = 'quarantine'.",
            where=where,
        )


class QueueError(SourceError):
    """A queue or stream of RabbitMQ does not exist, or the broker refuses the request."""

    code = "QUEUE"
    retry_helps = False


class QueueReplacedError(SourceError):
    """A queue or stream is not the one that was read: another one was declared, or a stream was made anew."""

    code = "QUEUE_REPLACED"
    retry_helps = False


class QueueForeignError(SourceError):
    """A queue has another consumer, which gets a part of its messages."""

    code = "QUEUE_FOREIGN"
    retry_helps = False


class RedeliveredError(SourceError):
    """Messages of a queue were delivered so often that the broker may soon drop them. Reported, and fails nothing."""

    code = "REDELIVERED"
    retry_helps = False


class StreamError(SourceError):
    """A stream of Kinesis does not exist, or the service refuses the request: wrong keys, region or right."""

    code = "STREAM"
    retry_helps = False


class StreamReplacedError(SourceError):
    """A stream of Kinesis is not the one that was read: it was deleted and made anew, or is of another account."""

    code = "STREAM_REPLACED"
    retry_helps = False


class ShardGoneError(SourceError):
    """A shard expired with records that were not read, or with all of them."""

    code = "SHARD_GONE"
    retry_helps = False


class DatabaseError(SourceError):
    """A database server cannot be reached, or does not answer."""

    code = "DATABASE"


class DatabaseRefusedError(SourceError):
    """A database refuses the request: wrong password, missing table or column, missing right or setting."""

    code = "DATABASE_REFUSED"
    retry_helps = False


class DatabaseReplacedError(SourceError):
    """A server, database or table is not the one that was read before, or was put back to an earlier state."""

    code = "DATABASE_REPLACED"
    retry_helps = False


class SourceKeyError(SourceError):
    """PRIMARY KEY of a source does not name one row of the database's table."""

    code = "SOURCE_KEY"
    retry_helps = False


class LookupAwayError(SourceError):
    """A service that is asked for rows by their key cannot be reached, or does not answer in time.

    Answers that it gave before are kept, so they are not asked for again.
    """

    code = "LOOKUP_AWAY"


class LookupRefusedError(SourceError):
    """A service that is asked for rows by their key refuses the request: wrong address, secret or certificate."""

    code = "LOOKUP_REFUSED"
    retry_helps = False


class LookupAnswerError(SourceError):
    """An answer to a key does not fit the declared columns, or is no answer. `key` has the columns of PRIMARY KEY."""

    code = "LOOKUP_ANSWER"
    retry_helps = False

    def __init__(self, source: str, key: Mapping[str, object], why: str, *, where: str) -> None:
        self.source = source
        self.key = dict(key)
        self.why = why
        shown = ", ".join(f"{name} = {value!r}" for name, value in self.key.items())
        super().__init__(
            f"{source} has no row to give for {shown}: {why}. Correct the service or the declaration, or set "
            "'lookup.on-error' to 'null' or 'quarantine'.",
            where=where,
        )


class SlotLostError(SourceError):
    """Unread changes of a table are gone with its replication slot, or the database or the table is another one."""

    code = "SLOT_LOST"
    retry_helps = False


class SlotForeignError(SourceError):
    """A replication slot was made by somebody else, or is in use by somebody else."""

    code = "SLOT_FOREIGN"
    retry_helps = False


class ReplicaIdentityError(SourceError):
    """The replica identity of a table does not name its rows as PRIMARY KEY of the source does."""

    code = "REPLICA_IDENTITY"
    retry_helps = False


class PublicationError(SourceError):
    """A publication is missing, or does not have the table, all kinds of its changes, or all declared columns."""

    code = "PUBLICATION"
    retry_helps = False


class SourceTypeError(SourceError):
    """A column is declared with a type that the values of the database's column do not fit."""

    code = "SOURCE_TYPE"
    retry_helps = False


class SinkError(RefreshError):
    """A system that rows go out to cannot be reached, or does not answer."""

    code = "SINK"
    retry_helps = True


class SinkRefusedError(SinkError):
    """A system that rows go out to refuses the request: wrong password, missing table or index, missing right."""

    code = "SINK_REFUSED"
    retry_helps = False


class SinkFencedError(SinkError):
    """A newer engine writes the sink now, or what is declared as the sink belongs to another one."""

    code = "SINK_FENCED"
    retry_helps = False


class SinkHistoryError(SinkError):
    """A sink has a newer state of its table than the warehouse: one of the two was put back."""

    code = "SINK_HISTORY"
    retry_helps = False


class SinkSchemaError(SinkError):
    """A sink has other columns or another key than its table, or rows that freshline has not written."""

    code = "SINK_SCHEMA"
    retry_helps = False


class SinkTypeError(SinkError):
    """A sink has no type for the values of a column."""

    code = "SINK_TYPE"
    retry_helps = False


class SinkRejectedError(SinkError):
    """A sink does not take a row, and `on-reject` is `fail`."""

    code = "SINK_REJECTED"
    retry_helps = False


class ForeignWriteError(RefreshError):
    """Another writer changed a log table, which grows only by the batches of its engine."""

    code = "FOREIGN_WRITE"


class UpstreamChangedError(RefreshError):
    """An upstream updated or deleted rows, and the `upstream-deletes` of the table is `error`."""

    code = "UPSTREAM_CHANGED"


class DefinitionChangedError(RefreshError):
    """The declaration differs from that of the newest receipt by more than a refresh may apply."""

    code = "DEFINITION_CHANGED"


class FencedError(RefreshError):
    """A newer engine took over, so the fence of the commit rejects this writer."""

    code = "FENCED"
    retry_helps = True


class IncrementalError(RefreshError):
    """The table has `incremental = strict`, and only a full refresh can apply this change."""

    code = "INCREMENTAL"


class HistoryRequiredError(RefreshError):
    """An input of `requires-history` no longer has the rows that a full refresh of the table needs."""

    code = "HISTORY_REQUIRED"


class StorageError(RefreshError):
    """The warehouse cannot be written: the disk is full or read-only."""

    code = "STORAGE"
    retry_helps = True


class ExtensionFailedError(FreshlineError):
    """A class of another package, as a connector or a merge, raised an exception, or gave what it may not give.

    `package` is the name and version of the package, `method` the class and the method.
    """

    code = "EXTENSION_FAILED"

    def __init__(self, package: str, method: str, sentence: str, *, where: str | None = None) -> None:
        self.package = package
        self.method = method
        self.sentence = sentence
        super().__init__(
            f"{method} of {package} {sentence}. Correct the package, or install another version of it.", where=where
        )


class IngestError(FreshlineError):
    """A post of events is refused. Nothing of it is stored."""

    code = "INGEST"


class IngestBusyError(IngestError):
    """A post of events cannot be taken now: too many arrive, or the disk is full or away. Send it again later."""

    code = "INGEST_BUSY"
    retry_helps = True


class ChangesError(FreshlineError):
    """A request to follow a table is refused."""

    code = "CHANGES"


class ChangesBusyError(ChangesError):
    """Too many clients follow tables of one engine. Ask again later."""

    code = "CHANGES_BUSY"
    retry_helps = True


class DeliveryError(FreshlineError):
    """A channel did not accept a message. The sentence contains no secret. `final`: a retry would do harm.

    `status` is the answer of a web server that refused it, None where it was something else.
    """

    code = "DELIVERY"
    retry_helps = True

    def __init__(
        self, message: str, *, where: str | None = None, final: bool = False, status: int | None = None
    ) -> None:
        self.final = final
        self.status = status
        super().__init__(message, where=where)


class CatalogError(FreshlineError):
    """A catalog in which tables are entered is away, or refuses. The tables themselves are kept all the same.

    `where` is the catalog's table of settings. `refused`: it answered, and another try is of no use without a change.
    """

    code = "CATALOG"
    retry_helps = True

    def __init__(self, message: str, *, where: str | None = None, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(message, where=where)


class CancelledError(FreshlineError):
    """The request was cancelled. Nothing was committed after that."""

    code = "CANCELLED"


class RequestError(FreshlineError):
    """A request or a statement is not possible."""

    code = "REQUEST"


class ForbiddenStatementError(RequestError):
    """A statement does more, as Spark parses it, than compute rows from declared tables. Nothing of it was run."""

    code = "STATEMENT_FORBIDDEN"


class FreshnessError(RequestError):
    """A freshness of a table conflicts with other tables.

    `inputs` are these tables with their seconds: an upstream with those that it delivers, a downstream table with those
    that it promises.
    """

    code = "FRESHNESS"

    def __init__(self, message: str, *, table: str, inputs: Mapping[str, int]) -> None:
        self.table = table
        self.inputs = dict(inputs)
        super().__init__(message, where=table)

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "inputs": dict(self.inputs)}


class ReadError(RequestError):
    """The table does not have a version, a time or changes, or has them no longer."""

    code = "READ"


class ConsumerError(RequestError):
    """A consumer cannot be registered, found or moved."""

    code = "CONSUMER"


class ConsumerExpiredError(ConsumerError):
    """A consumer stayed away for so long that its changes are no longer retained."""

    code = "CONSUMER_EXPIRED"


class SavepointError(RequestError):
    """A savepoint cannot be created, found or restored. Nothing was changed."""

    code = "SAVEPOINT"


class SavepointGoneError(SavepointError):
    """A version that a savepoint needs is gone. Nothing was restored."""

    code = "SAVEPOINT_GONE"


class RestoreBusyError(SavepointError):
    """Running refreshes took longer than a restore waits. Nothing was restored."""

    code = "RESTORE_BUSY"
    retry_helps = True


class FormatError(FreshlineError):
    """A newer freshline wrote a receipt, state file, savepoint or control store, or somebody damaged it."""

    code = "FORMAT"


class ReportedError(FreshlineError):
    """An error that was stored or reported by another process, of a class that its code does not make again.

    It keeps its code, its place and all that was known of it.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.reported = dict(value)
        super().__init__(str(value.get("message", "no reason was given")), where=value.get("where"))
        # An attribute of the instance: the class stands for every code.
        self.code = str(value.get("code", FreshlineError.code))  # type: ignore[misc]
        self.retry_helps = bool(value.get("retry_helps", False))  # type: ignore[misc]

    def as_json(self) -> dict[str, object]:
        return self.reported


def shown_problem(error: Exception) -> str:
    """The fault of a value, for the sentence of an error.

    >>> shown_problem(KeyError("table"))
    "KeyError 'table'"
    """
    return f"{type(error).__name__} {str(error)[:200]}".rstrip()


def require_format(found: object, known: int, what: str, where: str | None = None) -> None:
    """Raise FormatError for something of a newer format than is known, or of none."""
    if not isinstance(found, int) or found > known:
        raise FormatError(
            f"{what} has format {found}, this freshline reads up to {known}. "
            "Use the freshline that wrote it, or a newer one.",
            where=where,
        )


def error_from_json(value: Mapping[str, Any] | str) -> FreshlineError:
    """The error that `as_json` made an object of: of its own class where its code says enough, else a ReportedError.

    A text is the sentence of an error alone.
    """
    if isinstance(value, str):
        return FreshlineError(value)
    message, where = str(value.get("message", "no reason was given")), _text_or_none(value.get("where"))
    code = str(value.get("code", FreshlineError.code))
    errors = value.get("errors")
    if isinstance(errors, list) and errors and all(isinstance(each, dict) for each in errors):
        return DeclarationErrors(
            [
                DeclarationError(
                    str(each.get("rule", "SEVERAL")),
                    str(each.get("message", "no reason was given")),
                    where=_text_or_none(each.get("where")),
                )
                for each in errors
            ]
        )
    if code == DeclarationError.code:
        return DeclarationError(str(value.get("rule", "SEVERAL")), message, where=where)
    kind = _plain_errors().get(code)
    return ReportedError(value) if kind is None else kind(message, where=where)


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


@cache
def _plain_errors() -> dict[str, type[FreshlineError]]:
    """The classes of errors, by code, that have nothing but a sentence and a place."""
    found: dict[str, type[FreshlineError]] = {}
    pending: list[type[FreshlineError]] = [FreshlineError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__init__ is FreshlineError.__init__ and kind.as_json is FreshlineError.as_json:
            found[kind.code] = kind
    return found

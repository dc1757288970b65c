"""Answers of sources that are asked by key: asked once, kept, and committed before the rows that use them.

The table `<source>__answer` has each answer with when it was asked and for which refresh. A refresh that needs keys
without an answer asks for them, commits the answers, and computes its rows at the version that has them. So a refresh
that is stopped behind that commit finds the answers when it begins again, and `verify` reads them and asks nobody.

Answers are written into a journal beside the table as they arrive, and the journal is committed as a whole. One that a
stopped process left is committed before anybody is asked again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructType, TimestampType

from freshline.commit.columns import column_types, input_columns
from freshline.commit.delta_log import exists, last_seq, newest_version, position_at, read_newest, receipt_at, table_id
from freshline.commit.write import append_rows, create_table, write_and_read_back
from freshline.compute.answers import newest_answers
from freshline.compute.arrow_rows import ArrowRows
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned
from freshline.compute.read_only import read_only
from freshline.errors import FencedError, LookupAnswerError, LookupAwayError, RefreshError, SourceError
from freshline.plan.disk import HISTORY_SECONDS
from freshline.query.rules.asked_keys import KeyQuery, asked_keys_text, find_key_queries
from freshline.refresh.runtime import Progress, Runtime
from freshline.sources.lookups.ask import Limits, ask_all
from freshline.sources.lookups.client import Answer, Key, LookupClient
from freshline.values.connector import SEQ
from freshline.values.extension import given
from freshline.values.lookup import ASKED_AT, ASKED_FOR, ASKED_OF, FAILED, FOUND, Lookup, OnError
from freshline.values.names import TableName, quoted
from freshline.values.position import TablePosition
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.spec import SourceSpec, TableSpec

LOG = logging.getLogger(__name__)
# So many keys are asked for, and their answers committed, at a time.
MOST_KEYS = 20_000
# A refresh that begins again uses what it asked for before. One that failed for days asks anew, and so does a table
# that was dropped and declared again under its name.
AGAIN_WITHIN = timedelta(days=1)
# A row of a key may depend on that of another dimension, and so on: more steps than a query has joins.
MOST_PASSES = 64
# The folder of journals: Delta passes over names that begin with an underscore.
JOURNALS = "_freshline_asked"
_FACTS = (
    (ASKED_AT, TimestampType()),
    (FOUND, BooleanType()),
    (FAILED, StringType()),
    (ASKED_FOR, StringType()),
    (ASKED_OF, StringType()),
)


class AnswersArrivedError(Exception):
    """Answers were committed that the pinned positions do not have, so rows are computed at newer ones."""

    is_expected_of_extensions = True


@dataclass(frozen=True)
class Use:
    """Which answers may be used for new rows, beside those that were asked for this refresh itself (`asked_for`).

    `any_age`: all of them, because the rows are no new ones. `since` is the time since when an answer must have been
    asked. With `retries` a key that had no row is asked for again.
    """

    asked_for: str
    any_age: bool
    retries: bool


class AnswerStore:
    """The answers of one source: its table, its journals and its client. Safe to use in several threads."""

    def __init__(self, runtime: Runtime, spec: SourceSpec, before: AnswerStore | None = None) -> None:
        """`before` is the store of the source as it was declared before: both write one table, one at a time."""
        self._runtime = runtime
        self.spec = spec
        self.path = runtime.warehouse.answers(spec.name)
        declared = StructType.fromDDL(", ".join(f"{quoted(each.name)} {each.type}" for each in spec.columns))
        assert isinstance(declared, StructType)
        self._declared = declared
        self._schema = StructType([*declared.fields])
        for name, kind in _FACTS:
            self._schema = self._schema.add(name, kind)
        self._arrow = to_arrow_schema(self._schema, timezone="UTC")
        self._fingerprint = spec.fingerprint
        self._lock: threading.RLock = threading.RLock() if before is None else before._lock
        self._client: LookupClient | None = None
        self._is_ready = False

    @property
    def lookup(self) -> Lookup:
        """The connector, with its options."""
        assert isinstance(self.spec.connection, Lookup)
        return self.spec.connection

    def position(self) -> TablePosition:
        """The newest position; the table is made where there is none, and what a stopped process left is committed."""
        with self._lock:
            if not self._is_ready or not exists(self.path):
                self._prepare()
                self._is_ready = True
            version = newest_version(self.path)
            assert version is not None
            return position_at(table_id(self.path), version, receipt_at(self.path, version))

    def alone(self) -> AbstractContextManager[Any]:
        """The time in which nobody else writes answers of this process."""
        return self._lock

    def close(self) -> None:
        """Let go of the client, when nobody asks by it."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def unanswered(self, spark: SparkSession, keys: DataFrame, seq: int, use: Use) -> DataFrame:
        """Those of some keys that have no answer which may be used, by the answers up to a number."""
        answers = newest_answers(spark, self.path, self.spec, seq)
        now = self._runtime.clock()
        same = (F.col(ASKED_FOR) == F.lit(use.asked_for)) & (F.col(ASKED_AT) > F.lit(now - AGAIN_WITHIN))
        if use.any_age:
            usable = F.lit(True)
        else:
            usable = F.lit(False)
            if self.lookup.lookup_cache_ttl:
                since = now - timedelta(seconds=self.lookup.lookup_cache_ttl)
                usable = (F.col(ASKED_AT) > F.lit(since)) & (F.col(ASKED_OF) == F.lit(self.spec.fingerprint))
                usable = usable & (F.col(FAILED) == "") & (F.col(FOUND) | F.lit(not use.retries))
        known = answers.where(same | usable).select(*[quoted(name) for name in self.spec.primary_key])
        return keys.join(known, list(self.spec.primary_key), "left_anti")

    def answer(
        self, spark: SparkSession, keys: DataFrame, use: Use, cancellation: Cancellation, progress: Progress
    ) -> bool:
        """Have an answer to each of these keys. True where somebody was asked, or others asked meanwhile.

        Raises SourceErrors, after the answers that arrived are committed.
        """
        asked = False
        while True:
            cancellation.check()
            # One at a time: a key that two tables need is asked for by the first of them.
            with self._lock:
                position = self.position()
                missing = self.unanswered(spark, keys, position.seq or 0, use).limit(MOST_KEYS).toArrow()
                if missing.num_rows:
                    progress(f"asking {self.spec.name} for {missing.num_rows} keys")
                    self._ask(spark, list(self._keys_of(missing)), use, cancellation)
                    asked = True
            if missing.num_rows < MOST_KEYS:
                return asked

    def _keys_of(self, rows: pa.Table) -> Iterator[Key]:
        columns = [rows[name].to_pylist() for name in self.spec.primary_key]
        for key in zip(*columns, strict=True):
            yield tuple(
                value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value
                for value in key
            )

    def _ask(self, spark: SparkSession, keys: Sequence[Key], use: Use, cancellation: Cancellation) -> None:
        lookup, runtime = self.lookup, self._runtime
        limits = Limits(lookup.lookup_concurrency, lookup.lookup_rate_limit)
        fails = lookup.lookup_on_error == OnError.FAIL
        failed: list[tuple[Key, Answer]] = []
        runtime.failpoint("lookup-before-ask")
        client = self._open_client()
        journal = _Journal(self.path, self._arrow)

        def keep(arrived: Sequence[tuple[Key, Answer]]) -> bool:
            none = [pair for pair in arrived if pair[1].failed]
            failed.extend(none)
            kept = [pair for pair in arrived if not (fails and pair[1].failed)]
            if kept:
                journal.write([self._row(key, answer, use) for key, answer in kept])
                runtime.failpoint("lookup-answered")
            return not (fails and none)

        # Where the commit fails, the journal stays for whoever asks next.
        self._is_ready = False
        try:
            ask_all(client, keys, limits, cancellation.check, keep)
        finally:
            journal.close()
            if journal.rows:
                self._commit(spark, journal.rows, journal.identity)
            journal.remove()
            self._is_ready = True
        if failed and fails:
            raise self._failure(*failed[0])
        for key, answer in failed[:5]:
            LOG.warning("%s has no answer to %s: %s", self.spec.name, self._shown(key), answer.failed)

    def _failure(self, key: Key, answer: Answer) -> SourceError:
        name, where = str(self.spec.name), str(self.spec.written_at)
        if answer.away:
            return LookupAwayError(
                f"{name} does not answer: {answer.failed}. The answers that it gave are kept; the others are asked for "
                "again.",
                where=where,
            )
        return LookupAnswerError(name, self._shown(key), answer.failed, where=where)

    def _shown(self, key: Key) -> dict[str, object]:
        return dict(zip(self.spec.primary_key, key, strict=True))

    def _open_client(self) -> LookupClient:
        if self._client is None:
            made = self.lookup.open_client(self.spec, self._runtime, to_arrow_schema(self._declared, timezone="UTC"))
            self._client = given(made, LookupClient, type(self.lookup), "open_client", self.spec)
        return self._client

    def _row(self, key: Key, answer: Answer, use: Use) -> dict[str, Any]:
        """An answer as a row of the table, without its number."""
        row = dict.fromkeys(self._arrow.names)
        row.update(answer.row or {})
        row.update(zip(self.spec.primary_key, key, strict=True))
        is_found = answer.row is not None and not answer.failed
        facts = (self._runtime.clock(), is_found, answer.failed, use.asked_for, self._fingerprint)
        row.update(zip((ASKED_AT, FOUND, FAILED, ASKED_FOR, ASKED_OF), facts, strict=True))
        return row

    # -- the table

    def _prepare(self) -> None:
        if not exists(self.path):
            self._runtime.require_warehouse()
            schema = self._schema.add(SEQ, LongType())
            create_table(self._runtime.spark, self.path, schema, history_seconds=HISTORY_SECONDS)
        if newest_version(self.path) is not None and last_seq(self.path) == 0:
            # A position is that of a receipt, and an empty table has one too.
            self._commit(self._runtime.spark, [], uuid4().hex)
        self._require_types()
        for identity, rows in _left_journals(self.path, self._arrow):
            newest = read_newest(self.path)
            known = None if newest is None or newest.receipt is None else newest.receipt.attempt
            if rows and known != identity:
                self._commit(self._runtime.spark, rows, identity)
            _journal_file(self.path, identity).unlink(missing_ok=True)

    def _require_types(self) -> None:
        stored = {name.lower(): kind for name, kind in column_types(self.path).items()}
        for column in self.spec.columns:
            found = stored.get(column.name.lower())
            if found is not None and found.replace(" ", "") != column.type.replace(" ", ""):
                raise SourceError(
                    f"column {column.name} is declared {column.type}, and answers that are kept have it as {found}. "
                    "Give the column another name, or declare the source under another name.",
                    where=str(self.spec.written_at),
                )

    def _commit(self, spark: SparkSession, batches: Sequence[pa.RecordBatch], identity: str) -> None:
        """Commit answers as one version. Raises FencedError where another engine writes them."""
        runtime = self._runtime
        rows = pa.Table.from_batches(list(batches), self._arrow).combine_chunks()
        seq = last_seq(self.path) + 1 if exists(self.path) else 1
        rows = rows.append_column(SEQ, pa.array([seq] * rows.num_rows, pa.int64()))
        schema = StructType([*self._schema.fields]).add(SEQ, LongType())
        receipt = Receipt(
            table=self.spec.name,
            fingerprint=self.spec.fingerprint,
            epoch=runtime.epoch,
            seq=seq,
            mode="",
            strategy=str(Strategy.APPEND),
            reason="answers to keys",
            data_timestamp=None,
            positions={},
            rows_in=rows.num_rows,
            rows_out=rows.num_rows,
            attempt=identity,
        )
        if batches:
            runtime.failpoint("lookup-before-commit")
        committed = write_and_read_back(
            lambda: append_rows(
                ArrowRows(rows, schema, spark), self.path, receipt, merge_schema=True, count=rows.num_rows
            ),
            self.path,
            receipt,
            runtime.require_warehouse,
        )
        if committed is None:
            raise FencedError("another engine writes the answers of this source. Ask again.", where=str(self.spec.name))
        if batches:
            runtime.failpoint("lookup-after-commit")


def _journal_file(path: Path, identity: str) -> Path:
    return path / JOURNALS / f"{identity}.arrow"


class _Journal:
    """Answers that have arrived and are not committed yet, in a file that a killed process leaves behind.

    The file is a stream of Arrow. Answers that arrive while others are written are written together behind them: each
    write makes the thread wait for its turn in Python, which takes longer than the write.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.identity = uuid4().hex
        self.rows: list[pa.RecordBatch] = []
        self._schema = schema
        self._file = _journal_file(path, self.identity)
        self._file.parent.mkdir(exist_ok=True)
        self._sink = self._file.open("wb", buffering=0)
        self._put(schema.serialize())
        self._turn, self._guard = threading.Lock(), threading.Lock()
        self._waiting: list[dict[str, Any]] = []
        self._arrived = self._written = 0
        self._is_broken = False

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add answers; when this returns, no kill of the process loses them."""
        with self._guard:
            self._waiting.extend(rows)
            self._arrived += len(rows)
            mine = self._arrived
        with self._turn:
            if self._written >= mine:
                return
            if self._is_broken:
                raise OSError(f"an answer could not be written to {self._file}")
            with self._guard:
                taken, self._waiting, arrived = self._waiting, [], self._arrived
            # Nobody reads behind a batch that is torn.
            self._is_broken = True
            # Twice as quick as RecordBatch.from_pylist.
            columns = [pa.array([row[field.name] for row in taken], field.type) for field in self._schema]
            batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            self._put(batch.serialize())
            self.rows.append(batch)
            self._written, self._is_broken = arrived, False

    def _put(self, content: pa.Buffer) -> None:
        left = memoryview(content)
        while left:
            left = left[self._sink.write(left) :]

    def close(self) -> None:
        self._sink.close()

    def remove(self) -> None:
        """Forget the file, whose answers are committed."""
        self._file.unlink(missing_ok=True)


def _left_journals(path: Path, schema: pa.Schema) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """The journals that stopped processes left, each up to where it is whole; those of other columns are empty."""
    for file in sorted((path / JOURNALS).glob("*.arrow")):
        found: list[pa.RecordBatch] = []
        try:
            with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as reader:
                if reader.schema.equals(schema):
                    # The last batch may be torn, where the process was killed while it wrote it.
                    found.extend(reader)
        except (pa.ArrowInvalid, OSError) as error:
            LOG.info("%s ends within an answer: %s", file, error)
        yield file.stem, found


def store_of(runtime: Runtime, spec: SourceSpec) -> AnswerStore:
    """The answers of a source, kept until the source is declared otherwise."""
    return runtime.shared("freshline.answers", _Stores).get(runtime, spec)


class _Stores:
    """The store of each source. Tables that are refreshed at once have the same: two would commit over each other."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._found: dict[TableName, AnswerStore] = {}

    def get(self, runtime: Runtime, spec: SourceSpec) -> AnswerStore:
        """The store of a source, made where there is none of this declaration."""
        with self._guard:
            before = self._found.get(spec.name)
            if before is not None and before.spec == spec:
                return before
            made = self._found[spec.name] = AnswerStore(runtime, spec, before)
        if before is not None:
            before.close()
        return made


# -- what a refresh asks for


@dataclass
class RefreshAsker:
    """Asks what one attempt at a refresh needs.

    The attempt computes its rows again whenever answers arrived, and a query over the same inputs is not searched for
    keys twice: `_done` are those of the calls of one pass, in their order, and the joins of the query.
    """

    runtime: Runtime
    spec: TableSpec
    queries: tuple[KeyQuery, ...]
    use: Use
    cancellation: Cancellation
    progress: Progress
    _done: set[tuple[int, int]] = field(default_factory=set)
    _calls: int = 0
    _passes: int = 0

    def begin_pass(self) -> None:
        """Begin to compute the rows, from the first query on."""
        self._calls = 0
        self._passes += 1
        if self._passes > MOST_PASSES:
            raise RefreshError(
                "lookups depend on each other, and no end of asking was found. Split the table into several.",
                where=str(self.spec.name),
            )

    def pinned(self, inputs: Mapping[TableName, Pinned]) -> dict[TableName, Pinned]:
        """The inputs with the newest answers, of which those that are missing are asked for."""
        found = dict(inputs)
        for name in {query.table for query in self.queries}:
            store = self._store(name)
            found[name] = replace(inputs[name], position=store.position(), ask=self._ask)
        return found

    def _store(self, name: TableName) -> AnswerStore:
        source = self.runtime.graph.spec(name)
        assert isinstance(source, SourceSpec)
        return store_of(self.runtime, source)

    def _ask(self, spark: SparkSession, pins: Mapping[TableName, Pinned]) -> None:
        call = self._calls
        self._calls += 1
        arrived: set[TableName] = set()
        for number, query in enumerate(self.queries):
            depends = bool(query.reads & {each.table for each in self.queries})
            if ((call, number) in self._done and not depends) or query.reads & arrived:
                continue
            store = self._store(query.table)
            types = {column.name.lower(): column.type for column in store.spec.columns}
            keys = read_only(spark, asked_keys_text(query, types)).persist()
            try:
                seq = pins[query.table].position.seq or 0
                if store.unanswered(spark, keys, seq, self.use).limit(1).count():
                    store.answer(spark, keys, self.use, self.cancellation, self.progress)
                    arrived.add(query.table)
            finally:
                keys.unpersist()
            self._done.add((call, number))
        if arrived:
            raise AnswersArrivedError


def asker_of(
    runtime: Runtime,
    spec: TableSpec,
    receipt: Receipt | None,
    cancellation: Cancellation,
    progress: Progress,
    *,
    any_age: bool,
) -> RefreshAsker | None:
    """The asker for the keys of a refresh, None for a table that looks nothing up outside. Raises RefreshError.

    `any_age` says that answers of any age serve, because no row is a new one.
    """
    asked = {name for name in spec.lookups if _is_asked(runtime, name)}
    if not asked:
        return None
    columns = input_columns(runtime.graph, runtime.warehouse, spec)
    queries = find_key_queries(spec.sql, {name.view.lower(): known for name, known in columns.items()}, asked)
    if isinstance(queries, Reason):
        raise RefreshError(f"the keys of its lookups are not found: {queries}", where=str(spec.written_at))
    # A refresh that begins again stands on the same receipt.
    asked_for = f"{spec.name}@{1 if receipt is None else receipt.seq + 1}"
    if receipt is not None:
        asked_for += f" {receipt.attempt[:12]}"
    use = Use(asked_for, any_age, bool(spec.lookup_attempts))
    return RefreshAsker(runtime, spec, queries, use, cancellation, progress)


def _is_asked(runtime: Runtime, name: TableName) -> bool:
    source = runtime.graph.spec(name)
    return isinstance(source, SourceSpec) and source.is_lookup

"""The writer of ClickHouse, by its HTTP interface.

Each row has the version of its refresh, its epoch and its number, and a row that went away is one that says so. A view
shows the newest row of each key (FINAL). So rows of a late writer are never seen, and what a killed refresh has written
is written again without effect. All rows go into a new table, and the view is moved to it, which is the commit.

The table `freshline_sink` says which attempts were begun and which were finished. An attempt is noted before its first
row, and then the notes are read again: of two writers that begin at the same time, at least one finds the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from freshline.errors import SinkError, SinkFencedError, SinkRefusedError, SinkRejectedError, SinkSchemaError
from freshline.sinks.clickhouse.rows import inserts, read_rows, rejected_rows, split_by_range, type_of
from freshline.sinks.clickhouse.sink import DELETED, VERSION, ClickHouseSink
from freshline.sinks.http_client import AWAY, PATIENCE, Answer, Patience
from freshline.sinks.http_writer import HttpWriter
from freshline.sinks.writer import Delivered, Delivery, KeepRejected, OutgoingRows, SinkHost
from freshline.values.sink import OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

POSITIONS = "freshline_sink"
_CHANGES, _ALL, _DONE = "changes", "all", "done"
# The comment of a view that freshline has made begins so; the name of its table follows.
_OURS = "freshline "
_READ_ROWS = 100_000
_NO_TABLE, _NO_DATABASE = 60, 81
# Codes of a server that has too much to do, or is about to stop: timeouts, too many queries or parts, memory.
_BUSY = (159, 202, 203, 209, 210, 236, 241, 242, 252, 473, 999)


@dataclass(frozen=True)
class _Note:
    """A row of the table of positions: an attempt at `state` into a table, or a finished one."""

    state: str
    position: SinkPosition
    into: str

    @property
    def version(self) -> int:
        return self.position.number


@dataclass(frozen=True)
class _Known:
    """All notes, and the table that the view shows, None without a view."""

    notes: tuple[_Note, ...]
    shown: str | None

    @property
    def held(self) -> SinkPosition | None:
        """The position of the rows that are shown, with what is known of attempts at changes that did not finish."""
        here = [note for note in self.notes if note.into == self.shown]
        # A table with all rows is shown once its attempt is finished.
        finished = [note for note in here if note.state in (_DONE, _ALL)]
        if not finished:
            return None
        last = max(finished, key=lambda note: note.version)
        begun = [note for note in here if note.state == _CHANGES and note.version > last.version]
        return last.position.after_attempts(*[note.position for note in begun])


class ClickHouseWriter(HttpWriter):
    """Writes a table."""

    def __init__(self, spec: TableSpec, host: SinkHost, *, patience: Patience = PATIENCE) -> None:
        super().__init__(spec, host, patience=patience)
        assert isinstance(spec.sink, ClickHouseSink)
        self._database, self._table = spec.sink.parts

    def position(self) -> SinkPosition | None:
        return self._look().held

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        known = self._look()
        self.require_position(known.held, delivery)
        assert known.shown is not None
        self._begin(_Note(_CHANGES, delivery.after, known.shown), known)
        self._drop_others(known.shown, delivery.after.owner)
        if self._look().shown != known.shown:
            raise SinkFencedError(
                "another writer has moved the view. Nothing was written. Ask again.", where=self.where
            )
        keys, outside = list(self.spec.primary_key), list[pa.RecordBatch]()
        gone = (batch.select(keys) for batch in rows.read_deletes())
        # A key that there is no row for was never taken.
        fitting = (split_by_range(batch)[0] for batch in gone)
        deleted = self._insert(known.shown, fitting, delivery.after, deleted=True)
        written = self._insert(known.shown, self._taken(rows, outside), delivery.after, deleted=False)
        if outside:
            keep_rejected([row for batch in outside for row in rejected_rows(batch)])
        self.host.failpoint("sink-before-commit")
        self._note(_Note(_DONE, delivery.after, known.shown))
        self.host.failpoint("sink-committed")
        return Delivered(written, deleted)

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        known = self._look()
        self.require_position(known.held, delivery)
        after, outside = delivery.after, list[pa.RecordBatch]()
        new = f"{self._table}__rows_{after.epoch}_{after.seq}"
        known = self._begin(_Note(_ALL, after, new), known)
        self._drop_others(known.shown, after.owner)
        self._create(new, rows.schema, after.owner)
        written = self._insert(new, self._taken(rows, outside), after, deleted=False)
        if outside:
            keep_rejected([row for batch in outside for row in rejected_rows(batch)])
            if known.shown is not None and known.held is not None and known.held.owner == after.owner:
                self._carry_over(outside, rows.schema, known.shown, new, after)
        self._require_mine(after)
        self.host.failpoint("sink-before-commit")
        columns = ", ".join(_quoted(name) for name in rows.schema.names)
        self._run(
            f"CREATE OR REPLACE VIEW {self._named(self._table)} AS SELECT {columns} FROM {self._named(new)} FINAL "
            f"COMMENT {_text(_OURS + new)}",
            gone="another writer has removed the table of this attempt",
        )
        self.host.failpoint("sink-committed")
        if known.shown is not None and known.shown != new:
            self._run(f"DROP TABLE IF EXISTS {self._named(known.shown)}")
        return Delivered(written, 0)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        view = self._named(self._table)
        count = int(self._select(f"SELECT count() AS n FROM {view}")[0]["n"])
        parts = max(1, -(-count // _READ_ROWS))
        columns = ", ".join(_read_as(field) for field in schema)
        keys = ", ".join(_quoted(key) for key in self.spec.primary_key)
        for part in range(parts):
            query = (
                f"SELECT {columns} FROM {view} WHERE cityHash64(tuple({keys})) % {parts} = {part} FORMAT ArrowStream"
            )
            # Else an error in the middle would be within the rows.
            body = self._run(query, wait_end_of_query="1").body
            try:
                yield from read_rows(body, schema)
            except pa.ArrowException as error:
                raise SinkSchemaError(
                    f"{self._table} has other columns than its table: {error}. Run `freshline refresh "
                    f"{self.spec.name} --full`.",
                    where=self.where,
                ) from error

    # -- positions

    def _look(self) -> _Known:
        database, table = _text(self._database), _text(self._table)
        found = self._select(
            f"SELECT engine, comment FROM system.tables WHERE database = {database} AND name = {table}"
        )
        if not found:
            return _Known(self._notes(), None)
        engine, comment = found[0]["engine"], found[0]["comment"]
        if engine != "View" or not comment.startswith(_OURS):
            raise SinkSchemaError(
                f"{self._database}.{self._table} is there and is not of freshline, which makes a view of this name. "
                "Rename it or remove it, or name another table.",
                where=self.where,
            )
        shown = comment.removeprefix(_OURS)
        behind = self._select(f"SELECT name FROM system.tables WHERE database = {database} AND name = {_text(shown)}")
        # Without the table behind it a view shows nothing, whatever the notes say.
        return _Known(self._notes(), shown if behind else None)

    def _notes(self) -> tuple[_Note, ...]:
        target = _text(self._table)
        query = f"SELECT state, position, into FROM {self._named(POSITIONS)} FINAL WHERE target = {target}"
        answer = self._ask(f"{query} FORMAT JSONEachRow")
        if _code(answer) in (_NO_TABLE, _NO_DATABASE):
            return ()
        try:
            rows = _lines(self._good(answer).body)
            notes = [_Note(row["state"], SinkPosition.from_json(row["position"]), row["into"]) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise SinkSchemaError(
                f"{self._database}.{POSITIONS} has a row that is none of freshline. Delete the rows of "
                f"{self._table}, then run `freshline refresh {self.spec.name} --full`.",
                where=self.where,
            ) from error
        return tuple(notes)

    def _begin(self, note: _Note, known: _Known) -> _Known:
        """Note an attempt. Raises SinkFencedError where another writer has begun since `known` was read."""
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._named(POSITIONS)} (target String, owner String, state String, "
            "epoch UInt64, version UInt64, position String, into String, noted_at DateTime DEFAULT now()) "
            "ENGINE = ReplacingMergeTree(version) ORDER BY (target, owner, state, into, epoch)"
        )
        self._note(note)
        self._require_mine(note.position)
        now = self._look()
        mine = note.position
        others = {each for each in now.notes if (each.position.owner, each.position.epoch) != (mine.owner, mine.epoch)}
        if others - set(known.notes) or now.shown != known.shown:
            raise SinkFencedError(
                "another writer has begun at the same time. Nothing was written. Ask again.", where=self.where
            )
        return now

    def _note(self, note: _Note) -> None:
        row = {
            "target": self._table,
            "owner": note.position.owner,
            "state": note.state,
            "epoch": note.position.epoch,
            "version": note.version,
            "position": note.position.to_json(),
            "into": note.into,
        }
        query = f"INSERT INTO {self._named(POSITIONS)} (target, owner, state, epoch, version, position, into)"
        self._run(f"{query} FORMAT JSONEachRow", json.dumps(row).encode())

    def _require_mine(self, after: SinkPosition) -> None:
        newer = [note for note in self._notes() if note.position.owner == after.owner and note.version > after.number]
        if newer:
            raise SinkFencedError(
                f"a newer engine (epoch {newer[0].position.epoch}, this one has {after.epoch}) writes the sink now.",
                where=self.where,
            )

    # -- rows

    def _taken(self, rows: OutgoingRows, outside: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows.read_upserts():
            taken, left = split_by_range(batch)
            if left.num_rows:
                if self.spec.on_reject is OnReject.FAIL:
                    row = rejected_rows(left.slice(0, 1))[0]
                    raise SinkRejectedError(
                        f"a row is not taken: {row.message} ({row.code}). The position is as it was. Correct the row, "
                        "or declare 'on-reject' = 'quarantine'.",
                        where=self.where,
                    )
                outside.append(left)
            if taken.num_rows:
                yield taken

    def _carry_over(
        self, outside: Sequence[pa.RecordBatch], schema: pa.Schema, old: str, new: str, after: SinkPosition
    ) -> None:
        """Give the new table the rows that the old one has of keys that were not taken."""
        keys = list(self.spec.primary_key)
        key_schema = pa.schema([schema.field(key) for key in keys])
        staged = f"{new}_keys"
        self._create(staged, key_schema, after.owner)
        # A key that there can be no row for is left out.
        fitting = (split_by_range(batch.select(keys))[0] for batch in outside)
        self._insert(staged, fitting, after, deleted=False)
        there = {
            row["name"]
            for row in self._select(
                f"SELECT name FROM system.columns WHERE database = {_text(self._database)} AND table = {_text(old)}"
            )
        }
        columns = ", ".join(_quoted(name) for name in schema.names if name in there)
        named = ", ".join(map(_quoted, keys))
        self._run(
            f"INSERT INTO {self._named(new)} ({columns}, {VERSION}, {DELETED}) SELECT {columns}, {after.number}, 0 "
            f"FROM {self._named(old)} FINAL WHERE tuple({named}) IN (SELECT tuple({named}) FROM {self._named(staged)}) "
            "SETTINGS transform_null_in = 1",
            gone="the table behind the view is gone: a newer engine has replaced it, or somebody removed it",
        )
        self._run(f"DROP TABLE IF EXISTS {self._named(staged)}")

    def _insert(self, table: str, batches: Iterable[pa.RecordBatch], after: SinkPosition, *, deleted: bool) -> int:
        written = 0
        for names, body, count in inserts(batches, self.spec.primary_key, after.number, deleted=deleted):
            columns = ", ".join(map(_quoted, names))
            self._run(
                f"INSERT INTO {self._named(table)} ({columns}) FORMAT ArrowStream",
                body,
                gone="the table behind the view is gone: a newer engine has replaced it, or somebody removed it",
            )
            written += count
        return written

    def _create(self, name: str, schema: pa.Schema, owner: str) -> None:
        columns = []
        for field in schema:
            kind = type_of(field)
            if kind is None:
                raise SinkSchemaError(
                    f"column {field.name} has the type {field.type}, which ClickHouse has not.", where=self.where
                )
            columns.append(f"{_quoted(field.name)} Nullable({kind})")
        keys = ", ".join(_quoted(key) for key in self.spec.primary_key)
        self._run(f"DROP TABLE IF EXISTS {self._named(name)}")
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._named(name)} ({', '.join(columns)}, {VERSION} UInt64, {DELETED} UInt8) "
            f"ENGINE = ReplacingMergeTree({VERSION}, {DELETED}) ORDER BY ({keys}) SETTINGS allow_nullable_key = 1 "
            f"COMMENT {_text(_OURS + owner)}"
        )

    def _drop_others(self, shown: str | None, owner: str) -> None:
        """Remove tables of attempts of this sink that were not finished: a late writer would show them."""
        found = self._select(
            f"SELECT name FROM system.tables WHERE database = {_text(self._database)} AND "
            f"startsWith(name, {_text(self._table + '__rows_')}) AND comment = {_text(_OURS + owner)}"
        )
        for row in found:
            if row["name"] != shown:
                self._run(f"DROP TABLE IF EXISTS {self._named(row['name'])}")

    # -- requests

    def _named(self, table: str) -> str:
        return f"{_quoted(self._database)}.{_quoted(table)}"

    def _ask(self, query: str, body: bytes | None = None, **settings: str) -> Answer:
        if body is None:
            return self.client.ask("POST", f"/?{urlencode(settings)}", query.encode(), is_away=_is_away)
        address = urlencode({"query": query, **settings})
        return self.client.ask("POST", f"/?{address}", body, is_away=_is_away)

    def _run(self, query: str, body: bytes | None = None, *, gone: str = "", **settings: str) -> Answer:
        return self._good(self._ask(query, body, **settings), gone)

    def _select(self, query: str) -> Sequence[Mapping[str, Any]]:
        answer = self._run(f"{query} FORMAT JSONEachRow")
        try:
            return _lines(answer.body)
        except ValueError as error:
            raise self.is_another() from error

    def _good(self, answer: Answer, gone: str = "") -> Answer:
        if answer.status == 200:
            return answer
        sentence = answer.body.decode(errors="replace").strip().partition("\n")[0][:500].rstrip(".")
        if gone and _code(answer) == _NO_TABLE:
            raise SinkFencedError(f"{gone}. Nothing more was written.", where=self.where)
        if _code(answer) is None and answer.status >= 500:
            raise SinkError(f"ClickHouse answers {answer.status}: {sentence}", where=self.where)
        raise SinkRefusedError(
            f"ClickHouse refuses the request ({answer.status}): {sentence}. Correct what it names.", where=self.where
        )


def _lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.split(b"\n") if line]


def _code(answer: Answer) -> int | None:
    """The code of the server's error."""
    code = answer.headers.get("x-clickhouse-exception-code", "")
    return int(code) if code.isdigit() else None


def _is_away(answer: Answer) -> bool:
    return answer.status in AWAY or (answer.status != 200 and _code(answer) in _BUSY)


def _read_as(field: pa.Field) -> str:
    name = _quoted(field.name)
    # Times as numbers: a column of the view is not given another zone on its way.
    return f"toUnixTimestamp64Micro({name}) AS {name}" if pa.types.is_timestamp(field.type) else name


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""The writer of OpenSearch and Elasticsearch.

The version of each document is that of the refresh: its epoch and its number. So a document is never replaced by an
older one, and what a killed refresh has written is written again without effect. All rows go into a new index, which
takes the place of the old one when its alias is moved. Changes go into the index that the alias has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from freshline.errors import (
    SinkError,
    SinkFencedError,
    SinkRefusedError,
    SinkRejectedError,
    SinkSchemaError,
)
from freshline.sinks.http_client import PATIENCE, Answer, Patience
from freshline.sinks.http_writer import HttpWriter
from freshline.sinks.opensearch.bulk import Action, Bulk
from freshline.sinks.opensearch.documents import (
    document_ids,
    documents,
    json_text,
    mapping_of,
    read_source,
    rows_of,
)
from freshline.sinks.opensearch.sink import OpenSearchSink
from freshline.sinks.opensearch.state import POSITIONS, SinkState
from freshline.sinks.writer import Delivered, Delivery, KeepRejected, OutgoingRows, RejectedRow, SinkHost
from freshline.values.sink import OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

# How long a deleted document is remembered, so that an older version of it is refused.
_REMEMBERED = "1h"
# The position is read again after as many seconds, so that a writer that was stopped for long writes little.
_READ_AGAIN_SECONDS = 60.0
_PAGE = 500
_SCROLL = "5m"
_CARRIED = 200
_JSON = {"Content-Type": "application/json"}


class OpenSearchWriter(HttpWriter):
    """Writes an index."""

    def __init__(self, spec: TableSpec, host: SinkHost, *, patience: Patience = PATIENCE) -> None:
        super().__init__(spec, host, patience=patience)
        assert isinstance(spec.sink, OpenSearchSink)
        self._sink = spec.sink
        self._index = self._sink.index

    def position(self) -> SinkPosition | None:
        state, targets = self._look()
        if targets and targets != {state.index}:
            raise self._not_ours(targets)
        # Without its index, a sink has nothing, whatever its position says.
        return state.held if targets else None

    # -- changes

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        state, targets = self._look()
        self.require_position(state.held if targets else None, delivery)
        if state.index is None or targets != {state.index}:
            raise self._not_ours(targets)
        index, abandoned = state.index, state.into
        state = self._note(replace(state, attempt=delivery.after, into=None))
        if abandoned is not None:
            # Its writer may still live, and would move the alias to it.
            self._remove(abandoned)
            if self._targets() != {index}:
                raise self.fenced()
        sending = _Sending(self, state, index, delivery)
        deleted = sending.send(_deletions(rows.read_deletes(), self.spec.primary_key)) if rows.deletes else 0
        written = sending.send(sending.writes(rows)) if rows.upserts else 0
        if sending.rejected:
            keep_rejected(sending.rejected)
        self.host.failpoint("sink-before-commit")
        self._note(replace(state, position=delivery.after, attempt=None))
        self.host.failpoint("sink-committed")
        return Delivered(written, deleted)

    # -- all rows

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        state, targets = self._look()
        self.require_position(state.held, delivery)
        owner, abandoned = delivery.after.owner, state.into
        of = self._owners(self._index)
        foreign = {name for name in targets if of.get(name) != owner}
        if foreign and not delivery.takes_over:
            raise self._not_ours(foreign)
        new = f"{self._index}-{delivery.after.epoch}-{delivery.after.seq}"
        state = self._note(replace(state, attempt=delivery.after, into=new))
        if abandoned is not None and abandoned not in targets:
            self._remove(abandoned)
        self._create(new, rows.schema, owner)
        sending = _Sending(self, state, new, delivery)
        written = sending.send(sending.writes(rows))
        for old in sorted(targets - foreign):
            sending.carry_rejected_over(old)
        self._ask_json("POST", f"/{new}/_refresh")
        if sending.rejected:
            keep_rejected(sending.rejected)
        sending.require_mine()
        self.host.failpoint("sink-before-commit")
        self._move_alias(new)
        self.host.failpoint("sink-committed")
        self._note(replace(state, position=delivery.after, index=new, attempt=None, into=None))
        for name, other in self._owners(f"{self._index}-*").items():
            if other == owner and name != new:
                self._remove(name)
        return Delivered(written, 0)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self._ask_json("POST", f"/{self._path}/_refresh")
        body = {"size": _PAGE, "sort": ["_doc"]}
        page = self._search(f"/{self._path}/_search?scroll={_SCROLL}&allow_partial_search_results=false", body)
        try:
            while page["hits"]["hits"]:
                try:
                    yield rows_of([hit["_source"] for hit in page["hits"]["hits"]], schema)
                except ValueError as error:
                    raise SinkSchemaError(
                        f"{error}. Run `freshline refresh {self.spec.name} --full`.", where=self.where
                    ) from error
                page = self._search("/_search/scroll", {"scroll": _SCROLL, "scroll_id": page["_scroll_id"]})
        finally:
            self._ask_json("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]}, but=(404,))

    # -- the state

    def look(self) -> SinkState:
        """The state as its document has it."""
        status, found = self._ask_json("GET", f"/{POSITIONS}/_doc/{self._path}", but=(404,))
        if status == 404:
            return SinkState()
        try:
            return SinkState.from_answer(found)
        except (ValueError, KeyError, TypeError) as error:
            raise SinkSchemaError(
                f"the document {self._index} of {POSITIONS} is none of freshline. Delete it, then run "
                f"`freshline refresh {self.spec.name} --full`.",
                where=self.where,
            ) from error

    def _look(self) -> tuple[SinkState, set[str]]:
        """The state, and the indices that the alias has; those of a name that is no alias are the name itself."""
        state = self.look()
        targets = self._targets()
        return state.effective(targets), targets

    def _targets(self) -> set[str]:
        status, found = self._ask_json("GET", f"/{self._path}/_alias", but=(404,))
        return set() if status == 404 else set(found)

    def _note(self, state: SinkState) -> SinkState:
        """Write the state in the place of the one that was read. Raises SinkFencedError where it is not there."""
        if state.read_as is None:
            self._ask_json("PUT", f"/{POSITIONS}", {"mappings": {"enabled": False}}, but=(400,))
            path = f"/{POSITIONS}/_create/{self._path}"
        else:
            numbers = "if_seq_no={}&if_primary_term={}".format(*state.read_as)
            path = f"/{POSITIONS}/_doc/{self._path}?{numbers}"
        status, found = self._ask_json("PUT", path, state.to_json().encode(), but=(409,))
        if status != 409:
            return replace(state, read_as=(int(found["_seq_no"]), int(found["_primary_term"])))
        there = self.look()
        if replace(there, read_as=state.read_as) == state:
            # It was written, and the answer was lost.
            return there
        raise self.fenced()

    def fenced(self) -> SinkFencedError:
        """The error of a writer that another one has replaced."""
        return SinkFencedError(
            f"another writer has begun to write {self._index}. Its position was not changed here.", where=self.where
        )

    # -- indices

    @property
    def _path(self) -> str:
        return quote(self._index, safe="")

    def bulk(self, index: str, after: SinkPosition) -> Bulk:
        """The bulk requests for an index."""
        return Bulk(self.client, _written_by(index), after.number, title=self._sink.title, where=self.where)

    def _create(self, name: str, schema: pa.Schema, owner: str) -> None:
        fields: dict[str, Any] = {}
        for field in schema:
            mapping = self._sink.fields.get(field.name) or mapping_of(field)
            if mapping is None:
                raise SinkSchemaError(
                    f"column {field.name} has the type {field.type}, which {self._sink.title} has not.",
                    where=self.where,
                )
            fields[field.name] = mapping
        self._remove(name)
        made = {
            "settings": {"index.gc_deletes": _REMEMBERED},
            "mappings": {"_meta": {"freshline": {"owner": owner}}, "dynamic": False, "properties": fields},
            "aliases": {_written_by(name): {}},
        }
        status, found = self._ask_json("PUT", f"/{quote(name, safe='')}", made, but=(400,))
        if status == 400 and _type(found) != "resource_already_exists_exception":
            raise SinkSchemaError(
                f"{self._sink.title} does not make the index: {_reason(found)}. Correct the columns or the option "
                "'mapping'.",
                where=self.where,
            )

    def _remove(self, name: str) -> None:
        self._ask_json("DELETE", f"/{quote(name, safe='')}?ignore_unavailable=true", but=(404,))

    def _owners(self, pattern: str) -> dict[str, str | None]:
        """The owners of indices as these say it themselves, None for one of somebody else."""
        status, found = self._ask_json("GET", f"/{quote(pattern, safe='*')}/_mapping", but=(404,))
        if status == 404:
            return {}
        return {name: _owner(each) for name, each in found.items()}

    def _move_alias(self, new: str) -> None:
        """Let the alias have this index alone. Raises SinkFencedError where another writer has moved it."""
        actions: list[dict[str, Any]] = []
        for name in sorted(self._targets() - {new}):
            if name == self._index:
                actions.append({"remove_index": {"index": name}})
            else:
                actions.append({"remove": {"index": name, "alias": self._index, "must_exist": True}})
        actions.append({"add": {"index": new, "alias": self._index}})
        status, _ = self._ask_json("POST", "/_aliases", {"actions": actions}, but=(400, 404))
        # A request whose answer was lost finds nothing to remove the second time.
        if status != 200 and self._targets() != {new}:
            raise self.fenced()

    def _not_ours(self, names: Iterable[str]) -> SinkSchemaError:
        named = ", ".join(sorted(names)) or "no index"
        return SinkSchemaError(
            f"{self._index} stands for {named}, which freshline has not made for this sink. `freshline refresh "
            f"{self.spec.name} --full` puts an index of its own in the place; else name another index.",
            where=self.where,
        )

    # -- requests

    def headers(self) -> Mapping[str, str]:
        if self._sink.api_key is None:
            return super().headers()
        key = self.secret("api-key", self._sink.api_key)
        if not (key.isascii() and key.isprintable()):
            # The client's own error would show it.
            raise SinkRefusedError(
                "option 'api-key' stands for a text with a character that no header takes. Correct it.",
                where=self.where,
            )
        return {"Authorization": f"ApiKey {key}"}

    def ask(self, method: str, path: str, body: object = None, *, but: tuple[int, ...] = ()) -> Answer:
        """The answer of the system, of a status below 300 or one of `but`. A body of bytes is JSON already."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.ask(method, path, data, _JSON if data is not None else None)
        if answer.status < 300 or answer.status in but:
            return answer
        reason = _reason(_parsed(answer))
        if answer.status >= 500:
            raise SinkError(f"{self._sink.title} answers {answer.status}: {reason}.", where=self.where)
        raise SinkRefusedError(
            f"{self._sink.title} refuses {method} {path.partition('?')[0]} ({answer.status}): {reason}. Correct the "
            "rights of the user, or the address.",
            where=self.where,
        )

    def _ask_json(self, method: str, path: str, body: object = None, *, but: tuple[int, ...] = ()) -> tuple[int, Any]:
        answer = self.ask(method, path, body, but=but)
        found = _parsed(answer)
        if not isinstance(found, dict):
            raise self.is_another()
        return answer.status, found

    def _search(self, path: str, body: object) -> Any:
        found = read_source(self.ask("POST", path, body).body)
        if found.get("timed_out") or found["_shards"]["failed"]:
            raise SinkError(f"{self._sink.title} does not give all documents.", where=self.where)
        return found


class _Sending:
    """Documents on their way into one index, and the rows that were not taken."""

    def __init__(self, writer: OpenSearchWriter, state: SinkState, index: str, delivery: Delivery) -> None:
        self._writer = writer
        self._state = state
        self._bulk = writer.bulk(index, delivery.after)
        self._looked = time.monotonic()
        self.rejected: list[RejectedRow] = []
        # Of documents that there may be of an older state.
        self._rejected_ids: list[str] = []

    def writes(self, rows: OutgoingRows) -> Iterator[Action]:
        """The documents of rows; rows that are none are rejected."""
        keys = self._writer.spec.primary_key
        for batch in rows.read_upserts():
            for document in documents(batch, rows.schema, keys):
                if document.problem is not None:
                    self._reject(document.id, RejectedRow(document.source, *document.problem))
                elif document.id is not None:
                    yield Action(document.id, document.source)

    def send(self, actions: Iterable[Action]) -> int:
        """Send all; the number of those that were taken."""
        written = 0
        for taken in self._bulk.send(actions):
            written += taken.count
            for key, row in taken.rejected.items():
                self._reject(key, row)
            if time.monotonic() - self._looked > _READ_AGAIN_SECONDS:
                self.require_mine()
        return written

    def carry_rejected_over(self, old: str) -> None:
        """Give the new index the documents that the old one has of rows that were not taken."""
        for start in range(0, len(self._rejected_ids), _CARRIED):
            body = {"ids": self._rejected_ids[start : start + _CARRIED]}
            found = read_source(self._writer.ask("POST", f"/{quote(old, safe='')}/_mget", body).body)
            there = [Action(each["_id"], json_text(each["_source"])) for each in found["docs"] if each.get("found")]
            # One that the new mapping does not take either is in no document.
            for _ in self._bulk.send(there):
                pass

    def require_mine(self) -> None:
        """Raises SinkFencedError where another writer has begun."""
        self._looked = time.monotonic()
        if self._writer.look() != self._state:
            raise self._writer.fenced()

    def _reject(self, key: str | None, row: RejectedRow) -> None:
        if self._writer.spec.on_reject is OnReject.FAIL:
            raise SinkRejectedError(
                f"a row is not taken as a document: {row.message} ({row.code}). Documents that were sent before it are "
                "there, and the position is as it was. Correct the row or the mapping, or declare 'on-reject' = "
                "'quarantine'.",
                where=self._writer.where,
            )
        self.rejected.append(row)
        if key is not None:
            self._rejected_ids.append(key)


def _deletions(batches: Iterable[pa.RecordBatch], keys: Sequence[str]) -> Iterator[Action]:
    for batch in batches:
        for key in document_ids(batch, keys):
            yield Action(key, None)


def _written_by(index: str) -> str:
    """The alias by which an index is written: with the index it goes away, and no late writer makes it again."""
    return f"{index}.write"


def _owner(index: Mapping[str, Any]) -> str | None:
    ours = index.get("mappings", {}).get("_meta", {}).get("freshline")
    return ours.get("owner") if isinstance(ours, dict) else None


def _parsed(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        return None


def _error(found: Any) -> Mapping[str, Any]:
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, dict) else {}


def _type(found: Any) -> str:
    return str(_error(found).get("type"))


def _reason(found: Any) -> str:
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        # Of an address that is none of its interface.
        return str(found["error"])
    return str(_error(found).get("reason") or "it gives no reason")

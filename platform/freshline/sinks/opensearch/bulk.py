"""Bulk requests: bounded in rows and bytes, with an answer that is read item by item."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any
from urllib.parse import quote

from freshline.errors import SinkError, SinkFencedError, SinkRefusedError
from freshline.sinks.http_client import AWAY, HttpClient
from freshline.sinks.writer import RejectedRow

_MOST_ROWS = 2_000
_MOST_BYTES = 4 << 20
_SHOWN = "filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
_CONFLICT, _NOT_FOUND, _TOO_LARGE = 409, 404, 413
_LINES = {"Content-Type": "application/x-ndjson"}
# Errors of an index that takes nothing for a while, as when a disk is full.
_BLOCKED = ("cluster_block_exception", "es_rejected_execution_exception", "circuit_breaking_exception")


@dataclass(frozen=True)
class Action:
    """A document to write, or the id of one to delete, where `source` is None."""

    id: str
    source: str | None

    def line(self, version: int) -> str:
        """The lines of the request. An older version than that of the document is refused, an equal one taken."""
        name = "delete" if self.source is None else "index"
        head = f'{{"{name}":{{"_id":{encode_basestring(self.id)},"version":{version},"version_type":"external_gte"}}}}'
        return f"{head}\n" if self.source is None else f"{head}\n{self.source}\n"


@dataclass(frozen=True)
class Taken:
    """How many actions were taken, and the rows that were not, by their ids."""

    count: int
    rejected: Mapping[str, RejectedRow]


class Bulk:
    """Sends actions to an alias of one index, all with the same version.

    The alias is required, so that a late writer does not make the index again after it was removed. `title` names the
    system and `where` the sink in errors.
    """

    def __init__(self, client: HttpClient, alias: str, version: int, *, title: str, where: str) -> None:
        self._client = client
        self._path = f"/{quote(alias, safe='')}/_bulk?require_alias=true&{_SHOWN}"
        self._version = version
        self._title = title
        self._where = where

    def send(self, actions: Iterable[Action]) -> Iterator[Taken]:
        """Send actions, and give after each request what became of them.

        Raises SinkFencedError where a document is of a newer version, and the errors of a system that is away or
        refuses the request.
        """
        for chunk in self._chunks(actions):
            yield self._send(chunk)

    def _chunks(self, actions: Iterable[Action]) -> Iterator[list[tuple[Action, bytes]]]:
        chunk: list[tuple[Action, bytes]] = []
        size = 0
        for action in actions:
            line = action.line(self._version).encode()
            if chunk and (len(chunk) == _MOST_ROWS or size + len(line) > _MOST_BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append((action, line))
            size += len(line)
        if chunk:
            yield chunk

    def _send(self, chunk: Sequence[tuple[Action, bytes]]) -> Taken:
        taken = 0
        rejected: dict[str, RejectedRow] = {}
        until, wait = time.monotonic() + self._client.patience.whole, self._client.patience.first_wait
        while chunk:
            answer = self._client.ask("POST", self._path, b"".join(line for _, line in chunk), _LINES)
            if answer.status == _TOO_LARGE:
                if len(chunk) > 1:
                    half = len(chunk) // 2
                    first, second = self._send(chunk[:half]), self._send(chunk[half:])
                    rejected = {**rejected, **first.rejected, **second.rejected}
                    return Taken(taken + first.count + second.count, rejected)
                action = chunk[0][0]
                rejected[action.id] = _rejected(action, "TOO_LARGE", "the system takes no request of this size")
                return Taken(taken, rejected)
            left, problem = [], ""
            for (action, line), item in zip(chunk, self._items(answer.status, answer.body, len(chunk)), strict=True):
                status, error = item.get("status"), item.get("error") or {}
                if status in (200, 201) or (status == _NOT_FOUND and action.source is None and not error):
                    taken += 1
                elif status == _CONFLICT:
                    raise SinkFencedError(
                        f"the document {action.id!r} is of a newer version: a newer engine writes the sink now.",
                        where=self._where,
                    )
                elif status in AWAY or error.get("type") in _BLOCKED:
                    left.append((action, line))
                    problem = f"it answers {status} for a document ({error.get('type')})"
                elif status in (400, _TOO_LARGE):
                    rejected[action.id] = _rejected(action, str(error.get("type")), _reason(error))
                else:
                    raise self._refused(status, error)
            chunk = left
            if left:
                if time.monotonic() + wait > until:
                    raise self._client.away(problem)
                time.sleep(wait)
                wait = min(wait * 2, self._client.patience.longest_wait)
        return Taken(taken, rejected)

    def _items(self, status: int, body: bytes, count: int) -> list[dict[str, Any]]:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if status != 200:
            error = found.get("error") if isinstance(found, dict) else None
            raise self._refused(status, error if isinstance(error, dict) else {})
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list) or len(items) != count:
            raise SinkError(f"{self._title} does not say what became of each document.", where=self._where)
        return [next(iter(item.values())) for item in items]

    def _refused(self, status: Any, error: dict[str, Any]) -> SinkError:
        if isinstance(status, int) and status >= 500:
            return SinkError(f"{self._title} answers {status}: {_reason(error)}.", where=self._where)
        if status == _NOT_FOUND:
            return SinkFencedError(
                f"the index of these documents is gone ({_reason(error)}): a newer engine has replaced it, or somebody "
                "removed it. Nothing more was written.",
                where=self._where,
            )
        return SinkRefusedError(
            f"{self._title} refuses documents ({status}): {_reason(error)}. Correct the index, or the "
            "rights of the user.",
            where=self._where,
        )


def _rejected(action: Action, code: str, message: str) -> RejectedRow:
    row = json.dumps({"_id": action.id}, ensure_ascii=False) if action.source is None else action.source
    return RejectedRow(row, code, message)


def _reason(error: dict[str, Any]) -> str:
    reason = str(error.get("reason") or error.get("type") or "no reason")
    cause = (error.get("caused_by") or {}).get("reason")
    return f"{reason}: {cause}" if cause else reason

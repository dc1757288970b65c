"""Who may follow a table, and from where: a request of `GET /changes/<table>` before its first event."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.responses import JSONResponse
from starlette.types import Scope

from freshline.commit.consumers import keep_consumer, read_consumer
from freshline.commit.delta_log import commit_digest, table_id
from freshline.declare.graph import Graph
from freshline.engine.followed_table import FollowedVersion, require_same, version_of
from freshline.engine.reading import StoredTable, register_on, require_consumer_name, require_known
from freshline.engine.server import CHANGES
from freshline.errors import ChangesError, ConsumerError, ConsumerExpiredError, FreshlineError, ReadError
from freshline.plan.place import FollowedPlace, Portion, Within, mark_of_parts, mark_of_table
from freshline.plan.read import DEFAULT_EXPIRY_DAYS, Consumer, LogHistory
from freshline.reads.parts import Limits
from freshline.reads.rows import read_history
from freshline.report.samples import Mask, find_masks
from freshline.values.names import TableName
from freshline.values.secret import resolve_token
from freshline.values.settings import Settings

NOW, BEGINNING = "now", "beginning"
_PARAMETERS = ("from", "columns", "consumer")


class FollowRefusedError(Exception):
    """A request that is not answered with events, with the answer."""

    def __init__(self, status: HTTPStatus, error: FreshlineError, **headers: str) -> None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if status is HTTPStatus.TOO_MANY_REQUESTS:
            given["Retry-After"] = "5"
        self.answer = JSONResponse({"error": error.as_json()}, status, given)
        super().__init__(str(error))


@dataclass(frozen=True)
class Follower:
    """A client: the table, the place behind which it goes on, and the columns that it asked for, None for all."""

    table: StoredTable
    key: tuple[str, ...]
    mask: Mask
    columns: tuple[str, ...] | None
    place: FollowedPlace

    @property
    def name(self) -> str:
        return str(self.table.name)

    def columns_at(self, version: FollowedVersion) -> list[str]:
        """The columns that are sent of a version. Raises ReadError for one that it does not have, or that is masked."""
        shown = [name for name in version.columns if not self.mask.hides(name)]
        if self.columns is None:
            return shown
        wanted = {name.lower() for name in (*self.columns, *self.key)}
        found = [name for name in shown if name.lower() in wanted]
        missing = sorted({name.lower() for name in self.columns} - {name.lower() for name in found})
        if missing:
            number = version.place.version
            raise ReadError(f"version {number} has no column {missing[0]!r} that is shown.", where=self.name)
        return found

    def key_in(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The key by which rows before and after are paired, empty where it is not sent as a whole."""
        sent = {name.lower(): name for name in columns}
        return tuple(sent[name.lower()] for name in self.key) if all(name.lower() in sent for name in self.key) else ()


@dataclass
class FollowRequests:
    """The requests to one engine. `graph` gives the declarations in force, `environ` what references mean.

    `warn` takes a sentence for who keeps the engine, which those who ask must not learn.
    """

    graph: Callable[[], Graph]
    settings: Settings
    environ: Mapping[str, str]
    parts: Limits
    clock: Callable[[], datetime]
    warn: Callable[[str], None]

    def __post_init__(self) -> None:
        self._masks: tuple[Graph | None, Mapping[TableName, Mask]] = (None, {})

    def admit(self, scope: Scope) -> Follower:
        """The table and the place of a request. Raises FollowRefusedError and FreshlineError."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._opens(headers.get("authorization", "")):
            raise FollowRefusedError(
                HTTPStatus.UNAUTHORIZED,
                ChangesError(
                    "the token is missing or wrong. Send `Authorization: Bearer ..` with the token that the setting "
                    "changes-token names."
                ),
                WWW_Authenticate="Bearer",
            )
        if scope["method"] != "GET":
            raise FollowRefusedError(
                HTTPStatus.METHOD_NOT_ALLOWED, ChangesError("changes are read. Use GET."), Allow="GET"
            )
        table, key, mask = self._table(str(scope["path"]).removeprefix(CHANGES))
        where = str(table.name)
        asked = _parameters(scope["query_string"], where)
        try:
            history = read_history(table.path, where)
        except ReadError as error:
            raise FollowRefusedError(HTTPStatus.NOT_FOUND, error) from error
        columns = tuple(asked["columns"].split(",")) if "columns" in asked else None
        follow = Follower(table, key, mask, columns, FollowedPlace(history.newest))
        try:
            follow.columns_at(version_of(table, history.newest))
        except ReadError as error:
            raise FollowRefusedError(HTTPStatus.BAD_REQUEST, error) from error
        place = self._place(follow, history, asked, headers.get("last-event-id", "").strip())
        return Follower(table, key, mask, columns, place)

    def _opens(self, given: str) -> bool:
        if self.settings.changes_token is None:
            return False
        try:
            token = resolve_token(self.settings.changes_token, self.settings.root, self.environ)
        except ValueError as error:
            # Who asks must not learn it.
            self.warn(f"tables cannot be followed: changes-token: {error}")
            return False
        return secrets.compare_digest(given.encode("latin-1"), f"Bearer {token}".encode())

    def _table(self, text: str) -> tuple[StoredTable, tuple[str, ...], Mask]:
        graph = self.graph()
        try:
            name: TableName | None = TableName.parse(text)
        except ValueError:
            name = None
        if name is None or name not in graph:
            raise FollowRefusedError(
                HTTPStatus.NOT_FOUND, ChangesError(f"there is no table or source {text[:200]!r}. Correct its name.")
            )
        if self._masks[0] is not graph:
            self._masks = (graph, find_masks(graph, self.settings.masked_columns))
        spec = graph.spec(name)
        return StoredTable.of(spec, self.settings), spec.unique_key, self._masks[1].get(name, Mask())

    def _place(self, follow: Follower, history: LogHistory, asked: Mapping[str, str], last: str) -> FollowedPlace:
        """The place behind which a client goes on: where it says it was, else its consumer, else `from`."""
        table, where = follow.table, follow.name
        try:
            name = require_consumer_name(asked["consumer"]) if "consumer" in asked else None
            known = None if name is None else read_consumer(table.warehouse, name)
            if known is not None:
                require_known(table, known, self.clock())
            if last or known is None:
                place = _parsed(last or asked.get("from", NOW), history.newest, where)
            else:
                within = Within(Portion.ROWS, 0, "") if known.rows_first else None
                place = FollowedPlace(known.version, mark_of_table(known.table_id), known.commit or "", within)
            self._require(table, place, history)
            if place.within is not None and place.within.parts > 0:
                columns = follow.columns_at(version_of(table, place.version))
                if place.within.mark != mark_of_parts(columns, follow.key_in(columns), self.parts.cut):
                    raise ReadError(
                        f"position {place} is in the middle of version {place.version}, of which other columns were "
                        "sent, or another version of freshline sent them. Ask for the same columns, or begin anew.",
                        where=where,
                    )
            place = self._marked(table, place)
            if name is not None:
                self._keep(table, name, place, known)
            return place
        except ConsumerExpiredError as error:
            raise FollowRefusedError(HTTPStatus.GONE, error) from error
        except ConsumerError as error:
            raise FollowRefusedError(HTTPStatus.CONFLICT, error) from error
        except ReadError as error:
            raise FollowRefusedError(HTTPStatus.GONE, error) from error

    def _require(self, table: StoredTable, place: FollowedPlace, history: LogHistory) -> None:
        """All behind a place can be read. Raises ReadError."""
        where = str(table.name)
        require_same(table, place)
        if place.version > history.newest:
            raise ReadError(
                f"there is no version {place.version}; the newest is {history.newest}. Begin anew with "
                f"`from={BEGINNING}`.",
                where=where,
            )
        if place.within is not None and place.within.portion is Portion.ROWS:
            history.require_rows(place.version)
        history.require_changes(place.read_up_to, history.newest)

    def _marked(self, table: StoredTable, place: FollowedPlace) -> FollowedPlace:
        if place.table and place.commit:
            return place
        commit = commit_digest(table.path, place.version) or ""
        return FollowedPlace(place.version, mark_of_table(table_id(table.path)), commit, place.within)

    def _keep(self, table: StoredTable, name: str, place: FollowedPlace, known: Consumer | None) -> None:
        """Keep what comes behind a place for a consumer: what is before it was handled."""
        rows_first = place.within is not None and place.within.portion is Portion.ROWS
        if known is None:
            register_on(table, name, place.read_up_to, rows_first, DEFAULT_EXPIRY_DAYS * 86_400, self.clock())
            return
        keep_consumer(
            table.warehouse,
            name=name,
            table=str(table.name),
            table_id=table_id(table.path),
            version=place.read_up_to,
            commit=commit_digest(table.path, place.read_up_to),
            expiry_seconds=known.expiry_seconds,
            now=self.clock(),
            rows_first=rows_first,
        )


def _parameters(query: bytes, where: str) -> dict[str, str]:
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    found = dict(given)
    unknown = [name for name in found if name not in _PARAMETERS]
    if unknown or len(found) < len(given):
        raise FollowRefusedError(
            HTTPStatus.BAD_REQUEST,
            ChangesError(
                f"the address has {unknown[0][:80]!r}, which is no parameter."
                if unknown
                else "a parameter is given twice.",
                where=where,
            ),
        )
    return found


def _parsed(text: str, newest: int, where: str) -> FollowedPlace:
    if text == NOW:
        return FollowedPlace(newest)
    if text == BEGINNING:
        return FollowedPlace(newest, within=Within(Portion.ROWS, 0, ""))
    try:
        return FollowedPlace.parse(text)
    except ValueError as error:
        raise FollowRefusedError(HTTPStatus.BAD_REQUEST, ChangesError(str(error), where=where)) from error

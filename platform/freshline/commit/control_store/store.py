"""The control store: intentions and caches of one environment, in SQLite or in another database by URL.

It has the epoch, requests, positions that were checked without a commit, the newest refreshes, and in parts of their
own the decisions about tables (`intentions`), who was last heard of when (`heartbeats`), alerts (`alerts`) and how
fresh tables were (`history`). The contents of tables are in their own logs; losing this store loses no data and repeats
none.

Every method is one transaction of its own and may be called from any thread and process. Stopped half way, it did
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from freshline.commit.control_reading import ControlReader
from freshline.commit.control_rows import key_of, record_of, text_of, time_of
from freshline.commit.control_store.alerts import AlertStore
from freshline.commit.control_store.database import PRIVATE, Database, put
from freshline.commit.control_store.heartbeats import HeartbeatStore
from freshline.commit.control_store.history import HistoryStore, add_refresh
from freshline.commit.control_store.intentions import IntentionStore
from freshline.commit.control_store.schema import CHECKS, EPOCHS, IDENTITIES, REFRESHES, REQUESTS
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.freshness.record import RequestRecord, source_position
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.result import DECISIONS, RefreshResult, State, Strategy

KEPT_REFRESHES = 200
# The most records of a table: so many of each kind, which are refreshes and decisions, full and not, with a commit and
# without one (`_insert_refresh`).
KEPT_RECORDS = 8 * KEPT_REFRESHES
KEPT_REQUESTS = 1000
_RECORD = REFRESHES.c.id, REFRESHES.c.result


class ControlStore(ControlReader):
    """The control store of one environment."""

    _database: Database
    intentions: IntentionStore
    heartbeats: HeartbeatStore

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.intentions = IntentionStore(database)
        self.heartbeats = HeartbeatStore(database)
        self.alerts = AlertStore(database)
        self.history = HistoryStore(database)

    @classmethod
    def open(cls, url: str, umask: int = PRIVATE) -> ControlStore:
        """Open the store at a SQLAlchemy URL; its tables are made on first use.

        A file of SQLite that is made lacks the permissions in `umask`.

        Raises SettingsError for a URL that cannot be used, FormatError for a store of another freshline, and
        StorageError where it cannot be read or written.
        """
        return cls(Database.open(url, umask))

    def identity(self) -> str:
        """The id that distinguishes this store from another that took its place."""
        with self._database.read() as connection:
            return str(connection.execute(select(IDENTITIES.c.id)).scalar_one())

    # -- epoch

    def take_epoch(self, at_least: int) -> int:
        """A number that no earlier writer had: above every one given out here, and not below `at_least`."""
        with self._database.write() as connection:
            stored = connection.execute(select(func.max(EPOCHS.c.epoch))).scalar()
            epoch = max(int(stored or 0), at_least - 1) + 1
            connection.execute(delete(EPOCHS))
            connection.execute(insert(EPOCHS).values(epoch=epoch))
        return epoch

    # -- checks

    def record_check(self, name: TableName, data_timestamp: datetime, position: str) -> None:
        """Remember that everything up to `data_timestamp` is at `position` (JSON text)."""
        with self._database.write() as connection:
            put(
                connection,
                CHECKS,
                key=key_of(name),
                name=str(name),
                data_timestamp=text_of(data_timestamp),
                position=position,
                checked_at=text_of(datetime.now(UTC)),
            )

    def record_source_check(self, name: TableName, now: datetime, position: TablePosition) -> None:
        """Remember that a source that is read in place was at `position` at `now`, and when it was at earlier ones."""
        known = self.checks().get(name)
        self.record_check(name, now, source_position(position, known))

    def forget_checks(self, names: Iterable[TableName]) -> None:
        """Forget the checks of these: they contain something else now, or are gone, and later ones begin without."""
        keys = [key_of(name) for name in names]
        with self._database.write() as connection:
            connection.execute(delete(CHECKS).where(CHECKS.c.key.in_(keys)))

    # -- refreshes

    def record_refresh(self, record: RefreshResult) -> None:
        """Remember a refresh or a decision; of each table the newest are kept.

        Full refreshes, others that committed, those that did not, and decisions are counted separately: checks that
        found nothing come every second, and must not push out the few of the others; and the seconds of a full refresh
        are asked for long after it.
        """
        with self._database.write() as connection:
            _insert_refresh(connection, record)

    def decide(
        self,
        records: Sequence[RefreshResult],
        *,
        expected: int,
        set_overrides: Sequence[FreshnessOverride] = (),
        remove_overrides: Collection[TableName] = (),
        set_suspensions: Sequence[Suspension] = (),
        remove_suspensions: Collection[TableName] = (),
    ) -> bool:
        """Change the intentions and remember why, both or nothing.

        False, and nothing is changed, when `expected` is not the generation of the intentions any more.
        """

        def remember(connection: Connection) -> None:
            for record in records:
                _insert_refresh(connection, record)

        return self.intentions.change(
            expected=expected,
            set_overrides=set_overrides,
            remove_overrides=remove_overrides,
            set_suspensions=set_suspensions,
            remove_suspensions=remove_suspensions,
            also=remember,
        )

    def restore(self, records: Sequence[RefreshResult], epoch: int) -> int:
        """Put records from elsewhere, in the order in which they happened, before those that are here.

        Returns how many records were not here. They get ids of 0 and below: whoever follows the records by their ids
        knows them already. Records that were restored before are replaced. No engine gets an epoch up to `epoch` any
        more.
        """
        with self._database.write() as connection:
            connection.execute(delete(REFRESHES).where(REFRESHES.c.id <= 0))
            rows = connection.execute(
                select(REFRESHES.c.key, REFRESHES.c.at, REFRESHES.c.committed, REFRESHES.c.version)
            ).all()
            here = {(row.key, row.at) for row in rows}
            # A commit and the record of it have different times.
            versions = {(row.key, row.version) for row in rows if row.committed}
            new = [
                _values(one)
                for one in records
                if (key_of(one.table), text_of(one.at)) not in here
                and not (one.committed and (key_of(one.table), one.version) in versions)
            ]
            for place, values in enumerate(new):
                connection.execute(insert(REFRESHES).values(id=place + 1 - len(new), **values))
            stored = connection.execute(select(func.max(EPOCHS.c.epoch))).scalar()
            connection.execute(delete(EPOCHS))
            connection.execute(insert(EPOCHS).values(epoch=max(int(stored or 0), epoch)))
        return len(new)

    def refreshes(
        self,
        name: TableName | None = None,
        limit: int = 100,
        *,
        checks: bool = True,
        since: datetime | None = None,
    ) -> list[RefreshResult]:
        """The newest refreshes and decisions, of one table or of all, the newest first.

        Without `checks` those are left out that succeeded and had nothing to commit, with `since` those before it.
        """
        statement = select(*_RECORD).order_by(REFRESHES.c.id.desc()).limit(limit)
        if since is not None:
            statement = statement.where(REFRESHES.c.at >= text_of(since))
        if not checks:
            statement = statement.where((REFRESHES.c.state != State.SUCCEEDED) | REFRESHES.c.committed)
        if name is not None:
            statement = statement.where(REFRESHES.c.key == key_of(name))
        return self._records(statement)

    def refreshes_after(
        self, last: int, limit: int = 1000, *, states: Collection[str] | None = None
    ) -> list[RefreshResult]:
        """The records whose id is above `last`, of some states only where named, in the order they were written."""
        statement = select(*_RECORD).where(REFRESHES.c.id > last).order_by(REFRESHES.c.id).limit(limit)
        if states is not None:
            statement = statement.where(REFRESHES.c.state.in_(states))
        return self._records(statement)

    def committed_since(self, since: datetime) -> list[RefreshResult]:
        """The refreshes that committed and ended at `since` or later, in the order in which they were written."""
        statement = (
            select(*_RECORD).where(REFRESHES.c.committed & (REFRESHES.c.at >= text_of(since))).order_by(REFRESHES.c.id)
        )
        return self._records(statement)

    def _records(self, statement: Select[Any]) -> list[RefreshResult]:
        with self._database.read() as connection:
            return [record_of(number, result) for number, result in connection.execute(statement)]

    def cpu_seconds(self) -> dict[TableName, float]:
        """The CPU-seconds that a refresh of each table takes on average, of those that committed and ran alone."""
        statement = (
            select(REFRESHES.c.key, func.max(REFRESHES.c.name), func.avg(REFRESHES.c.cpu_seconds))
            .where(REFRESHES.c.committed & REFRESHES.c.cpu_seconds.is_not(None))
            .group_by(REFRESHES.c.key)
        )
        with self._database.read() as connection:
            return {TableName.parse(name): float(cpu) for _, name, cpu in connection.execute(statement)}

    # -- requests

    def create_request(self, request_id: str, kind: str, arguments: str, now: datetime) -> None:
        """Remember a request before anything is done for it."""
        with self._database.write() as connection:
            connection.execute(
                insert(REQUESTS).values(
                    id=request_id, kind=kind, arguments=arguments, created_at=text_of(now), state=None
                )
            )

    def finish_request(self, request_id: str, state: str, error: str | None, now: datetime) -> None:
        """Remember how a request ended; a second end of the same request changes nothing."""
        with self._database.write() as connection:
            connection.execute(
                update(REQUESTS)
                .where((REQUESTS.c.id == request_id) & REQUESTS.c.state.is_(None))
                .values(state=state, error=error, finished_at=text_of(now))
            )
            oldest = (
                select(REQUESTS.c.finished_at)
                .where(REQUESTS.c.state.is_not(None))
                .order_by(REQUESTS.c.finished_at.desc())
                .offset(KEPT_REQUESTS)
                .limit(1)
            )
            found = connection.execute(oldest).scalar()
            if found is not None:
                connection.execute(delete(REQUESTS).where(REQUESTS.c.finished_at <= found))

    def open_requests(self) -> list[RequestRecord]:
        """Requests that have not ended, the oldest first. After a crash they are those of the engine that died."""
        statement = select(REQUESTS).where(REQUESTS.c.state.is_(None)).order_by(REQUESTS.c.created_at)
        with self._database.read() as connection:
            return [
                RequestRecord(row["id"], row["kind"], row["arguments"], time_of(row["created_at"]))
                for row in connection.execute(statement).mappings()
            ]


def _values(record: RefreshResult) -> dict[str, Any]:
    """The row of a result: the columns that statements ask for, and the whole of it."""
    return {
        "key": key_of(record.table),
        "name": str(record.table),
        "at": text_of(record.at),
        "state": record.state,
        "strategy": record.strategy,
        "seconds": record.seconds,
        "cpu_seconds": record.cpu_seconds,
        "version": record.version,
        "committed": record.committed,
        "cause": record.cause,
        "result": json.dumps(record.as_stored(), separators=(",", ":")),
    }


def _insert_refresh(connection: Connection, record: RefreshResult) -> None:
    key = key_of(record.table)
    connection.execute(insert(REFRESHES).values(**_values(record)))
    add_refresh(connection, record)
    decided = REFRESHES.c.state.in_(DECISIONS)
    not_full = func.coalesce(REFRESHES.c.strategy, "") != Strategy.FULL.value
    alike = (
        (REFRESHES.c.key == key)
        & (REFRESHES.c.committed == record.committed)
        & (decided if record.state in DECISIONS else ~decided)
        & (~not_full if record.strategy == Strategy.FULL else not_full)
    )
    oldest = select(REFRESHES.c.id).where(alike).order_by(REFRESHES.c.id.desc()).offset(KEPT_REFRESHES).limit(1)
    found = connection.execute(oldest).scalar()
    if found is not None:
        connection.execute(delete(REFRESHES).where(alike & (REFRESHES.c.id <= found)))

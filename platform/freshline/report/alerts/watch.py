"""The check that alerts come from: reads the state of everything, decides, and writes the news that are to be sent.

It only reads tables, needs neither Spark nor an engine, and runs in a process of its own (`freshline watch`): whatever
happens to the engine or to Dagster is seen from outside. One check is one call, so that a cron job may do it as well.
The state that the next check needs is in the control store; the memory here only saves time.

The cost of a check is the reading of logs. Data timestamps only move forward, so a table that is inside its promise by
its known timestamp need not be read again; all are read when one is late by it, and every ten seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.freshness.alert import Alert, AlertKind
from freshline.freshness.intentions import Intentions
from freshline.freshness.record import CATALOG_HEARTBEAT, Heartbeat
from freshline.report.alerts.conditions import (
    ENGINE,
    SCHEDULER,
    AlertSituation,
    CatalogCondition,
    TableCondition,
    Voice,
    WatchedProcess,
    table_standing,
)
from freshline.report.alerts.evaluate import Evaluation, evaluate
from freshline.report.alerts.history import WINDOW, RecordHistory, add_records
from freshline.report.alerts.silence import (
    SETTLING_SECONDS,
    Heard,
    Moment,
    SchedulerCheck,
    engine_process,
    jump_seconds,
    listen,
    scheduler_process,
    sensor_states,
    switched_off,
)
from freshline.report.lag_recorder import LagRecorder
from freshline.report.status import read_status
from freshline.values.names import TableName
from freshline.values.result import State
from freshline.values.settings import AlertSettings

LOG = logging.getLogger(__name__)

READ_SECONDS = 10.0
CATCH_UP_SECONDS = 60.0
# A breach is reported when it is five seconds old; read this late at the latest, it is reported within fifteen.
LONGEST_READ_SECONDS = 7.0
SHORTEST_READ_SECONDS = 2.0
# Reading every log may take this part of one processor's time.
_READ_SHARE = 0.05
_SCHEDULER_SECONDS = 10.0  # what is read is written every 30
_DAEMON = "daemon"
_RECENT = timedelta(seconds=45)
_PAGE = 1000


@dataclass(frozen=True)
class WatchSurroundings:
    """The functions that the starter of a watch gives it.

    `graph` gives the declarations, the same object as long as they are the same. `scheduler` reads Dagster's storage,
    None where there is none. `ended` names those of `engine` and `scheduler` whose processes are known to have ended,
    from their heartbeats. `dagster_url` is the address of the UI, None where none is known. `left_out` are declared
    tables that the graph lacks because their declaration has a mistake.
    """

    graph: Callable[[], Graph]
    scheduler: Callable[[], SchedulerCheck | None] = lambda: None
    ended: Callable[[Mapping[str, Heartbeat]], Collection[str]] = lambda _: ()
    dagster_url: Callable[[], str | None] = lambda: None
    left_out: Callable[[], Collection[TableName]] = tuple


class Watch:
    """Checks and decides; `clock` is the time of day, `passed` are seconds that only ever pass.

    One that `stays` for more checks begins patiently: it judges who is silent by what it hears itself, and tables that
    were late before it came get a minute from an engine that is there. Everything may just have been started together.
    """

    def __init__(
        self,
        store: ControlStore,
        warehouse: Warehouse,
        settings: AlertSettings,
        surroundings: WatchSurroundings,
        clock: Callable[[], datetime],
        passed: Callable[[], float],
        *,
        stays: bool = True,
    ) -> None:
        self._store = store
        self._stays = stays
        self._settings = settings
        self._surroundings = surroundings
        self._clock = clock
        self._passed = passed
        self._reader = _Reader(store, warehouse, passed)
        self._records = _Records(store)
        self._begin: Moment | None = None
        self._moment: Moment | None = None
        self._settled_at = 0.0
        self._heard: Mapping[str, Heard] = {}
        self._listened_at = 0.0
        self._deaf = False
        self._identity: str | None = None
        self._scheduler: SchedulerCheck | None = None
        self._scheduler_at: float | None = None
        self._daemon_seen: datetime | None = None
        self._intentions: Intentions | None = None
        self._open: Sequence[Alert] | None = None

    def check(self) -> Evaluation:
        """Check once, write the news that are to be sent, and return them.

        Raises StorageError where the control store cannot be used; nothing was written then, and nothing is forgotten.
        """
        moment = Moment(self._clock(), self._passed())
        self._begin = self._begin or moment
        self._mind_the_clock(moment)
        self._mind_the_store()
        intentions = self._intentions_at(moment.now)
        graph = self._surroundings.graph()
        heartbeats = self._store.heartbeats.read()
        situation = self._situation(graph, intentions, heartbeats, moment)
        if moment.passed < self._settled_at:
            return Evaluation()
        if self._open is None:
            self._open = self._store.alerts.open_alerts()
        link = _links(graph, self._surroundings.dagster_url())
        # The state of these tables is not known: their alerts stay as they are.
        left_out = set(map(str, self._surroundings.left_out()))
        known = [alert for alert in self._open if alert.subject not in left_out]
        found = evaluate(situation, known, self._settings, moment.now, link)
        if found.news or found.quiet:
            self._open = None  # new ones get their numbers in the store
            channels = [channel.name for channel in self._settings.channels]
            stored = self._store.alerts.record(found.news, found.quiet, channels, moment.now)
            return replace(found, news=tuple(stored))
        return found

    def could_not_check(self) -> None:
        """The control store could not be used: who writes heartbeats there could not be heard, and is not silent."""
        self._deaf = True

    def _mind_the_store(self) -> None:
        """In a store that took the place of a lost one, alerts and intentions are others."""
        identity = self._store.identity()
        if identity != self._identity:
            self._identity, self._open, self._intentions = identity, None, None

    def _mind_the_clock(self, moment: Moment) -> None:
        before, self._moment = self._moment, moment
        jump = 0.0 if before is None else jump_seconds(before, moment)
        if jump:
            LOG.warning(
                "the clock moved by %+.0f seconds against the time that passed (it was set, or the machine slept): "
                "nothing is raised and nothing is over for %.0f seconds",
                jump,
                SETTLING_SECONDS,
            )
            self._settled_at = moment.passed + SETTLING_SECONDS

    def _intentions_at(self, now: datetime) -> Intentions:
        generation = self._store.intentions.generation()
        if self._intentions is None or self._intentions.generation != generation:
            self._intentions = self._store.intentions.read()
        return self._intentions.at(now)

    def _situation(
        self, graph: Graph, intentions: Intentions, heartbeats: Mapping[str, Heartbeat], moment: Moment
    ) -> AlertSituation:
        check = self._check_scheduler(moment)
        known = {name: heartbeats[name].at for name in (ENGINE, SCHEDULER) if name in heartbeats}
        if check is not None and check.daemon_heartbeat is not None:
            known[_DAEMON] = check.daemon_heartbeat
        deaf = moment.passed - self._listened_at if self._deaf else 0.0
        self._heard = listen(self._heard, known, moment, by_clock=not self._stays, deaf=deaf)
        self._listened_at, self._deaf = moment.passed, False
        ended = self._surroundings.ended(heartbeats)
        sensors = sensor_states(check)
        told = self._report_scheduler(check, sensors, heartbeats.get(SCHEDULER), moment.now)
        engine = engine_process(self._heard.get(ENGINE), heartbeats.get(ENGINE), moment, ended=ENGINE in ended)
        standings = self._standings(graph, intentions, moment)
        return AlertSituation(
            standings,
            engine,
            scheduler_process(
                self._heard.get(SCHEDULER), self._heard.get(_DAEMON), sensors, moment, ended=SCHEDULER in ended
            ),
            switched_off(told),
            self._catching_up_since(engine, moment),
            self._reader.read_at,
            tuple(catalog_conditions(heartbeats)),
        )

    def _catching_up_since(self, engine: WatchedProcess, moment: Moment) -> datetime | None:
        """Before when a breach is left to the engine to mend for now."""
        begin = self._begin
        if begin is None or not self._stays or engine.voice not in (Voice.HEARD, Voice.UNKNOWN):
            return None
        return begin.now if moment.passed - begin.passed < CATCH_UP_SECONDS else None

    def _standings(self, graph: Graph, intentions: Intentions, moment: Moment) -> dict[TableName, TableCondition]:
        histories = self._records.read(moment.now)
        standings = self._reader.read(graph, intentions, moment)
        empty = [name for name, standing in standings.items() if standing.data_timestamp is None]
        awaited = self._store.alerts.awaited(empty, moment.now)
        return {
            name: replace(
                standing,
                first_seen=awaited.get(name),
                suspension=None if standing.is_source else intentions.suspensions.get(name),
                failing=histories.get(name, RecordHistory()).failing,
                arrivals=histories.get(name, RecordHistory()).arrivals(moment.now),
            )
            for name, standing in standings.items()
        }

    # -- the scheduler

    def _check_scheduler(self, moment: Moment) -> SchedulerCheck | None:
        if self._scheduler_at is None or moment.passed - self._scheduler_at >= _SCHEDULER_SECONDS:
            self._scheduler = self._surroundings.scheduler()
            self._scheduler_at = moment.passed
        return self._scheduler

    def _report_scheduler(
        self, check: SchedulerCheck | None, sensors: Mapping[str, str], known: Heartbeat | None, now: datetime
    ) -> Mapping[str, object]:
        """Record the facts that only Dagster's storage has: a sensor that is switched off does not say so itself.

        Returns what is known of the scheduler now. A daemon that runs is recorded also when no sensor ever ticked. One
        that was ended in order must not come back by its last words, so it has to be seen to go on, or to be recent at
        the first check.
        """
        daemon = None if check is None else check.daemon_heartbeat
        seen, self._daemon_seen = self._daemon_seen, daemon or self._daemon_seen
        if daemon is None or not sensors:
            return {} if known is None else known.detail
        if known is None:
            if now - daemon < _RECENT if seen is None else daemon > seen:
                self._store.heartbeats.beat(SCHEDULER, daemon, sensors)
            return sensors
        told = {**known.detail, **sensors}
        if told != known.detail:
            self._store.heartbeats.beat(SCHEDULER, now, told)
        return told


class _Reader:
    """Reads the standing of the tables from their logs, as rarely as possible."""

    def __init__(self, store: ControlStore, warehouse: Warehouse, passed: Callable[[], float]) -> None:
        self._store = store
        self._warehouse = warehouse
        self._passed = passed
        self._recorder = LagRecorder(store.history)
        self.read_at: datetime | None = None
        self._graph: Graph | None = None
        self._intentions = Intentions()
        self._standings: dict[TableName, TableCondition] = {}
        self._at = 0.0
        self._pause = 0.0

    def read(self, graph: Graph, intentions: Intentions, moment: Moment) -> Mapping[TableName, TableCondition]:
        """The standing of every table; read anew at once when a declaration or an intention has changed."""
        age = moment.passed - self._at
        known = graph is self._graph and intentions == self._intentions
        if not known or age >= READ_SECONDS or (age >= self._pause and self._any_late(moment.now)):
            begin = self._passed()
            statuses = read_status(graph, self._store, self._warehouse, moment.now, counted=False)
            self._recorder.record(statuses, moment.now)
            found = {status.table: table_standing(graph, status) for status in statuses}
            promised = {name: self._promised_at(each, graph, intentions, moment.now) for name, each in found.items()}
            self._standings = {
                name: replace(self._standing(each), promised_at=promised[name]) for name, each in found.items()
            }
            self._graph, self._intentions = graph, intentions
            self._at, self.read_at = moment.passed, moment.now
            cost = self._passed() - begin
            self._pause = min(max(SHORTEST_READ_SECONDS, cost / _READ_SHARE), LONGEST_READ_SECONDS)
        return self._standings

    def _promised_at(
        self, found: TableCondition, graph: Graph, intentions: Intentions, now: datetime
    ) -> datetime | None:
        """When its freshness became as short as it is: by a statement, or seen here, for a declaration has no time."""
        before = self._standings.get(found.name)
        if before is not None:
            if found.warn_after < before.warn_after:
                return now
            return before.promised_at if found.warn_after == before.warn_after else None
        override = intentions.overrides.get(found.name)
        follows = graph.specs[found.name].warn_after_seconds is None
        shorter = override is not None and override.freshness < graph.declared_freshness(found.name)
        return override.at if override is not None and follows and shorter else None

    def _any_late(self, now: datetime) -> bool:
        return any(
            standing.late_since is not None and standing.late_since < now for standing in self._standings.values()
        )

    def _standing(self, found: TableCondition) -> TableCondition:
        """A log that cannot be read does not make the table's data younger or gone: it is as old as it was."""
        before = self._standings.get(found.name)
        if found.unreadable is None or found.data_timestamp is not None or before is None:
            return found
        return replace(found, data_timestamp=before.data_timestamp)


class _Records:
    """The sums of the refresh records, each record read once."""

    def __init__(self, store: ControlStore) -> None:
        self._store = store
        self._last: int | None = None
        self._identity = ""
        self._histories: dict[TableName, RecordHistory] = {}

    def read(self, now: datetime) -> Mapping[TableName, RecordHistory]:
        # In a store that took the place of a lost one the ids begin anew.
        identity = self._store.identity()
        if self._last is None or identity != self._identity:
            self._begin(now)
            self._identity = identity
        while True:
            records = self._store.refreshes_after(self._last or 0, _PAGE)
            if not records:
                return self._histories
            self._histories = add_records(self._histories, records)
            self._last = records[-1].id

    def _begin(self, now: datetime) -> None:
        """Begin with the arrivals of the last hour, and with the failures in a row of each table that fails now."""
        newest = self._store.last_refreshes()
        last = max((record.id or 0 for record in newest.values()), default=0)
        arrived = [record for record in self._store.committed_since(now - WINDOW) if (record.id or 0) <= last]
        histories = add_records({}, arrived)
        for name, record in newest.items():
            records = list(reversed(self._store.refreshes(name))) if record.state != State.SUCCEEDED else [record]
            failing = add_records({}, [one for one in records if (one.id or 0) <= last])[name].failing
            histories[name] = replace(histories.get(name, RecordHistory()), failing=failing)
        self._histories, self._last = histories, last


def catalog_conditions(heartbeats: Mapping[str, Heartbeat]) -> Iterator[CatalogCondition]:
    """The catalogs that are not where the tables are, as the engine has written down."""
    for name, beat in sorted(heartbeats.items()):
        if name.startswith(CATALOG_HEARTBEAT):
            cause, refused = str(beat.detail.get("cause")), beat.detail.get("refused") is True
            yield CatalogCondition(name.removeprefix(CATALOG_HEARTBEAT), since_of(beat), cause, refused)


def since_of(beat: Heartbeat) -> datetime:
    """When the trouble of a catalog began, by what was written of it."""
    try:
        return datetime.fromisoformat(str(beat.detail.get("since")))
    except ValueError:
        return beat.at


def _links(graph: Graph, url: str | None) -> Callable[[str], str | None]:
    def link(subject: str) -> str | None:
        if url is None or subject in (ENGINE, SCHEDULER) or subject.startswith(f"{AlertKind.CATALOG} "):
            return url
        return f"{url}/assets/{'/'.join(graph.spec(TableName.parse(subject)).name.parts)}"

    return link

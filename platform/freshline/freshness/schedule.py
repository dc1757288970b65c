"""Decide which tables are refreshed next, in which order, and what each of them waits for.

A wish says that a table is to be refreshed. A table that a commit woke waits for nobody. A table that is due comes with
everything that drives it, as one wave, upstreams first: each wish of the wave names the inputs of which it waits for
the next refresh. The end of any refresh of an input answers all wishes that wait for it at that moment, and a wish that
is pending is never made to wait for more. So nothing waits for two refreshes of one input, however many waves follow
each other. Where a wish went ahead of something that drives it from afar, the end of that refresh is a reason to
inspect the age of the table again.

Everything here is a value: no clock, storage or thread is read. Moments are monotonic seconds and are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from freshline.declare.graph import Graph
from freshline.freshness.due import with_driving
from freshline.values.names import TableName
from freshline.values.spec import Mode

POLLED, DUE, WOKEN = "polled", "due", "woken"
_NONE: frozenset[TableName] = frozenset()
_WEIGHT = {POLLED: 0, DUE: 1, WOKEN: 2}


@dataclass(frozen=True)
class Wish:
    """The reason why a table is to be refreshed, and since when.

    `after` are the inputs whose next refresh it waits for. `wave` is everything that drives the table, was to be
    refreshed with it, and was not refreshed since.
    """

    why: str
    since: float
    after: frozenset[TableName] = _NONE
    wave: frozenset[TableName] = _NONE

    def joined_by(self, why: str) -> Wish:
        """The same wish with one more reason; a commit that wakes the table ends its waiting."""
        heavier = max(self.why, why, key=lambda one: _WEIGHT[one])
        return replace(self, why=heavier, after=_NONE if why == WOKEN else self.after)

    def without(self, name: TableName) -> Wish:
        """The wish after a refresh of `name` has ended."""
        if name not in self.wave and name not in self.after:
            return self
        return replace(self, after=self.after - {name}, wave=self.wave - {name})


@dataclass(frozen=True)
class Schedule:
    """The refreshes that are wished for, and those that were begun and have not ended.

    `missed` has, for each table that was refreshed because it was due, what drives it and was not refreshed with it.
    """

    graph: Graph
    wishes: Mapping[TableName, Wish] = field(default_factory=dict)
    underway: frozenset[TableName] = _NONE
    missed: Mapping[TableName, frozenset[TableName]] = field(default_factory=dict)

    # -- what comes up

    def wish(self, names: Iterable[TableName], why: str, now: float) -> Schedule:
        """Wish for these, each by itself. A poll of a source that is being read already asks for nothing new."""
        wishes = dict(self.wishes)
        for name in names:
            if why == POLLED and name in self.underway:
                continue
            before = wishes.get(name)
            wishes[name] = Wish(why, now) if before is None else before.joined_by(why)
        return replace(self, wishes=wishes)

    def wish_due(
        self, names: Iterable[TableName], now: float, left_alone: Container[TableName] = _NONE
    ) -> tuple[Schedule, tuple[TableName, ...]]:
        """Wish for tables that are due, each with everything that drives it; those `left_alone` are not refreshed.

        Nothing is added for a table that is wished for already or is being refreshed: that refresh is the next one.
        Returns the tables too that were added because they are due.
        """
        wishes = dict(self.wishes)
        added = []
        for name in names:
            if name not in wishes and name not in self.underway and name not in left_alone:
                added.append(name)
                self._add_wave(wishes, name, now, left_alone)
        return replace(self, wishes=wishes), tuple(added)

    def wish_awake(self, names: Iterable[TableName], now: float, left_alone: Container[TableName] = _NONE) -> Schedule:
        """Wish for tables that may have missed a commit, upstreams first as if they were due.

        Unlike a table that is due, such a table is refreshed even where an upstream fails.
        """
        wishes = dict(self.wishes)
        for name in names:
            if name not in left_alone:
                self._add_wave(wishes, name, now, left_alone)
                # A refresh that is under way may have begun before that commit.
                wish = wishes.get(name) or self._wave_of(wishes, name, now)
                wishes[name] = replace(wish, why=WOKEN)
        return replace(self, wishes=wishes)

    def _add_wave(
        self, wishes: dict[TableName, Wish], name: TableName, now: float, left_alone: Container[TableName]
    ) -> None:
        for one in with_driving(self.graph, (name,)):
            if one not in wishes and one not in self.underway and one not in left_alone:
                wishes[one] = self._wave_of(wishes, one, now)

    def _wave_of(self, wishes: Mapping[TableName, Wish], name: TableName, now: float) -> Wish:
        """A wish for one table of a wave; those for its upstreams are among `wishes` already."""
        wave = frozenset(
            other for other in self.graph.driving_upstream(name) if other in wishes or other in self.underway
        )
        return Wish(DUE, now, wave & frozenset(self.graph.driving(name)), wave)

    def without(self, names: Iterable[TableName]) -> Schedule:
        """The schedule without the wishes for these."""
        gone = set(names)
        return replace(self, wishes={name: wish for name, wish in self.wishes.items() if name not in gone})

    def over(self, graph: Graph, same: Collection[TableName]) -> Schedule:
        """The schedule for another graph; wishes stay for the tables that are the `same` in both."""
        return Schedule(
            graph,
            {name: wish for name, wish in self.wishes.items() if name in same},
            frozenset(name for name in self.underway if name in graph),
            {name: missed for name, missed in self.missed.items() if name in same},
        )

    # -- what begins and ends

    def begin(self, name: TableName) -> Schedule:
        """The refresh of a table is handed over to be done. Wishes from here on are for another one."""
        wishes = dict(self.wishes)
        wish = wishes.pop(name, None)
        missed = {table: rest for table, rest in self.missed.items() if table != name}
        if wish is not None and wish.wave:
            missed[name] = wish.wave
        return replace(self, wishes=wishes, underway=self.underway | {name}, missed=missed)

    def end(self, name: TableName, *, brought_in: bool, again: bool = False) -> tuple[Schedule, frozenset[TableName]]:
        """A refresh has ended; `brought_in` says whether it took in what was new. `again`: another one is under way.

        Returns the tables too that went ahead of it: whether they are due is to be inspected again.
        """
        ended = replace(self, underway=self.underway if again else self.underway - {name})
        if not brought_in:
            return ended, _NONE
        passed_by = frozenset(table for table, rest in self.missed.items() if name in rest)
        return replace(
            ended,
            wishes={table: wish.without(name) for table, wish in self.wishes.items()},
            missed={table: rest for table, rest in self.missed.items() if table not in passed_by},
        ), passed_by

    # -- what is next

    def waits_for(
        self,
        name: TableName,
        busy: Collection[TableName],
        resting: Collection[TableName],
        has_version: Callable[[TableName], bool],
    ) -> TableName | None:
        """An upstream that a table waits for; None where it may begin.

        Nobody waits for what is neither wished for nor under way, nor for what rests after a failure. A table that has
        no version yet is waited for by everything that reads it.
        """
        after = self.wishes[name].after
        for upstream in self.graph.upstream(name):
            expected = (
                upstream in busy or upstream in self.underway or (upstream in self.wishes and upstream not in resting)
            )
            if expected and (upstream in after or not has_version(upstream)):
                return upstream
        return None

    def ready(
        self,
        busy: Collection[TableName],
        resting: Collection[TableName],
        has_version: Callable[[TableName], bool],
    ) -> tuple[TableName, ...]:
        """The tables that may begin, the first ones first.

        Continuous tables come before the others. Among them a reader comes before the next check of its source, so that
        each commit is taken in before there is another one. The others come by the moment up to which their freshness
        lets them wait, so nothing is passed over for longer than its own freshness.
        """
        able = [
            name
            for name in self.wishes
            if name not in busy
            and name not in self.underway
            and name not in resting
            and self.waits_for(name, busy, resting, has_version) is None
        ]
        return tuple(sorted(able, key=self._urgency))

    def _urgency(self, name: TableName) -> tuple[bool, bool, float]:
        wish = self.wishes[name]
        if self.graph.mode(name) is Mode.CONTINUOUS:
            return False, wish.why == POLLED, wish.since
        return True, False, wish.since + self.graph.freshness(name).seconds

    def choose(self, ready: Iterable[TableName], busy: Collection[TableName], parallel: int) -> tuple[TableName, ...]:
        """Those that are handed over now: refreshes that may take long leave a place to those that must not wait."""
        room = max(1, parallel - 1) - sum(self._may_take_long(name) for name in busy)
        chosen = []
        for name in ready:
            if self._may_take_long(name):
                if room <= 0:
                    continue
                room -= 1
            chosen.append(name)
        return tuple(chosen)

    def _may_take_long(self, name: TableName) -> bool:
        return name in self.graph and self.graph.mode(name) is not Mode.CONTINUOUS

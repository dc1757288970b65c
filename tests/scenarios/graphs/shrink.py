"""A smaller case that is wrong in the same way.

Parts are left out as long as what is left still fails alike: tables that the wrong one does not read, events one by
one, and what a declaration has beside its query; an input takes the place of a table that reads it. The meaning of a
smaller case does not matter, only whether it is still wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.scenarios.graphs.case import Advance, Case, Change, Refresh, Table, of_event
from tests.scenarios.graphs.judge import Failure

Judge = Callable[[Case], Failure | None]


def shrink(case: Case, failure: Failure, judge: Judge, *, most: int) -> tuple[Case, Failure]:
    """The smallest case found with at most that many runs, and its failure."""
    runs = 0

    def fails(smaller: Case) -> Failure | None:
        nonlocal runs
        runs += 1
        try:
            found = judge(smaller)
        except Exception:  # noqa: BLE001 - what cannot be declared or played is no smaller case
            return None
        return found if found is not None and found.kind == failure.kind else None

    again = True
    while again:
        again = False
        for smaller in _smaller(case, failure):
            if runs >= most:
                return case, failure
            found = fails(smaller)
            if found is not None:
                case, failure, again = smaller, found, True
                break
    return case, failure


def told(case: Case, failure: Failure, judge: Judge, *, most: int) -> str:
    """A failure for people: the smallest case that fails alike, as lines of a test in a Lab."""
    small, found = shrink(case, failure, judge, most=most)
    return (
        f"{failure.kind} of {failure.table} after event {failure.event}: {failure.detail}\n\n"
        f"smaller, {found.kind} of {found.table} after event {found.event}: {found.detail}\n\n{small}"
    )


def _smaller(case: Case, failure: Failure) -> Iterator[Case]:
    events = case.events[: failure.event + 1]
    if len(events) < len(case.events):
        yield replace(case, events=events)
        return
    yield from _fewer_tables(case, failure.table)
    # Many events at once, then one by one.
    size = len(events) // 2
    while size:
        for start in range(0, len(events), size):
            yield replace(case, events=events[:start] + events[start + size :])
        size //= 2
    for place, table in enumerate(case.tables):
        for name in table.reads:
            other = _without(case, table, name)
            if other is not None:
                yield other
        for simpler in _simpler(table):
            yield replace(case, tables=(*case.tables[:place], simpler, *case.tables[place + 1 :]))
    for place, event in enumerate(events):
        for smaller in _smaller_event(event):
            yield replace(case, events=(*events[:place], smaller, *events[place + 1 :]))


def _fewer_tables(case: Case, wrong: str) -> Iterator[Case]:
    names = [table.name for table in case.tables]
    small = case.only([wrong])
    if len(small.tables) < len(names):
        yield small
    for name in reversed(names):
        if name != wrong and not any(name in table.reads for table in case.tables):
            yield case.only([each for each in names if each != name])


def _without(case: Case, table: Table, instead: str) -> Case | None:
    """The case in which an input stands in the place of a table."""
    if not any(table.name in other.reads for other in case.tables):
        return None
    tables = []
    for other in case.tables:
        if other.name == table.name:
            continue
        if table.name in other.reads:
            reads = tuple(dict.fromkeys(instead if name == table.name else name for name in other.reads))
            other = replace(
                other,
                reads=reads,
                query=re.sub(rf"\b{table.name}\b", instead, other.query),
                meaning=re.sub(rf"\b{table.name}\b", instead, other.meaning),
                options=tuple((key, instead if value == table.name else value) for key, value in other.options),
            )
        tables.append(other)
    events = tuple(event for event in case.events if of_event(event) != table.name)
    return replace(case, tables=tuple(tables), events=events)


def _simpler(table: Table) -> Iterator[Table]:
    if table.partitioned:
        yield replace(table, partitioned=False)
    if table.primary_key and table.kind != "merge":
        yield replace(table, primary_key=())
    if table.expected:
        yield replace(table, expected="", violated="")
    if table.non_driving and table.kind != "lookup":
        yield replace(table, options=())


def _smaller_event(event: object) -> Iterator[Change | Refresh | Advance]:
    if isinstance(event, Change) and len(event.rows) > 1:
        for place in range(len(event.rows)):
            yield replace(event, rows=event.rows[:place] + event.rows[place + 1 :])
    if isinstance(event, Change) and len(event.ids) > 1:
        yield from (replace(event, ids=(id_,)) for id_ in event.ids)
    if isinstance(event, Refresh) and event.full:
        yield replace(event, full=False)

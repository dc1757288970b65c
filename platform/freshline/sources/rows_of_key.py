"""The rows that have a key while a transaction changes them: pure, and sent to the processes of Spark as it is.

Most databases check a unique key at each row. Where it is checked at the end of a statement or transaction, keys may
change places: `UPDATE t SET id = id + 1` gives row 1 the key 2 before row 2 has left it. The changes arrive in this
order, so the delete of a key may follow the insert of another row with it, and is not that of the newest one. The old
image of a change says which row it was. At the end of a transaction one row has a key, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

INSERT, UPDATE, DELETE, READ, KEPT = "c", "u", "d", "r", "k"
Place = tuple[Any, ...]


class SeenEvent(NamedTuple):
    """One event of a key; all are in their order.

    `op` is None for one that went to quarantine and of which nothing else is known. `image` are bits of the row that it
    leaves, None for a rejected one, and `removed` those of the row that it took away, None where that was not sent.
    `is_bare` says that all but the key is NULL in the old image, as where the database sends the key alone. `truncates`
    is how often all rows were removed before it. For a delete that `is_asked`, `find_survivors` gives the outcome.
    """

    place: Place
    op: str | None
    transaction: str | None
    image: int | None
    removed: int | None
    is_bare: bool
    truncates: int
    is_asked: bool


class Survivor(NamedTuple):
    """The row that has a key after the delete at `place`: that of the event at `row`, None where nobody knows.

    `is_own` says that this event is of the same transaction.
    """

    place: Place
    row: Place | None
    is_own: bool


@dataclass
class _Row:
    image: int | None
    place: Place
    is_own: bool


def find_survivors(events: Iterable[SeenEvent]) -> list[Survivor]:
    """The deletes of a key behind which another row has it.

    >>> first = SeenEvent((1,), "r", None, 10, None, False, 0, False)
    >>> at = [first, SeenEvent((2,), "c", "t", 20, None, False, 0, False)]
    >>> find_survivors([*at, SeenEvent((3,), "d", "t", None, 10, False, 0, True)])
    [Survivor(place=(3,), row=(2,), is_own=True)]
    >>> find_survivors([*at, SeenEvent((3,), "d", "t", None, 20, False, 0, True)])
    [Survivor(place=(3,), row=(1,), is_own=False)]
    """
    rows: list[_Row] = []
    found = []
    unread: list[_Row] = []
    transaction, truncates, unsure = None, 0, 0
    for event in events:
        if event.truncates != truncates:
            rows, truncates = [], event.truncates
        if event.op is None:
            # It is of this transaction or the next.
            unsure = 2
            unread.append(_Row(None, event.place, True))
            continue
        if event.transaction is None or event.transaction != transaction:
            # At its end a transaction left one row at most.
            rows = [_Row(each.image, each.place, False) for each in rows[-1:]]
            transaction, unsure = event.transaction, max(0, unsure - 1)
        rows += unread
        unread = []
        is_certain = True
        if event.op in (UPDATE, DELETE, KEPT):
            is_certain = _take_away(rows, event, certain=not unsure)
        elif event.op == READ:
            rows = []
        if event.op in (INSERT, UPDATE, READ):
            rows.append(_Row(event.image, event.place, True))
        if event.op == DELETE and event.is_asked:
            left = [each for each in rows if each.image is not None]
            if not is_certain:
                found.append(Survivor(event.place, None, False))
            elif left:
                found.append(Survivor(event.place, left[-1].place, left[-1].is_own))
    return found


def _take_away(rows: list[_Row], event: SeenEvent, *, certain: bool) -> bool:
    """Take away the row that an event changed; whether that is the right one for certain."""
    if event.removed is not None:
        for index in reversed(range(len(rows))):
            if rows[index].image == event.removed:
                del rows[index]
                return True
    if event.removed is None or event.is_bare:
        # Where the key alone is sent it is checked at each row, so that one row has it.
        if event.op == UPDATE:
            del rows[-1:]
        else:
            rows.clear()
        return True
    # A row whose image is in quarantine, or of which another image is stored.
    unknown = [index for index, each in enumerate(rows) if each.image is None]
    other = [index for index, each in enumerate(rows) if not each.is_own]
    preferred = [*unknown[-1:], *other[-1:]]
    if preferred:
        del rows[preferred[0]]
    else:
        del rows[-1:]
    return certain

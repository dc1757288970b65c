"""Workload A: events of customers and changes of these customers, as files of JSON lines that land in a directory.

Every row is a function of the seed and its number, so a rerun lands the same bytes and any earlier row can be
delivered again. Of the first events 1 % are delivered twice, of later ones 3 %, half of them from an earlier file, and
10 % of the later ones are older than all before. Of the changes 15 % are deletes, and 10 % are out of date: their time
is before that of all first rows of customers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

KINDS = ("view", "click", "cart", "order")
SEGMENTS = ("new", "regular", "gold", "staff", "lost")
COUNTRIES = ("AT", "BR", "CA", "DE", "FR", "IN", "JP", "NG", "PL", "US")
FIRST_FILES = 10
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_DAYS = 90
_MASK = (1 << 64) - 1
# Different numbers, so that no two columns or workloads are made of the same random numbers.
_EVENT, _CHANGE, _AGAIN = 1, 2, 3


@dataclass(frozen=True)
class Sizes:
    """How many events are there at first, customers among them, and events and changes that each increment brings."""

    events: int
    customers: int
    new_events: int = 1000
    new_changes: int = 200

    @property
    def first_changes(self) -> int:
        """One for each customer, and a fifth more."""
        return self.customers + self.customers // 5


def events(sizes: Sizes, step: int, seed: int = 0) -> Iterator[str]:
    """The lines of events that land at a step: 0 is the first load, 1 the first increment."""
    first, after = _range(sizes.events, sizes.new_events, step)
    share = 0.03 if step else 0.01
    for number in range(first, after):
        yield _event(sizes, number, seed)
        chance = _mix(seed, _AGAIN, number)
        if _share(chance) < share:
            # The whole record once more: itself, or at an increment as often one of those that came earlier.
            earlier = step > 0 and chance & 1
            yield _event(sizes, (chance >> 1) % first if earlier else number, seed)


def changes(sizes: Sizes, step: int, seed: int = 0) -> Iterator[str]:
    """The lines of customers' changes that land at a step."""
    first, after = _range(sizes.first_changes, sizes.new_changes, step)
    for number in range(first, after):
        yield _change(sizes, number, seed)


def land(folder: Path, sizes: Sizes, step: int, seed: int = 0) -> None:
    """Write the files of a step below `folder`: into `event` and `change`; each appears when it is complete."""
    files = FIRST_FILES if step == 0 else 1
    for name, lines in (("event", list(events(sizes, step, seed))), ("change", list(changes(sizes, step, seed)))):
        (folder / name).mkdir(parents=True, exist_ok=True)
        size = -(-len(lines) // files)
        for part in range(files):
            hidden = folder / f".{name}"
            hidden.write_text("".join(lines[part * size : (part + 1) * size]))
            hidden.rename(folder / name / f"step-{step:04d}-{part:02d}.json")


def _range(at_first: int, later: int, step: int) -> tuple[int, int]:
    first = 0 if step == 0 else at_first + later * (step - 1)
    return first, at_first if step == 0 else first + later


def _event(sizes: Sizes, number: int, seed: int) -> str:
    chance = _mix(seed, _EVENT, number)
    spacing = timedelta(days=_DAYS) / sizes.events
    late = number - sizes.events
    if late >= 0 and chance % 10 == 0:
        at = _BEGIN - timedelta(minutes=late)
    else:
        # Up to an hour out of order.
        at = _BEGIN + spacing * number + timedelta(seconds=chance % 3600)
    # Of twenty events one is of a customer that is not known.
    customer = (chance >> 12) % (sizes.customers + max(1, sizes.customers // 20))
    return (
        f'{{"event_id": "e{number}", "customer_id": "c{customer}", "kind": "{KINDS[(chance >> 40) % 4]}", '
        f'"amount": {(chance >> 44) % 50_000}, "happened_at": "{at:%Y-%m-%dT%H:%M:%S.%fZ}"}}\n'
    )


def _change(sizes: Sizes, number: int, seed: int) -> str:
    chance = _mix(seed, _CHANGE, number)
    late = number - sizes.customers
    customer, action = (number, "i") if late < 0 else ((chance >> 8) % sizes.customers, "u")
    at = _BEGIN + timedelta(seconds=number)
    if late >= 0:
        if chance % 100 < 15:
            action = "d"
        if (chance >> 50) % 10 == 0:
            at = _BEGIN - timedelta(seconds=1 + late)
    return (
        f'{{"change_id": "x{number}", "customer_id": "c{customer}", "op": "{action}", '
        f'"name": "name {chance >> 32}", "segment": "{SEGMENTS[(chance >> 16) % 5]}", '
        f'"country": "{COUNTRIES[(chance >> 24) % 10]}", "changed_at": "{at:%Y-%m-%dT%H:%M:%S.%fZ}"}}\n'
    )


def _share(chance: int) -> float:
    return (chance >> 11) / (1 << 53)


def _mix(seed: int, sort: int, number: int) -> int:
    """64 bits that seem random: splitmix64, which is cheaper than a generator for each row."""
    value = (seed * 0x9E3779B97F4A7C15 + sort * 0xD1B54A32D192ED03 + number * 0x8CB92BA72F3D8DD7) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)

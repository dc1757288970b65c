"""Make the events of the reference deployment: a shop's touches, orders, customer changes and campaigns.

Real feeds are late, doubled and partly broken, and tables that only work on clean ones are of no use. So this
writes what a reader must survive, in known shares: records out of order, a few late by days, redeliveries with
the same content in the same or a later file, customers deleted and inserted again with older updates arriving
after the delete, equal times, 1 % broken records, and two days of campaigns that arrive after their touches.

There are two ways to run it. `portion` writes a fixed history in parts: equal for equal seed and arguments, on any
machine and at any time. `run` writes until it is asked to stop, with the times of now.

It writes complete files only: each is written under a hidden name and renamed. Stopped half way it leaves hidden
files, which readers skip, and a portion that is asked for again finishes what is missing.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import repeat
from pathlib import Path
from random import Random
from threading import Event

from resources.campaign_writer import Campaign, CampaignWriter

BASE = datetime(2025, 3, 1, tzinfo=UTC)
"""The beginning of the fixed history; each portion is one day of it."""

TOUCH, ORDER, CHANGE = "touch_event", "sale_order", "customer_change"
KEYS = {TOUCH: "event_id", ORDER: "order_id", CHANGE: "event_id"}
WRONG_TYPES = {TOUCH: ("event_ts", "the other day"), ORDER: ("total_amount", "many"), CHANGE: ("opt_in", "perhaps")}
BROKEN_SHARE = 0.01
REDELIVERED_SHARE = 0.02
ORDERS_PER_TOUCH = 0.3
CHANGES_PER_TOUCH = 0.2
CAMPAIGNS = tuple(f"CMP-{number:02d}" for number in range(1, 13))
CHANNELS = ("email", "search", "social", "display")
DAYS_BEFORE = 7  # campaigns of the days before the first one: touches may be late by days

Value = str | float | bool | None


def utc_now() -> datetime:
    return datetime.now(UTC)


class Records:
    """The records of one kind as lines, in the order of their arrival: new ones, broken ones and redeliveries.

    `make` gives the next valid record for the moment of its arrival and a random state.
    """

    def __init__(self, kind: str, seed: str, make: Callable[[Random, datetime], Mapping[str, Value]]) -> None:
        self.kind = kind
        self._random = Random(f"{seed}/{kind}")
        self._make = make
        self._made = 0
        self._again: list[tuple[int, int, bytes]] = []  # heap: due at this record number, order of entry, line

    def arrive(self, moment: datetime) -> Iterator[bytes]:
        """One more valid record, preceded by the redeliveries that are due and, rarely, followed by a broken one."""
        random = self._random
        self._made += 1
        while self._again and self._again[0][0] <= self._made:
            yield heapq.heappop(self._again)[2]
        record = dict(self._make(random, moment))
        line = json.dumps(record, separators=(",", ":")).encode()
        yield line
        if random.random() < REDELIVERED_SHARE:
            for copy in range(random.choice((1, 1, 1, 2))):
                due = self._made + random.choice((1, 5, 50, 500))
                heapq.heappush(self._again, (due, self._made * 10 + copy, line))
        if random.random() < BROKEN_SHARE:
            yield self._broken(random, record)

    def _broken(self, random: Random, record: dict[str, Value]) -> bytes:
        key = KEYS[self.kind]
        record[key] = f"{record[key]}-broken"
        match random.randrange(4):
            case 0:
                return json.dumps(record).encode()[: random.randint(5, 40)]
            case 1:
                column, value = WRONG_TYPES[self.kind]
                return json.dumps(record | {column: value}).encode()
            case 2:
                return json.dumps(record).encode().replace(b"-broken", b"\xff\xfe")
            case _:
                return json.dumps(record | {key: None}).encode()


class Shop:
    """The events of the shop, by the moment at which the news of them arrives.

    `name` begins every identifier, so that two histories in one landing directory do not collide.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._name = name
        self._counts = dict.fromkeys(KEYS, 0)
        self._last_touch: tuple[str, datetime] | None = None
        self._changed: dict[str, datetime] = {}  # customer -> the newest time of a change so far
        self._deleted: set[str] = set()
        self._follow_ups: list[tuple[int, str, str, datetime | None]] = []  # heap: due, customer, op, time or now
        makers = {TOUCH: self._touch, ORDER: self._order, CHANGE: self._change}
        self.records = {kind: Records(kind, f"{seed}/{name}", make) for kind, make in makers.items()}

    def _next_id(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind[0].upper()}-{self._name}-{self._counts[kind]:08d}"

    def _customer(self, random: Random) -> str:
        # Known customers come back more often, and the later it is the more there are.
        known = 300 + self._counts[TOUCH] // 5
        return f"C{1 + int(known * random.random() ** 1.5):06d}"

    def _touch(self, random: Random, moment: datetime) -> Mapping[str, Value]:
        if self._last_touch is not None and random.random() < 0.01:
            customer, happened = self._last_touch  # a twin: only the tie-breaker decides which is first
        else:
            customer, happened = self._customer(random), moment - _lateness(random, days=0.03)
        self._last_touch = (customer, happened)
        return {
            "event_id": self._next_id(TOUCH),
            "customer_id": customer,
            "event_type": random.choice(("view", "view", "click", "open", "signup")),
            "campaign_id": None if random.random() < 0.05 else random.choice(CAMPAIGNS),
            "event_ts": _written(happened),
        }

    def _order(self, random: Random, moment: datetime) -> Mapping[str, Value]:
        return {
            "order_id": self._next_id(ORDER),
            "customer_id": None if random.random() < 0.005 else self._customer(random),
            "total_amount": round(5 + random.expovariate(1 / 60), 2),
            "order_ts": _written(moment - _lateness(random, days=0.01)),
        }

    def _change(self, random: Random, moment: datetime) -> Mapping[str, Value]:
        made = self._counts[CHANGE]
        if self._follow_ups and self._follow_ups[0][0] <= made:
            _, customer, op, at = heapq.heappop(self._follow_ups)
            updated = at or moment
        else:
            customer = self._customer(random)
            updated = moment - _lateness(random, days=0.02)
            before = self._changed.get(customer)
            if before is None or customer in self._deleted:
                op = "i"
            else:
                op = "d" if random.random() < 0.08 else "u"
                if random.random() < 0.02:
                    updated = before  # the same time twice: only the tie-breaker decides which is last
        if op == "d":
            self._deleted.add(customer)
            if random.random() < 0.6:
                older = updated - timedelta(hours=random.uniform(1, 72))
                heapq.heappush(self._follow_ups, (made + random.randint(1, 200), customer, "u", older))
            if random.random() < 0.5:
                heapq.heappush(self._follow_ups, (made + random.randint(1, 300), customer, "i", None))
        elif op == "i":
            self._deleted.discard(customer)
        self._changed[customer] = max(updated, self._changed.get(customer, updated))
        gone = op == "d"
        return {
            "event_id": self._next_id(CHANGE),
            "op": op,
            "customer_id": customer,
            "email": None if gone else f"{customer.lower()}@example.com",
            "phone": None if gone or random.random() < 0.3 else f"+49 30 {random.randrange(10**7):07d}",
            "segment": None if gone else random.choice(("new", "regular", "vip")),
            "acquisition_channel": None if gone else random.choice(CHANNELS),
            "country": None if gone else random.choice(("DE", "FR", "NL", "PL", "SE")),
            "opt_in": None if gone else random.random() < 0.7,
            "updated_at": _written(updated),
        }


@dataclass(frozen=True)
class Portion:
    """The files of one part of the fixed history, and what the campaign writer does in it."""

    files: Mapping[tuple[str, str], bytes]  # (kind, file name) -> content
    days: tuple[date, ...]
    renamed: tuple[str, date, str] | None


class Generator:
    """Writes the events below `landing`, one folder a source, and the campaigns to the Delta table `campaign_table`."""

    def __init__(self, landing: Path, campaign_table: Path, seed: int) -> None:
        self.landing = landing
        self.campaigns = CampaignWriter(campaign_table)
        self.seed = seed
        self._history: tuple[tuple[object, ...], list[Portion]] | None = None

    def prepare(self) -> None:
        """Make the folders and the empty campaign table, so that everything can be read before the first event."""
        for kind in KEYS:
            (self.landing / kind).mkdir(parents=True, exist_ok=True)
        self.campaigns.create()

    def landed(self, kind: str) -> int:
        """How many different valid records of one kind landed, counted in the files and by nothing else."""
        found: set[str] = set()
        for file in (self.landing / kind).glob("[!.]*.jsonl"):
            found.update(name for name in map(_valid_name, file.read_bytes().splitlines(), repeat(kind)) if name)
        return len(found)

    def portion(
        self, i: int, of: int, touches: int, orders: int, customer_changes: int, *, base: datetime = BASE
    ) -> None:
        """Write part `i` (from 0) of a fixed history in `of` parts, each a day from `base` on.

        After all parts the landing directory has exactly `touches`, `orders` and `customer_changes` different
        valid records; redeliveries and broken records come on top. A part that is there already is left as it is.
        Raises FileExistsError if files of another history stand under its names, ValueError if there is no part i.
        """
        if not 0 <= i < of:
            raise ValueError(f"part {i} of {of}: parts count from 0 to {of - 1}")
        self.prepare()
        asked = (of, touches, orders, customer_changes, base)
        if self._history is None or self._history[0] != asked:
            self._history = (asked, self._write_history(of, touches, orders, customer_changes, base))
        part = self._history[1][i]
        for day in part.days:
            self.campaigns.write_day(self._campaigns_of(day))
        if part.renamed is not None:
            self.campaigns.rename(*part.renamed)
        for (kind, name), content in part.files.items():
            _deliver(self.landing / kind / name, content)

    def run(
        self, until: Event, rate: float, *, period: float = 1.0, clock: Callable[[], datetime] = utc_now
    ) -> Mapping[str, int]:
        """Write `rate` touches a second, with orders and customer changes in proportion, until `until` is set.

        A file a kind is written every `period` seconds. Returns the number of valid records by kind.
        """
        self.prepare()
        started = clock()
        name = f"{self.seed}.{started:%Y%m%dT%H%M%S%f}"
        shop = Shop(self.seed, name)
        rates = {TOUCH: rate, ORDER: rate * ORDERS_PER_TOUCH, CHANGE: rate * CHANGES_PER_TOUCH}
        counts = dict.fromkeys(KEYS, 0)
        random = Random(f"{self.seed}/campaigns")
        late = {started.date() - timedelta(days=2): 45.0, started.date() - timedelta(days=5): 90.0}
        next_rename = 60.0
        turn = 0
        while True:
            now = clock()
            passed = (now - started).total_seconds()
            known = self.campaigns.days() if turn % 15 == 0 else None
            if known is not None:
                for back in range(DAYS_BEFORE, -1, -1):
                    day = now.date() - timedelta(days=back)
                    if day not in known and passed >= late.get(day, 0.0):
                        self.campaigns.write_day(self._campaigns_of(day))
            if passed >= next_rename:
                next_rename += 60.0
                campaign = random.choice(CAMPAIGNS)
                self.campaigns.rename(campaign, now.date(), f"{self._name_of(campaign)} (at {now:%H:%M})")
            for kind, per_second in rates.items():
                count = int(passed * per_second) - counts[kind]
                lines = [line for _ in range(count) for line in shop.records[kind].arrive(now)]
                counts[kind] += count
                if lines:
                    _deliver(self.landing / kind / f"live-{name}-{turn:06d}.jsonl", _content(lines))
            turn += 1
            if until.wait(period):
                return counts

    def _write_history(
        self, of: int, touches: int, orders: int, customer_changes: int, base: datetime
    ) -> list[Portion]:
        random = Random(f"{self.seed}/history")
        shop = Shop(self.seed, str(self.seed))
        late = set(random.sample(range(1, of - 1), 2)) if of >= 4 else set()
        parts = []
        for i in range(of):
            files: dict[tuple[str, str], bytes] = {}
            for kind, total in ((TOUCH, touches), (ORDER, orders), (CHANGE, customer_changes)):
                count = total * (i + 1) // of - total * i // of
                moments = (base + timedelta(days=i + (k + 0.5) / count) for k in range(count))
                lines = [line for moment in moments for line in shop.records[kind].arrive(moment)]
                cut = random.randint(0, len(lines))
                for half, some in enumerate((lines[:cut], lines[cut:])):
                    if some:
                        name = f"seed-{self.seed}-part-{i:04d}-of-{of:04d}-{half}.jsonl"
                        files[kind, name] = _content(some)
            offsets = [] if i in late else [i]
            offsets += [day for day in sorted(late) if i == min(day + 2, of - 1)]
            if i == 0:
                offsets = [*range(-DAYS_BEFORE, 0), *offsets]
            renamed = None
            if i % 3 == 2:
                campaign = random.choice(CAMPAIGNS)
                day = (base - timedelta(days=random.randint(1, DAYS_BEFORE))).date()
                renamed = (campaign, day, f"{self._name_of(campaign)} (renamed on day {i})")
            days = tuple((base + timedelta(days=offset)).date() for offset in offsets)
            parts.append(Portion(files, days, renamed))
        return parts

    def _campaigns_of(self, day: date) -> Sequence[Campaign]:
        return [
            Campaign(campaign, self._name_of(campaign), CHANNELS[number % len(CHANNELS)], day)
            for number, campaign in enumerate(CAMPAIGNS)
        ]

    def _name_of(self, campaign: str) -> str:
        return f"Spring {campaign[-2:]}"


def _lateness(random: Random, days: float) -> timedelta:
    """How long news takes: mostly seconds, often minutes, and for the share `days` of it one to five days."""
    chance = random.random()
    if chance < days:
        return timedelta(days=random.uniform(1, 5))
    if chance < days + 0.2:
        return timedelta(minutes=random.uniform(0, 30))
    return timedelta(seconds=random.uniform(0, 2))


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _content(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _valid_name(line: bytes, kind: str) -> str | None:
    """The identifier of a record, None of a broken one: those that can be parsed are marked, or have none."""
    try:
        name = json.loads(line.decode())[KEYS[kind]]
    except ValueError:
        return None
    return None if name is None or name.endswith("-broken") else str(name)


def _deliver(target: Path, content: bytes) -> None:
    """Make a complete file appear at once; one with this content that is there already is left as it is."""
    if target.exists():
        if target.read_bytes() != content:
            raise FileExistsError(f"{target} holds another history; take another seed or an empty landing directory")
        return
    hidden = target.with_name(f".{target.name}")
    hidden.write_bytes(content)
    hidden.rename(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write events until interrupted or terminated; prints the number of records by kind at the end."""
    landing = Path(".freshline") / os.environ.get("FRESHLINE_ENV", "local") / "landing"
    parser = argparse.ArgumentParser(prog="python -m resources.generator", description=main.__doc__)
    parser.add_argument("--landing", type=Path, default=landing, help=f"default: {landing}")
    parser.add_argument("--campaigns", type=Path, help="default: campaign_load in the landing directory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=40.0, help="touches a second (default: 40)")
    parser.add_argument("--seconds", type=float, help="stop after this time (default: when interrupted)")
    options = parser.parse_args(arguments)
    until = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: until.set())
    deadline = None if options.seconds is None else utc_now() + timedelta(seconds=options.seconds)

    def clock() -> datetime:
        now = utc_now()
        if deadline is not None and now >= deadline:
            until.set()
        return now

    generator = Generator(options.landing, options.campaigns or options.landing / "campaign_load", options.seed)
    print(json.dumps(generator.run(until, options.rate, clock=clock)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

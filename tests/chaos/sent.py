"""The rows that were sent, and how: the truth that the tables are compared with.

Every portion is written here before it is delivered, and delivered from here, so that a harness that is killed goes on
with the same truth. Nothing of freshline is imported.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]

# The columns of each source, and the one by which a row that comes again is known.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "event": ("event_id", "k", "op", "n", "ts"),
    "plain": ("plain_id", "k", "n", "ts"),
    "paid": ("paid_id", "k", "n", "ts"),
}
KEYED = frozenset({"event", "paid"})
START = datetime(2026, 1, 1, tzinfo=UTC)
# Keys that one character too few or too many of escaping would change or merge.
KEYS = (
    *(f"k{number}" for number in range(12)),
    "k'1",
    'k"1',
    "k,1",
    "k\\1",
    "k/../1",
    "k%201",
    "ключ",
    "k\u202e1",
    "k\u00e9",
    "ke\u0301",
    "\U0001f680",
    "NULL",
)
# File names that something between a listing and a reader might take for more than a name.
ODD_NAMES = (
    "a b{n}",
    "a%20b{n}",
    "%{n}",
    "quote'{n}",
    'double"{n}',
    "[x]{n}",
    "{{x}}{n}",
    "star*{n}",
    "what?{n}",
    "hash#{n}",
    "colon:{n}",
    "semi;{n}",
    "comma,{n}",
    "equals={n}",
    "plus+{n}",
    "tilde~{n}",
    "dollar$HOME{n}",
    "ключ{n}",
    "e\u0301{n}",
    "\u00e9{n}",
    "rtl\u202e{n}",
    "-{n}",
    "n" * 200 + "{n}",
)


@dataclass(frozen=True)
class Portion:
    """A portion that is delivered at once: a file, or records of a topic.

    `rows` are the rows that it brings, `again` are rows that came before, `broken` records become no row.
    """

    source: str
    number: int
    name: str
    rows: tuple[Row, ...]
    again: tuple[Row, ...] = ()
    broken: tuple[bytes, ...] = ()

    def records(self) -> list[bytes]:
        """The records in the order in which they are delivered, as JSON; a broken one is between the others."""
        columns = COLUMNS[self.source]
        whole = [
            json.dumps(dict(zip(columns, map(_as_text, row), strict=True)), ensure_ascii=False).encode()
            for row in (*self.rows, *self.again)
        ]
        middle = len(whole) // 2
        return [*whole[:middle], *self.broken, *whole[middle:]]

    def content(self) -> bytes:
        """The bytes of the file."""
        if self.source != "plain":
            return b"".join(record + b"\n" for record in self.records())
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS["plain"])
        writer.writerows([_as_text(value) for value in row] for row in self.rows)
        return text.getvalue().encode() + b"".join(record + b"\n" for record in self.broken)

    def to_json(self) -> str:
        return json.dumps(
            {
                "source": self.source,
                "number": self.number,
                "name": self.name,
                "rows": [[_as_text(value) for value in row] for row in self.rows],
                "again": [[_as_text(value) for value in row] for row in self.again],
                "broken": [record.decode("latin-1") for record in self.broken],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Portion:
        value = json.loads(text)
        return cls(
            value["source"],
            value["number"],
            value["name"],
            tuple(_as_row(row) for row in value["rows"]),
            tuple(_as_row(row) for row in value["again"]),
            tuple(record.encode("latin-1") for record in value["broken"]),
        )


@dataclass
class Sent:
    """Everything that was sent so far. `file` keeps it; it is read when the harness goes on."""

    file: Path
    portions: list[Portion] = field(default_factory=list)
    _rows: dict[str, Counter[Row]] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Sent:
        portions = []
        if file.exists():
            portions = [Portion.from_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
        sent = cls(file, portions)
        for portion in portions:
            sent._count(portion)
        return sent

    def _count(self, portion: Portion) -> None:
        # Another thread reads it meanwhile: a multiset that it has stays as it is.
        self._rows[portion.source] = self._rows.get(portion.source, Counter()) + Counter(portion.rows)

    def add(self, portion: Portion) -> None:
        """Keep a portion; only then it may be delivered."""
        with self.file.open("a", encoding="utf-8") as kept:
            kept.write(portion.to_json() + "\n")
        self.portions.append(portion)
        self._count(portion)

    def of(self, source: str) -> Iterator[Portion]:
        return (portion for portion in list(self.portions) if portion.source == source)

    def rows(self, source: str) -> Counter[Row]:
        """The rows that the log table of a source must have, as a multiset: what came again is not among them."""
        return self._rows.get(source, Counter())

    def broken(self, source: str) -> int:
        """The number of records that must be in quarantine."""
        return sum(len(portion.broken) for portion in self.of(source))


class Generator:
    """Makes portions; which ones depends on the seed and on how many there were, never on the clock."""

    def __init__(self, seed: int, sent: Sent) -> None:
        self._seed = seed
        self._sent = sent

    def portion(
        self, source: str, rows: int, *, odd: bool = False, broken: bool = False, again: bool = False
    ) -> Portion:
        """The next portion of a source. Its times go on by some seconds with each, and one row in eight is late."""
        before = list(self._sent.of(source))
        number = len(before)
        chance = random.Random(f"{self._seed}/{source}/{number}")
        now = START + timedelta(seconds=20 * number)
        made = []
        for place in range(rows):
            late = chance.choice([3_600, 300, 90]) if chance.random() < 1 / 8 else 0
            ts = now + timedelta(seconds=chance.randrange(20) - late)
            identity, key, n = f"{source}-{number}-{place}", chance.choice(KEYS), chance.randrange(-1000, 1000)
            op = chance.choice("uuuud")
            made.append((identity, key, op, n, ts) if source == "event" else (identity, key, n, ts))
        # A table without a key has a row as often as it was sent.
        if source == "plain" and made and chance.random() < 0.3:
            made.append(made[0])
        twice: tuple[Row, ...] = ()
        if again and source in KEYED and before:
            old = [row for portion in before[-20:] for row in portion.rows]
            twice = tuple(chance.choice([*old, *made]) for _ in range(3))
        wrong: tuple[bytes, ...] = ()
        if broken:
            wrong = tuple(chance.choice(_BROKEN[source]) for _ in range(chance.randrange(1, 4)))
            if source in KEYED and made and chance.random() < 0.5:
                # A mistake that the sender corrects: the good record of this key comes behind it.
                garbled = dict(zip(COLUMNS[source], map(_as_text, made[-1]), strict=True)) | {"n": "no number"}
                wrong = (*wrong, json.dumps(garbled, ensure_ascii=False).encode())
        name = chance.choice(ODD_NAMES).format(n=number) if odd else f"part-{number:06d}"
        return Portion(source, number, name + (".csv" if source == "plain" else ".json"), tuple(made), twice, wrong)


_BROKEN: Mapping[str, tuple[bytes, ...]] = {
    "event": (
        b"{broken",
        b'{"event_id": "x", "k": "k1", "op": "u", "n": "no number", "ts": "2026-01-01T00:00:00Z"}',
        b'{"event_id": "x", "k": "k1", "op": "u", "n": 1, "ts": "not a time"}',
        b'{"event_id": null, "k": "k1", "op": "u", "n": 1, "ts": "2026-01-01T00:00:00Z"}',
        b'{"event_id": "x", "k": "\xff\xfe", "op": "u", "n": 1',
        b"[1, 2",
        b"\x00\x01\x02",
        b'{"event_id": "' + b"x" * 100_000,
    ),
    "plain": (
        b"x,k1,no number,2026-01-01T00:00:00Z",
        b"x,k1,1,not a time",
        b"x,k1,99999999999999999999999,2026-01-01T00:00:00Z",
    ),
    "paid": (
        b"{broken",
        b'{"paid_id": "x", "k": "k1", "n": "no number", "ts": "2026-01-01T00:00:00Z"}',
        b'{"paid_id": null, "k": "k1", "n": 1, "ts": "2026-01-01T00:00:00Z"}',
        b"\xff\xfe\x00",
        b"",
    ),
}


def _as_text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _as_row(values: list[Any]) -> Row:
    return (*values[:-1], datetime.fromisoformat(values[-1]))

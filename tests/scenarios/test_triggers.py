"""EMIT FINAL .. WHEN: the row of a key is written once, at the first refresh at which the condition is true."""

from __future__ import annotations

import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from freshline.testing import Crash
from tests.scenarios.shop import bag

EVENTS = "id BIGINT, k STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIVE = timedelta(minutes=5)
# Full windows at once, and others when the watermark has passed them by a minute.
EARLY = """CREATE MATERIALIZED TABLE t
FRESHNESS = INTERVAL '10' SECOND
EMIT FINAL WHEN (n >= 3 -- enough
  OR watermark() >= window_end + INTERVAL '1' MINUTE)
AS SELECT window_start, window_end, k AS `the-key`, count(*) AS n, sum(v) AS total
FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '5' MINUTES) -- of five minutes
GROUP BY window_start, window_end, k -- and keys"""

Event = Mapping[str, object]


def event(number: int, key: str | None, value: int, minutes: float | None) -> Event:
    at = None if minutes is None else (START + timedelta(minutes=minutes)).isoformat()
    return {"id": number, "k": key, "v": value, "ts": at}


def drawn_batches(seed: int, count: int) -> list[list[Event]]:
    chance = random.Random(seed)
    batches, number, now = [], 0, 0.0
    for _ in range(count):
        batch = []
        for _ in range(chance.randint(1, 6)):
            number += 1
            now += chance.choice((0, 0.5, 2, 4))
            back = chance.choice((0, 0, 1, 6, 40))
            batch.append(
                event(
                    number,
                    chance.choice(("a", "b", None)),
                    chance.randint(1, 9),
                    chance.choice((None, *[now - back] * 9)),
                )
            )
        batches.append(batch)
    return batches


class Model:
    """The table by definition: a row is taken when it is seen first with its condition true."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.watermark: datetime | None = None
        self.rows: dict[tuple[object, ...], tuple[object, ...]] = {}

    def arrive(self, batch: Sequence[Event]) -> None:
        times = [datetime.fromisoformat(str(row["ts"])) for row in batch if row["ts"] is not None]
        after = [max(times) - timedelta(minutes=1)] if times else []
        self.watermark = max([*after, *([self.watermark] if self.watermark else [])], default=None)
        self.events += batch

    def refresh(self) -> Counter[tuple[object, ...]]:
        groups: dict[tuple[datetime, datetime, object], list[int]] = defaultdict(list)
        for row in self.events:
            if row["ts"] is not None:
                at = datetime.fromisoformat(str(row["ts"]))
                start = START + (at - START) // FIVE * FIVE
                groups[(start, start + FIVE, row["k"])].append(int(str(row["v"])))
        for key, values in groups.items():
            passed = self.watermark is not None and self.watermark >= key[1] + timedelta(minutes=1)
            if key not in self.rows and (len(values) >= 3 or passed):
                self.rows[key] = (len(values), sum(values))
        return Counter((*key, *row) for key, row in self.rows.items())


def shown(lab, name: str) -> Counter[tuple[object, ...]]:
    return bag(lab.rows(name))


@pytest.mark.long
def test_the_row_of_a_key_is_written_once_when_its_condition_is_true(lab) -> None:
    lab.files("ev", EVENTS)
    lab.declare(EARLY)
    model, written = Model(), Counter[tuple[object, ...]]()
    points = ["", "table-pinned", "table-before-commit", "table-writing", "table-after-commit"]
    for number, (batch, point) in enumerate(zip(drawn_batches(24, len(points)), points, strict=True), 1):
        lab.land("ev", f"{number}.json", batch)
        model.arrive(batch)
        assert lab.refresh("ev").error is None
        if point:
            with contextlib.suppress(Crash), lab.crash_at(point):
                lab.refresh("t", upstreams=False)
            lab.restart(lose_control_store=number % 2 == 0)
        result = lab.refresh("t")
        assert result.error is None, result.error
        assert number == 1 or result.strategy in ("append", "noop"), result.reason
        assert shown(lab, "t") == model.refresh()
        assert written <= shown(lab, "t")
        written = shown(lab, "t")
    assert len(written) > 5
    assert any(int(str(row[3])) >= 3 for row in written), "a window that was full before it had passed"
    verified = lab.verify("t")
    assert verified.equal, verified
    seq = lab.receipt("t").seq
    assert lab.refresh("t").strategy == "noop"
    assert lab.receipt("t").seq == seq
    # Computed anew it is another table: the rows as they are now.
    now = Model()
    now.events, now.watermark = model.events, model.watermark
    assert lab.refresh("t", full=True).error is None
    assert shown(lab, "t") == now.refresh()
    assert shown(lab, "t") != written
    assert lab.verify("t").equal
    assert "t__late" not in [str(name) for name in lab.runtime.graph.order]


@pytest.mark.long
def test_time_alone_makes_a_condition_true(lab) -> None:
    lab.files("ev", EVENTS, **{"watermark.idle": "1 minute", "watermark.when-idle": "advance"})
    lab.declare(EARLY)
    lab.land("ev", "1.json", [{"id": 1, "k": "a", "v": 1, "ts": lab.clock().isoformat()}])
    lab.clock.advance(seconds=20)
    lab.tick()
    assert shown(lab, "t") == Counter()
    for _ in range(4):
        lab.clock.advance(minutes=3)
        assert all(each.error is None for each in lab.tick())
    assert sum(shown(lab, "t").values()) == 1
    assert lab.verify("t").equal
    # Where the watermark stands, a refresh computes nothing.
    assert lab.refresh("t", upstreams=False).reason.startswith("NOTHING_NEW")


@pytest.mark.long
def test_when_over_rows_that_change_and_over_lookups(lab) -> None:
    lab.source("orders", "id INT, shop STRING, state STRING")
    lab.source("shop", "name STRING, city STRING")
    lab.declare(
        "CREATE MATERIALIZED TABLE paid (PRIMARY KEY (id), CONSTRAINT known EXPECT (city IS NOT NULL) ON VIOLATION "
        "QUARANTINE) EMIT FINAL WHEN (state = 'paid') AS WITH o AS (SELECT * FROM orders) SELECT o.id, o.state, s.city "
        "FROM o LEFT JOIN shop FOR SYSTEM_TIME AS OF PROCTIME() AS s ON s.name = o.shop"
    )
    lab.sql("INSERT INTO shop VALUES ('a', 'Ulm')")
    lab.sql("INSERT INTO orders VALUES (1, 'a', 'new'), (2, 'a', 'paid'), (NULL, 'a', 'paid')")
    assert lab.refresh("paid").error is None
    assert shown(lab, "paid") == {(2, "paid", "Ulm"): 1, (None, "paid", "Ulm"): 1}
    lab.sql("UPDATE shop SET city = 'Bonn'")
    lab.sql("UPDATE orders SET state = 'paid' WHERE id = 1")
    lab.sql("DELETE FROM orders WHERE id = 2")
    lab.sql("INSERT INTO orders VALUES (3, 'x', 'paid')")
    result = lab.refresh("paid")
    assert (result.strategy, result.reason.split(":")[0], result.rejected) == ("append", "TRIGGERED", 1)
    rows = Counter({(1, "paid", "Bonn"): 1, (2, "paid", "Ulm"): 1, (None, "paid", "Ulm"): 1})
    assert shown(lab, "paid") == rows
    lab.sql("UPDATE orders SET state = 'sent' WHERE id = 1")
    lab.sql("INSERT INTO orders VALUES (NULL, 'a', 'paid'), (4, NULL, NULL)")
    assert lab.refresh("paid").error is None
    assert shown(lab, "paid") == rows
    assert len(lab.quarantine("paid")) == 1
    assert lab.verify("paid").equal
    # Two rows of one key at one refresh: nobody could say which of them is written.
    lab.sql("INSERT INTO orders VALUES (5, 'a', 'paid'), (5, 'a', 'paid')")
    refused = lab.refresh("paid")
    assert refused.error is not None
    assert refused.error.code == "DUPLICATE_KEY"
    assert shown(lab, "paid") == rows


@pytest.mark.long
def test_a_restored_table_and_a_changed_condition(lab) -> None:
    lab.files("ev", EVENTS)
    lab.declare(EARLY)
    model = Model()
    batches = drawn_batches(9, 5)
    for number, batch in enumerate(batches, 1):
        lab.land("ev", f"{number}.json", batch)
        model.arrive(batch)
        assert lab.refresh("t").error is None
        rows = model.refresh()
        if number == 3:
            kept = rows
            lab.create_savepoint("s")
    lab.restore_savepoint("s")
    assert shown(lab, "t") == kept
    assert lab.verify("t").equal
    again = Model()
    for batch in batches[:3]:
        again.arrive(batch)
        again.refresh()
    again.arrive([row for batch in batches[3:] for row in batch])
    assert lab.refresh("t").error is None
    assert shown(lab, "t") == again.refresh()
    assert lab.verify("t").equal
    lab.declare(EARLY.replace("n >= 3", "n >= 4"))
    for start in (None, "now"):
        assert lab.refresh("t", start=start).error.code == "DEFINITION_CHANGED"
    assert lab.refresh("t", full=True).error is None
    assert lab.verify("t").equal
    assert [case.strategy for case in lab.explain("t").cases] == ["append"]
    assert lab.refresh("t", partitions={"n": 3}).error.code == "PARTITION"

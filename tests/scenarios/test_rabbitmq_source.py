"""Streams and queues of a real RabbitMQ, to the tables that read them: nothing is lost and nothing comes twice."""

from __future__ import annotations

import json
import random

import pytest

from freshline.testing import Crash
from tests.crashes import crash
from tests.lanes import few_or_many, long_but

LOG_POINTS = ("log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-writing", "log-after-commit")
POINTS = (*LOG_POINTS, "queue-before-acknowledged")
KINDS = ("classic", "quorum", "stream")


class Source:
    """A stream or queue `s`, what was sent to it, and the table `total` that reads it."""

    def __init__(self, lab, rabbitmq, kind, *, key=False, **more):
        self.lab, self.rabbitmq, self.kind, self.sent = lab, rabbitmq, kind, 0
        self.name = rabbitmq.new_name(kind)
        rabbitmq.declare(self.name, kind)
        options = {"url": "${env:BROKER}", "stream" if kind == "stream" else "queue": self.name, **more}
        if kind != "stream" and not key and "delivery" not in more:
            options["identity"] = "message-id"
        given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        columns = "id INT, PRIMARY KEY (id)" if key else "id INT"
        lab.declare(f"CREATE SOURCE s ({columns}) WITH ('connector' = 'rabbitmq', 'format' = 'json', {given})")

    def send(self, count):
        """So many good messages, and one that is none."""
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        bodies = [json.dumps({"id": number}).encode() for number in numbers]
        self.rabbitmq.send(self.name, [*bodies, b"bad %d" % self.sent], ids=[*map(str, numbers), f"bad {self.sent}"])

    @property
    def ids(self):
        return sorted(row["id"] for row in self.lab.rows("s"))

    @property
    def rejected(self):
        return [bytes(row["raw"]) for row in self.lab.quarantine("s")]


@pytest.fixture(autouse=True)
def broker(rabbitmq, monkeypatch):
    monkeypatch.setenv("BROKER", rabbitmq.url)


@pytest.mark.parametrize("kind", long_but(["classic"], KINDS))
@pytest.mark.parametrize("rounds", few_or_many(3, 60))
def test_killed_at_random_moments_nothing_is_lost_and_nothing_comes_twice(lab, rabbitmq, kind, rounds):
    """The engine is stopped at any point; the long lane kills the broker too."""
    chance = random.Random(f"{kind} {rounds}")
    source, bad = Source(lab, rabbitmq, kind), []
    for turn in range(rounds):
        source.send(chance.randint(1, 30))
        bad.append(b"bad %d" % source.sent)
        point = chance.choice(POINTS) if turn else POINTS[-1]
        with lab.crash_at(point):
            try:
                lab.refresh("s")
            except Crash:
                lab.restart(lose_control_store=chance.random() < 0.3)
        if rounds > 20 and chance.random() < 0.1:
            rabbitmq.kill()
            assert lab.refresh("s").error.code == "BROKER"
            rabbitmq.start()
        if chance.random() < 0.5:
            assert lab.refresh("s").error is None
    assert lab.refresh("s").error is None

    assert source.ids == list(range(source.sent))
    assert sorted(source.rejected) == sorted(bad)
    assert lab.refresh("s").strategy == "noop"
    if kind != "stream":
        lab.restart()
        assert rabbitmq.ready(source.name) == 0


@pytest.mark.parametrize("kind", long_but(["quorum"], KINDS[:2]))
def test_messages_that_are_sent_again_are_left_out_by_key_or_id(lab, rabbitmq, kind):
    source = Source(lab, rabbitmq, kind, key=True, deduplicate="1 second")
    source.send(3)
    crash(lab, "queue-before-acknowledged", "s")
    # Longer than `deduplicate`, which is about what publishers send twice.
    lab.clock.advance(hours=1)
    source.send(1)
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.rows_in, outcome.rows_out, outcome.rejected) == (None, 6, 1, 1)
    assert source.ids == [0, 1, 2, 3]
    assert source.rejected == [b"bad 3", b"bad 4"]


def test_a_source_that_accepts_repeated_rows_has_them(lab, rabbitmq):
    source = Source(lab, rabbitmq, "classic", delivery="at-least-once")
    source.send(2)
    crash(lab, "queue-before-acknowledged", "s")
    lab.refresh("s")

    assert source.ids == [0, 0, 1, 1]
    assert source.rejected == [b"bad 2", b"bad 2"]


@pytest.mark.long
def test_a_batch_whose_commit_failed_is_committed_by_the_next_refresh(lab, rabbitmq):
    """The engine is the same: the batch and its channel are kept, and the broker sends nothing again."""
    source = Source(lab, rabbitmq, "quorum")
    source.send(2)
    with lab.crash_at("log-before-commit"), pytest.raises(Crash):
        lab.refresh("s")
    source.send(1)
    outcome = lab.refresh("s")

    assert (outcome.error, outcome.problems, source.ids) == (None, (), [0, 1, 2])
    assert source.rejected == [b"bad 2", b"bad 3"]
    assert lab.refresh("s").strategy == "noop"


@pytest.mark.long
def test_messages_that_were_delivered_often_are_reported(lab, rabbitmq):
    source = Source(lab, rabbitmq, "quorum", **{"alert.deliveries-above": "2"})
    source.send(1)
    for _ in range(2):
        crash(lab, "log-before-commit", "s")
    outcome = lab.refresh("s")

    assert (outcome.error, source.ids) == (None, [0])
    assert [problem.code for problem in outcome.problems] == ["REDELIVERED"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_message_of_100_megabytes_is_a_row_or_quarantined(lab, rabbitmq, kind):
    source = Source(lab, rabbitmq, kind)
    source.send(1)
    rabbitmq.send(source.name, [b'{"id": 7, "a": "' + b"x" * 100_000_000 + b'"}'], ids=["large"])
    source.send(1)
    outcome = lab.refresh("s")

    assert (outcome.error, source.ids) == (None, [0, 1])
    assert sorted(len(raw) for raw in source.rejected) == [5, 5, 100_000_018]


@pytest.mark.long
def test_a_broker_that_hangs_is_tried_again(lab, rabbitmq):
    source = Source(lab, rabbitmq, "classic")
    source.send(1)
    lab.refresh("s")
    source.send(1)
    with rabbitmq.hanging():
        outcome = lab.refresh("s")
    assert (outcome.error.code, outcome.error.retry_helps) == ("BROKER", True)
    assert lab.refresh("s").error is None
    assert source.ids == [0, 1]

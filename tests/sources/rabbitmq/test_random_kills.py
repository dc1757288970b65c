"""Engines and brokers that are killed at random moments, without Spark: nothing is lost, and nothing comes twice.

The log of this test leaves out what `QueueReader` says is to be compared and is there already, as Spark does it.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import BrokerError
from freshline.sources.reader import ReadRequest
from freshline.testing.crash import Crash
from tests.lanes import few_or_many
from tests.sources.rabbitmq.reading import Log, rows_of
from tests.sources.reading import Host, table_of

ASKED = ReadRequest(Cancellation())


class KilledLog(Log):
    """Stops after a batch was received, committed or acknowledged, as `stops` says, and has each message once."""

    def refresh_until(self, stops):
        reader = self.reader or self.open()
        inspection = reader.inspect(self.position, ASKED)
        while (portion := reader.cut(inspection, self.position)) is not None:
            portion = reader.prepare(None, portion, None, Cancellation())
            if stops == "received":
                reader.finish(None)
                raise Crash(stops)
            self.commits.append(self.kept(portion))
            self.position = portion.after
            reader.finish(None)
            if stops == "committed":
                raise Crash(stops)
            reader.release(portion, seconds=1.0, rejected=0)

    def kept(self, portion):
        known = {digest for commit in self.commits for digest, _ in commit}
        held = getattr(portion, "held", None)
        found = []
        for row in table_of(rows_of(portion)).to_pylist():
            compared = held is not None and (held.may_be_known or row["_freshline_redelivered"])
            if not (compared and row["_freshline_digest"] in known):
                found.append((row["_freshline_digest"], row["value"]))
        return found


@pytest.mark.seconds
@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("rounds", few_or_many(25, 400))
def test_nothing_is_lost_and_nothing_comes_twice(rabbitmq, tmp_path, monkeypatch, kind, rounds):
    monkeypatch.setenv("BROKER", rabbitmq.url)
    chance, sent = random.Random(f"{kind} {rounds}"), 0
    name = rabbitmq.new_name(kind)
    rabbitmq.declare(name, kind)
    option = "stream" if kind == "stream" else "queue"
    log = KilledLog(Host(tmp_path), rabbitmq, {option: name}, columns="id INT, PRIMARY KEY (id)")
    for _ in range(rounds):
        count = chance.choice([0, 1, 3, 40])
        rabbitmq.send(name, [b"%d" % number for number in range(sent, sent + count)])
        sent += count
        try:
            log.refresh_until(chance.choice(["received", "committed", "", ""]))
        except Crash:
            # The engine goes on, or another one begins.
            if chance.random() < 0.6:
                log.close()
        if rounds > 100 and chance.random() < 0.02:
            rabbitmq.stop()
            with pytest.raises(BrokerError):
                log.refresh_until("")
            rabbitmq.start()
            recovered(rabbitmq, log)
    log.close()
    deadline = time.monotonic() + 30
    log.refresh_until("")
    while sum(map(len, log.commits)) < sent and time.monotonic() < deadline:
        log.refresh_until("")

    assert sorted(int(body) for commit in log.commits for _, body in commit) == list(range(sent))
    log.close()
    if kind != "stream":
        assert rabbitmq.ready(name) == 0


def recovered(rabbitmq, log):
    """Wait until a broker that has just started finds its queues."""
    while True:
        with suppress(BrokerError):
            log.refresh_until("")
            return

"""The requests of a refresh of few rows to Spark: so many jobs and calls into the JVM, and not more with time.

None of it depends on how many rows changed, so it is the price of every small refresh. A number that became greater is
a mistake, or a decision that says so here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"
TABLES = {
    "first": (
        f"CREATE MATERIALIZED TABLE first (PRIMARY KEY (k)) WITH ('merge' = 'first_row') {HOURLY} "
        "AS SELECT k, id, n FROM event"
    ),
    "newest": (
        "CREATE MATERIALIZED TABLE newest (PRIMARY KEY (k)) "
        "WITH ('merge' = 'last_row', 'merge.sequence' = 'n', 'merge.tie-breaker' = 'name') "
        f"{HOURLY} AS SELECT k, name, n FROM change"
    ),
    "joined": (
        f"CREATE MATERIALIZED TABLE joined (PRIMARY KEY (id)) {HOURLY} "
        "AS SELECT e.id, e.k, e.n, c.name FROM event e LEFT JOIN newest c ON e.k = c.k"
    ),
    "totals": (
        f"CREATE MATERIALIZED TABLE totals {HOURLY} "
        "AS SELECT name, count(*) AS events, sum(n) AS n FROM joined GROUP BY name"
    ),
    "added": f"CREATE MATERIALIZED TABLE added {HOURLY} AS SELECT id, n + 1 AS n FROM event",
}
# Of each table: the strategy, and the most jobs and calls.
MOST = {
    "event": ("append", 1, 270),
    "change": ("append", 1, 250),
    "first": ("merge", 2, 255),
    "newest": ("merge", 4, 265),
    "joined": ("keys", 6, 475),
    "totals": ("keys", 3, 455),
    "added": ("append", 2, 105),
}


@dataclass(frozen=True)
class Asked:
    """The jobs and calls that a refresh asked of Spark."""

    strategy: str
    jobs: int
    calls: int


@pytest.fixture
def ask(spark, lab, monkeypatch):
    """A function that refreshes a table and returns what that asked of Spark."""
    client = spark.sparkContext._gateway._gateway_client
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    send, calls = client.send_command, []

    def counted(command, *rest, **named):
        # Objects are released whenever Python lets go of them, many at a time.
        if not command.startswith("m\n"):
            calls.append(command)
        return send(command, *rest, **named)

    def refresh(name):
        jobs = scheduler.numTotalJobs()
        with monkeypatch.context() as patch:
            patch.setattr(client, "send_command", counted)
            calls.clear()
            outcome = lab.refresh(name)
            called = len(calls)
        assert outcome.error is None, name
        return Asked(outcome.strategy, scheduler.numTotalJobs() - jobs, called)

    return refresh


def test_a_refresh_of_few_rows_asks_spark_no_more_than_it_did(lab, ask):
    lab.files("event", "id STRING, k STRING, n BIGINT", primary_key=["id"])
    lab.files("change", "k STRING, name STRING, n BIGINT")
    for sql in TABLES.values():
        lab.declare(sql)
    found = {}
    # At the first refresh by keys the query is compared with what the rules read; then it is known.
    for batch in range(4):
        ids = range(batch * 40, batch * 40 + 40)
        lab.land("event", f"{batch}.json", [{"id": f"e{n}", "k": f"k{n % 20}", "n": n} for n in ids])
        changes = [{"k": f"k{n}", "name": f"n{(n + batch) % 5}", "n": batch} for n in range(9)]
        lab.land("change", f"{batch}.json", changes)
        found = {name: ask(name) for name in MOST}
    again = {name: ask(name) for name in MOST}

    assert {name: asked.strategy for name, asked in found.items()} == {name: most[0] for name, most in MOST.items()}
    over = {name: asked for name, asked in found.items() if asked.jobs > MOST[name][1] or asked.calls > MOST[name][2]}
    assert over == {}
    assert {name: (asked.strategy, asked.jobs) for name, asked in again.items()} == dict.fromkeys(MOST, ("noop", 0))
    for name in TABLES:
        assert lab.diff(name) == []

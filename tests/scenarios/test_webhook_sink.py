"""Rows that go out to a webhook, by the engine: a snapshot, changes, stops that repeat posts, and refused rows."""

from __future__ import annotations

import json

import pytest

from freshline.values.names import TableName
from tests.crashes import crash


@pytest.fixture
def hooked(lab, webhook, monkeypatch):
    """A table `big` over `ord`, and a sink `out` of it with two lines a post."""
    monkeypatch.setenv("HOOK", f"{webhook.url}/hook-path")
    monkeypatch.setenv("HOOK_SECRET", "hunter2")
    lab.source("ord", "id INT, amount DECIMAL(10,2), tags ARRAY<STRING>", primary_key=["id"])
    lab.declare("CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS SELECT * FROM ord")
    lab.declare(
        "CREATE SINK out FROM big WITH ('connector' = 'webhook', 'url' = '${env:HOOK}', 'secret' = "
        "'${env:HOOK_SECRET}', 'private-addresses' = 'true', 'rows-per-request' = '2', 'on-reject' = 'quarantine')"
    )
    return lab


def refreshed(lab, **asked):
    outcome = lab.refresh("out", **asked)
    assert outcome.error is None, outcome.error
    return outcome


def state(webhook):
    """The rows of a service that keeps each key of a post once, and follows snapshots."""
    rows: dict[int, dict[str, object]] = {}
    seen: set[int] = set()
    taken: dict[str, bytes] = {}
    for post in webhook.received:
        key = post.headers["Idempotency-Key"]
        if post.answered != 200 or key in taken:
            assert taken.get(key, post.body) == post.body
            continue
        taken[key] = post.body
        for line in map(json.loads, post.body.splitlines()):
            if line["op"] == "begin":
                seen = set()
            elif line["op"] == "upsert":
                rows[line["row"]["id"]] = line["row"]
                seen.add(line["row"]["id"])
            elif line["op"] == "delete":
                rows.pop(line["row"]["id"], None)
            elif line["kind"] == "snapshot":
                rows = {key: row for key, row in rows.items() if key in seen}
    return rows


def test_a_service_has_the_rows_of_the_table_after_each_refresh_and_stop(hooked, webhook):
    lab = hooked
    lab.sql("INSERT INTO ord VALUES (1, 10.50, array('x', NULL)), (2, 20, NULL), (3, 30, array())")
    first = refreshed(lab)
    assert (first.strategy, first.rows_out) == ("full", 3)
    assert state(webhook)[1] == {"id": 1, "amount": "10.50", "tags": ["x", None]}
    assert refreshed(lab).reason.startswith("NOTHING_NEW")
    for number, point in enumerate(
        ("sink-writing", "sink-post-confirmed", "sink-before-commit", "sink-committed", "sink-written"), 4
    ):
        lab.sql(f"INSERT INTO ord VALUES ({number}, {number}, NULL)")
        lab.sql(f"UPDATE ord SET amount = {number} WHERE id = 1")
        lab.sql(f"DELETE FROM ord WHERE id = {number - 2}")
        crash(lab, point, "out")
        # Changed back, and on: what was sent in part must not stay.
        lab.sql("UPDATE ord SET amount = 1 WHERE id = 1")
        refreshed(lab)
        rows = {row["id"]: str(row["amount"]) for row in lab.rows("big")}
        assert {key: row["amount"] for key, row in state(webhook).items()} == rows, point
    # The post, its line that begins, and its row.
    for status in (422, 200, 422):
        webhook.next(status)
    lab.sql("INSERT INTO ord VALUES (20, 2, NULL)")
    outcome = refreshed(lab)
    assert (outcome.error, outcome.rejected) == (None, 1)
    refreshed(lab, full=True)
    assert set(state(webhook)) == {row["id"] for row in lab.rows("big")}
    found = lab.verify("out")
    assert (found.error, found.equal, "cannot be asked" in found.detail) == (None, False, True)
    kept = [file for file in lab.runtime.warehouse.root.rglob("*") if file.is_file()]
    assert not [file for file in kept if b"hunter2" in file.read_bytes() or b"hook-path" in file.read_bytes()]


@pytest.mark.parametrize("point", ["sink-post-confirmed", "sink-rejected-kept", "sink-before-commit", "sink-committed"])
def test_rows_that_are_not_taken_are_set_aside_once_whatever_is_stopped(hooked, webhook, point):
    lab = hooked
    lab.source("texts", "id INT, amount DECIMAL(10,2), note BINARY", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, CAST(note AS STRING) AS note FROM texts"
    )
    refreshed(lab)
    path = lab.runtime.warehouse.rejections(lab.runtime.graph.spec(TableName.parse("out")))

    def set_aside():
        return sorted(row["error"] for row in lab.runtime.spark.read.format("delta").load(str(path)).collect())

    # A text that JSON has not, and behind it a row that the service refuses: the post, its line that begins, its row.
    lab.sql("INSERT INTO texts VALUES (1, 1, X'ff'), (2, 2, X'61')")
    for status in (422, 200, 422):
        webhook.next(status)
    crash(lab, point, "out")
    # Nothing is new, and yet they are not lost.
    refreshed(lab)
    assert set_aside() == ["422", "NOT_UTF8"]
    lab.sql("INSERT INTO texts VALUES (3, 3, X'62')")
    assert refreshed(lab).rejected == 0
    assert set_aside() == ["422", "NOT_UTF8"]
    assert set(state(webhook)) == {3}

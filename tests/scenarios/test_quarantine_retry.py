"""Rejected records are decoded again under another declaration: those that are rows now arrive once, others stay."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from freshline.errors import RequestError
from freshline.ingest import log
from freshline.sources.records import quarantine_schema, quarantined
from freshline.testing import Crash
from tests.lanes import long_but
from tests.scenarios.tables import follow
from tests.scenarios.test_lost_commits import lose_newest

POINTS = ["log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-writing", "log-after-commit"]
ALL = ["CONSTRAINT(small)", "CONSTRAINT(small)", "NOT_JSON", "TOO_LARGE"]
LEFT = ["NOT_JSON", "TOO_LARGE"]
STRICT = ", CONSTRAINT small EXPECT (n < 100) ON VIOLATION QUARANTINE"
DOUBLED = "CREATE MATERIALIZED TABLE doubled FRESHNESS = INTERVAL '1' HOUR AS SELECT id, n * 2 AS n FROM event"


def declare(lab, constraint="", key="", **options):
    given = {"connector": "files", "format": "json", "path": "landing/event", "settle": "0 seconds", **options}
    text = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    columns = "id INT, n INT, came TIMESTAMP METADATA FROM 'ingested_at'"
    lab.declare(f"CREATE SOURCE event ({columns}{key}{constraint}) WITH ({text})")


def ids(rows):
    return [row["id"] for row in rows]


def waiting(lab):
    """The errors of the records that are in quarantine, which the status counts too."""
    found = [row["error"] for row in lab.quarantine("event") if row["retried_in"] is None]
    (status,) = [each for each in lab.status() if str(each.table) == "event"]
    assert status.quarantined == len(found)
    return found


@pytest.fixture
def shop(lab):
    """A log with two good records, two that a constraint rejects, one too long to be kept, and one that is none."""
    declare(lab, STRICT, **{"max-record-bytes": "60"})
    lab.declare(DOUBLED)
    lab.land("event", "1.json", [{"id": 1, "n": 1}, {"id": 2, "n": 200}, {"id": 4, "n": 3, "more": "x" * 60}])
    lab.land("event", "2.json", '{"id": 4\n{"id": 5, "n": 5}\n{"id": 3, "n": 300}\n')
    lab.refresh("doubled")
    assert sorted(waiting(lab)) == ALL
    return lab


def test_a_record_that_is_a_row_now_arrives_once_and_the_rest_stays(shop):
    before = shop.receipt("event")
    same = shop.retry_quarantine("event")
    assert (same.strategy, same.rows_out, same.committed) == ("noop", 0, False)
    assert same.reason.startswith("RETRIED(0 of 3)")
    assert shop.receipt("event") == before

    declare(shop)
    done = shop.retry_quarantine("event")

    assert (str(done.state), done.strategy, done.rows_out, done.rejected) == ("SUCCEEDED", "append", 2, 0)
    assert done.reason.startswith("RETRIED(2 of 3)")
    after = shop.receipt("event")
    assert (after.positions, after.data_timestamp) == (before.positions, before.data_timestamp)
    assert sorted(waiting(shop)) == LEFT
    assert shop.retry_quarantine("event").reason.startswith("RETRIED(0 of 1)")
    shop.land("event", "3.json", [{"id": 6, "n": 600}])
    shop.refresh("doubled")
    doubled = sorted((row["id"], row["n"]) for row in shop.rows("doubled"))
    assert doubled == [(1, 2), (2, 400), (3, 600), (5, 10), (6, 1200)]
    assert shop.diff("doubled") == []


@pytest.mark.parametrize("point", long_but(["log-after-quarantine", "log-after-commit"], POINTS))
def test_stopped_anywhere_it_loses_and_repeats_nothing(shop, point):
    declare(shop)
    with shop.crash_at(point), pytest.raises(Crash):
        shop.retry_quarantine("event")
    shop.restart(lose_control_store=point == "log-after-quarantine")
    shop.land("event", "3.json", [{"id": 6, "n": 600}])
    shop.refresh("event")

    committed = point == "log-after-commit"
    assert sorted(waiting(shop)) == (LEFT if committed else ALL)
    shop.retry_quarantine("event")
    follow(shop, name="doubled")
    assert sorted(ids(shop.rows("event"))) == [1, 2, 3, 5, 6]
    assert sorted(waiting(shop)) == LEFT


@pytest.mark.long
def test_a_log_that_loses_the_commit_has_the_records_in_quarantine_again(shop):
    declare(shop)
    shop.retry_quarantine("event")
    lose_newest(shop, "event")
    shop.restart()
    shop.land("event", "3.json", [{"id": 6, "n": 600}])
    shop.refresh("event")

    assert sorted(waiting(shop)) == ALL
    assert sorted(ids(shop.rows("event"))) == [1, 5, 6]
    assert shop.retry_quarantine("event").rows_out == 2
    follow(shop, name="doubled")
    assert sorted(ids(shop.rows("doubled"))) == [1, 2, 3, 5, 6]


@pytest.mark.long
def test_a_savepoint_of_before_brings_the_records_back_into_quarantine(shop):
    shop.create_savepoint("before")
    declare(shop)
    shop.retry_quarantine("event")
    shop.refresh("doubled")
    shop.create_savepoint("behind")

    shop.restore_savepoint("before")
    assert sorted(waiting(shop)) == ALL
    assert sorted(ids(shop.rows("doubled"))) == [1, 5]
    assert shop.retry_quarantine("event").rows_out == 2
    shop.refresh("doubled")
    assert sorted(ids(shop.rows("doubled"))) == [1, 2, 3, 5]

    shop.restore_savepoint("behind")
    assert sorted(waiting(shop)) == LEFT
    assert shop.retry_quarantine("event").rows_out == 0
    assert sorted(ids(shop.rows("event"))) == [1, 2, 3, 5]


def test_with_a_key_what_is_there_already_leaves_and_what_is_at_odds_stays(lab):
    key = ", PRIMARY KEY (id)"
    declare(lab, STRICT, key)
    lab.land("event", "1.json", [{"id": 1, "n": 100}, {"id": 1, "n": 100}, {"id": 2, "n": 200}, {"id": 3, "n": 300}])
    lab.land("event", "2.json", [{"id": 2, "n": 2}, {"id": 2, "n": 3}])
    lab.refresh("event")
    assert sorted(waiting(lab)) == ["CONSTRAINT(small)"] * 4 + ["KEY_CONFLICT"]

    declare(lab, "", key)
    done = lab.retry_quarantine("event")

    # 1 arrived twice, and 2 is there with another value.
    assert (done.rows_in, done.rows_out) == (3, 2)
    assert [(row["id"], row["n"]) for row in lab.rows("event")] == [(1, 100), (2, 2), (3, 300)]
    assert sorted(waiting(lab)) == ["CONSTRAINT(small)", "KEY_CONFLICT"]


@pytest.mark.long
def test_a_line_of_csv_has_the_fields_of_its_own_file(lab):
    declare(lab, STRICT, format="csv")
    lab.land("event", "1.csv", "id,n\n1,100\n")
    lab.land("event", "2.csv", "n,other,id\n200,x,2\nbroken,x,3\n")
    lab.land("event", "3.csv", "nothing,of,it\n1,2,3\n")
    lab.refresh("event")
    declare(lab, format="csv")

    done = lab.retry_quarantine("event")

    # A file without the declared columns has no records that could be decoded again.
    assert done.reason.startswith("RETRIED(2 of 3)")
    assert sorted((row["id"], row["n"]) for row in lab.rows("event")) == [(1, 100), (2, 200)]
    assert sorted(waiting(lab)) == ["HEADER_MISMATCH", "HEADER_MISMATCH", "NOT_CSV"]


@pytest.mark.long
def test_records_of_before_it_was_kept_where_they_came_from_stay(lab, monkeypatch):
    old = ["_freshline_seq", "file", "line", "raw", "error", "message", "quarantined_at"]

    def schema(spec):
        return StructType([quarantine_schema(spec)[name] for name in old])

    declare(lab, STRICT)
    lab.land("event", "1.json", [{"id": 1, "n": 100}, {"id": 2, "n": 2}])
    with monkeypatch.context() as patched:
        patched.setattr(
            log, "quarantine_schema", lambda spec: StructType([quarantine_schema(spec)[name] for name in old])
        )
        patched.setattr(log, "quarantined", lambda *given: quarantined(*given).select(*old))
        lab.refresh("event")
        assert list(lab.quarantine("event")[0]) == old
    lab.land("event", "2.json", [{"id": 3, "n": 300}])
    lab.refresh("event")
    declare(lab)

    assert lab.retry_quarantine("event").reason.startswith("RETRIED(1 of 1)")
    assert ids(lab.rows("event")) == [2, 3]
    assert waiting(lab) == ["CONSTRAINT(small)"]


def test_a_table_whose_records_cannot_be_decoded_again_is_refused(lab):
    lab.source("s", "id INT")
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM s")
    lab.files("packed", "id INT", format="parquet")
    lab.kafka("feed", "id INT", servers="127.0.0.1:1", topic="x", primary_key=["id"], format="debezium-json")

    for name, said in (("s", "has no records"), ("t", "--full"), ("packed", "another name"), ("feed", "change feed")):
        outcome = lab.retry_quarantine(name)
        assert isinstance(outcome.error, RequestError), name
        assert said in str(outcome.error), name
        assert name in str(outcome.error), name
    lab.files("never", "id INT")
    assert lab.retry_quarantine("never").reason.startswith("RETRIED(0 of 0)")

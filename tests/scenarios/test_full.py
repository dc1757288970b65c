"""Everything computed again: when, and with which reason."""

from __future__ import annotations

import shutil
import time
from functools import partial

import pytest

from freshline.commit.delta_log import newest_version
from freshline.compute.cancellation import Limited
from freshline.errors import DefinitionChangedError, IncrementalError, SourceError
from freshline.refresh import decide, table
from freshline.refresh.cpu import TaskSeconds
from tests.scenarios.tables import HOURLY, declare, fill, follow


@pytest.fixture
def copied(lab):
    """A table that is brought up to date by appends."""
    fill(lab, "s", "id INT", "(1)")
    declare(lab, "SELECT id FROM s")
    first = lab.refresh("t")
    assert first.reason.startswith("NO_RECEIPT")
    lab.sql("INSERT INTO s VALUES (2)")
    assert lab.refresh("t").strategy == "append"
    lab.sql("INSERT INTO s VALUES (3)")
    return lab


def assert_full(lab, reason, **request):
    outcome = lab.refresh("t", **request)
    assert outcome.error is None, outcome.error
    assert outcome.strategy == "full"
    assert outcome.reason.startswith(reason)
    assert lab.diff("t") == []
    # One commit, and afterwards all is as usual.
    assert lab.refresh("t").reason.startswith("NOTHING_NEW")


def test_requested(copied):
    assert_full(copied, "REQUESTED", full=True)


def test_foreign_write(copied):
    copied.runtime.sessions.root.sql(f"DELETE FROM delta.`{copied.path('t')}` WHERE id = 1")
    assert_full(copied, "FOREIGN_WRITE")


def test_upkeep_by_another_is_no_foreign_write(copied):
    copied.runtime.sessions.root.sql(f"OPTIMIZE delta.`{copied.path('t')}`")
    assert copied.refresh("t").strategy == "append"


def test_source_replaced_by_another_table(copied):
    path = copied.path("s")
    shutil.rmtree(path)
    frame = copied.runtime.sessions.root.createDataFrame([(9,)], "id INT")
    frame.write.format("delta").save(str(path))
    assert_full(copied, "SOURCE_REPLACED(s: it has another table id)")
    assert copied.rows("t") == [{"id": 9}]


def test_source_rolled_back(copied):
    log = copied.path("s") / "_delta_log"
    copied.refresh("t")
    for file in log.glob(f"*{newest_version(copied.path('s')):020d}*"):
        file.unlink()
    for file in log.glob(".*.crc"):
        file.unlink()
    assert_full(copied, "SOURCE_REPLACED(s: version 3 was read, the newest is 2)")


def test_source_restored_is_a_change_like_any_other(copied):
    copied.refresh("t")
    follow(copied, "RESTORE TABLE s TO VERSION AS OF 1", by="keys")
    assert copied.rows("t") == [{"id": 1}]


def test_only_readers_of_a_column_that_an_input_gained_are_computed_again(copied):
    declare(copied, "SELECT count(*) AS n FROM t", name="named")
    declare(copied, "SELECT * FROM t", name="star")
    declare(copied, "SELECT id FROM t WHERE id > 0", name="plain")
    for name in ("t", "named", "star", "plain"):
        assert copied.refresh(name).error is None
    # A column that the source does not declare is seen by nobody.
    copied.sql("ALTER TABLE s ADD COLUMNS (more STRING)")
    copied.sql("INSERT INTO s VALUES (4, 'x')")
    assert copied.refresh("t").strategy == "append"
    copied.runtime.sessions.root.sql(f"ALTER TABLE delta.`{copied.path('t')}` ADD COLUMNS (extra STRING)")
    copied.sql("INSERT INTO s VALUES (5, 'y')")

    assert (copied.refresh("plain").strategy, copied.refresh("named").strategy) == ("append", "keys")
    full = copied.refresh("star")
    assert (full.strategy, full.reason.split(":")[:2]) == ("full", ["SCHEMA_CHANGED(t", " new column extra)"])
    assert copied.diff("plain") == copied.diff("named") == copied.diff("star") == []


def test_history_gone_from_the_log(copied):
    copied.sql("INSERT INTO s VALUES (4)")
    copied.runtime.sessions.root.sql(
        f"ALTER TABLE delta.`{copied.path('s')}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    )
    copied.sql("INSERT INTO s VALUES (5)")
    for version in range(4):
        (copied.path("s") / "_delta_log" / f"{version:020d}.json").unlink()
    assert_full(copied, "HISTORY_GONE(s: commit 3 is no longer in its log)")


@pytest.mark.long
def test_history_gone_from_the_disk(lab):
    fill(lab, "s", "id INT, ds STRING", "(1, 'a'), (2, 'b')")
    declare(lab, "SELECT ds, count(*) AS n FROM s GROUP BY ds", "PARTITIONED BY (ds)")
    lab.refresh("t")
    lab.sql("UPDATE s SET ds = 'c' WHERE id = 2")
    shutil.rmtree(lab.path("s") / "_change_data")
    assert_full(lab, "HISTORY_GONE")
    assert lab.rows("t") == [{"ds": "a", "n": 1}, {"ds": "c", "n": 1}]


def test_nondeterministic(lab):
    fill(lab, "s", "id INT", "(1)")
    declare(lab, "SELECT id, uuid() AS u FROM s")
    lab.refresh("t")
    lab.sql("INSERT INTO s VALUES (2)")

    outcome = lab.refresh("t")

    assert outcome.reason.startswith("NONDETERMINISTIC(uuid)")
    assert lab.verify("t").unverified == 2


def test_a_changed_declaration_waits_for_a_full_refresh(copied):
    copied.refresh("t")
    before = copied.rows("t")
    declare(copied, "SELECT id * 2 AS id FROM s")
    copied.sql("INSERT INTO s VALUES (4)")

    failed = copied.refresh("t")

    assert isinstance(failed.error, DefinitionChangedError)
    assert "freshline refresh t --full" in str(failed.error)
    assert copied.sql("SELECT * FROM t ORDER BY id") == before
    assert_full(copied, "REQUESTED", full=True)
    assert copied.rows("t")[-1] == {"id": 8}


def test_layout_and_comments_change_nothing(copied):
    copied.refresh("t")
    copied.declare(
        f"-- words\nCREATE MATERIALIZED TABLE t\n  COMMENT 'words' {HOURLY}\nAS SELECT /* words */ id\nFROM s"
    )

    assert copied.refresh("t").reason.startswith("NOTHING_NEW")


def test_strict_fails_instead_of_computing_everything(lab):
    fill(lab, "s", "id INT", "(1)")
    declare(lab, "SELECT max(id) AS id FROM s", "WITH ('incremental' = 'strict')")
    assert lab.refresh("t").reason.startswith("NO_RECEIPT")
    lab.sql("INSERT INTO s VALUES (2)")
    assert lab.refresh("t").strategy == "keys"
    # The stored value does not say which one is the greatest now.
    lab.sql("DELETE FROM s WHERE id = 2")

    failed = lab.refresh("t")

    assert isinstance(failed.error, IncrementalError)
    assert "NO_KEY" in str(failed.error)
    assert lab.rows("t") == [{"id": 2}]
    assert lab.refresh("t", full=True).state == "SUCCEEDED"
    assert lab.rows("t") == [{"id": 1}]


def test_a_source_that_is_not_there_or_has_other_columns_is_an_error_that_names_it(lab):
    lab.declare("CREATE SOURCE s (id INT, n STRING) WITH ('connector' = 'delta', 'path' = 'nowhere')")
    declare(lab, "SELECT id FROM s")
    with pytest.raises(SourceError, match=r"assets/s.sql:1: there is no Delta table at .*/nowhere"):
        lab.refresh("t")
    lab.source("other", "id INT, n INT")
    lab.declare(f"CREATE SOURCE s (id INT, n STRING) WITH ('connector' = 'delta', 'path' = '{lab.path('other')}')")
    assert "column n is declared string" in str(lab.refresh("t").error)
    lab.declare(f"CREATE SOURCE s (id INT, m INT) WITH ('connector' = 'delta', 'path' = '{lab.path('other')}')")
    assert "has no column m. Its columns are id, n" in str(lab.refresh("t").error)


def test_a_query_that_fails_is_an_error_at_its_line(lab):
    fill(lab, "s", "id INT, v STRING", "(1, 'x')")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS\nSELECT id,\n  CAST(v AS INT) AS n FROM s")

    failed = lab.refresh("t")

    assert failed.error.code == "QUERY"
    assert "assets/t.sql:3" in str(failed.error)
    assert failed.version in (None, 0)
    lab.sql("UPDATE s SET v = '5'")
    assert lab.refresh("t").state == "SUCCEEDED"


@pytest.mark.long
def test_a_full_refresh_that_others_follow_writes_only_what_differs(lab):
    fill(lab, "s", "id INT, n INT", "SELECT id, id FROM range(100)")
    declare(lab, "SELECT id, n, sum(n) OVER (ORDER BY id) AS total FROM s", "(PRIMARY KEY (id))", name="ranked")
    declare(lab, "SELECT total % 2 AS odd, max(n) AS n FROM ranked GROUP BY 1", name="tops")
    lab.refresh("tops")
    lab.sql("UPDATE s SET n = n + 1 WHERE id >= 98")

    ranked = lab.refresh("ranked")
    tops = lab.refresh("tops", upstreams=False)

    assert (ranked.strategy, ranked.rows_out) == ("full", 2)
    assert (tops.strategy, tops.rows_in) == ("keys", 2)
    assert lab.diff("ranked") == lab.diff("tops") == []
    lab.sql("UPDATE s SET n = n + 1 WHERE id >= 10")
    assert lab.refresh("ranked").rows_out == 100
    unchanged = follow(lab, "UPDATE s SET n = n + 0 WHERE id = 1", name="ranked")
    assert (unchanged.strategy, unchanged.rows_out) == ("full", 0)
    assert {outcome.strategy for outcome in lab.refresh_all()} <= {"noop", "keys"}


def test_time_that_passes_on_a_busy_machine_does_not_exceed_the_budget(lab, monkeypatch):
    fill(lab, "s", "id INT, n INT", "SELECT id, id FROM range(100)")
    declare(lab, "SELECT n % 7 AS k, count(*) AS c FROM s GROUP BY 1")
    lab.refresh_all()
    lab.sql("UPDATE s SET n = n + 1 WHERE id < 10")
    monkeypatch.setattr(decide, "budget_of", lambda records, fingerprint, **machine: 20.0)
    monkeypatch.setattr(table, "Limited", partial(Limited, every_seconds=0.02))
    used = []
    seconds = TaskSeconds.used

    def noted(self: TaskSeconds) -> float:
        used.append(seconds(self))
        return used[-1]

    monkeypatch.setattr(TaskSeconds, "used", noted)
    meanwhile = []

    def delay(point: str) -> None:
        if point == "table-before-commit":
            before = len(used) + 1
            deadline = time.monotonic() + 60
            while len(used) < before + 5 and time.monotonic() < deadline:
                time.sleep(0.05)  # the machine is busy with something else
            meanwhile.extend(used[before:])

    lab._failpoint = delay

    assert lab.refresh("t").strategy == "keys"
    # The seconds that it used were read while the clock went on, and did not grow.
    assert len(meanwhile) >= 5
    assert 0 < meanwhile[0] == meanwhile[-1] < 20.0


def test_changes_that_take_too_long_are_given_up_and_everything_is_computed(lab, monkeypatch):
    fill(lab, "s", "id INT, n INT", "SELECT id, id FROM range(100)")
    declare(lab, "SELECT n % 7 AS k, count(*) AS c FROM s GROUP BY 1")
    declare(lab, "SELECT n % 7 AS k, count(*) AS c FROM s GROUP BY 1", "WITH ('incremental' = 'strict')", name="strict")
    assert {outcome.strategy for outcome in lab.refresh_all() if outcome.kind == "table"} == {"full"}
    lab.sql("UPDATE s SET n = n + 1 WHERE id < 10")
    monkeypatch.setattr(decide, "budget_of", lambda records, fingerprint, **machine: 0.001)
    monkeypatch.setattr(table, "Limited", partial(Limited, every_seconds=0.02))

    given_up = lab.refresh("t")
    strict = lab.refresh("strict")

    assert (given_up.strategy, given_up.reason.split(":")[0]) == ("full", "BUDGET_EXCEEDED(0 CPU-s)")
    assert strict.strategy == "keys"
    assert lab.diff("t") == lab.diff("strict") == []

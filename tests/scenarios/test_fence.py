"""Two writers of one table: one wins, the other writes nothing and says so or plans again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from freshline.commit.delta_log import newest_version
from freshline.errors import FencedError
from tests.crashes import another_engine, refresh_by
from tests.delta_log import version_of
from tests.lanes import long_but
from tests.scenarios.tables import declare, fill


@pytest.fixture
def tables(lab):
    fill(lab, "s", "id INT, ds STRING", "(1, 'a')")
    lab.files("ev", "id STRING, k STRING")
    declare(lab, "SELECT id, ds FROM s", name="copied")
    declare(lab, "SELECT ds, count(*) AS n FROM s GROUP BY ds", "PARTITIONED BY (ds)", name="parted")
    declare(lab, "SELECT k, id FROM ev", "(PRIMARY KEY (k)) WITH ('merge' = 'first_row')", name="first")
    lab.land("ev", "1.json", [{"id": "1", "k": "a"}])
    lab.refresh_all()
    lab.sql("INSERT INTO s VALUES (2, 'b')")
    lab.land("ev", "2.json", [{"id": "2", "k": "b"}])
    return lab


@pytest.mark.parametrize("at", long_but(["writing"], ["before-commit", "writing"]))
def test_a_writer_of_an_older_epoch_writes_nothing_and_says_so(tables, at):
    # The old engine has planned and computed; before it commits, the new one commits the same change.
    old = tables.runtime.epoch
    taken: list[str] = []

    def overtaken(point):
        if point in (f"table-{at}", f"log-{at}") and not taken:
            taken.append(point)
            assert refresh_by(another_engine(tables, old + 1), name).committed

    for name in ("ev", "copied", "parted", "first"):
        taken.clear()

        outcome = refresh_by(another_engine(tables, old, overtaken), name)

        assert isinstance(outcome.error, FencedError), name
        assert outcome.error.retry_helps
        version = newest_version(tables.path(name))
        assert refresh_by(another_engine(tables, old + 2), name).committed is False
        assert newest_version(tables.path(name)) == version
    assert len(tables.rows("ev")) == len(tables.rows("first")) == len(tables.rows("copied")) == 2
    for name in ("copied", "parted", "first"):
        assert tables.diff(name) == []


@pytest.mark.long
@pytest.mark.parametrize("at", long_but(["writing"], ["before-commit", "writing"]))
def test_a_writer_of_an_older_epoch_that_is_first_repeats_no_row(tables, at):
    # The new engine has planned and computed; before it commits, the old one wakes up and commits the same change.
    old = tables.runtime.epoch
    taken: list[str] = []

    def wake_up(point):
        if point in (f"table-{at}", f"log-{at}") and not taken:
            taken.append(point)
            assert refresh_by(another_engine(tables, old), name).committed

    for name in ("ev", "copied", "parted", "first"):
        taken.clear()

        assert refresh_by(another_engine(tables, old + 1, wake_up), name).state in ("SUCCEEDED", "FAILED")

        # Where the two wrote in the same moment, the next refresh finds it in their receipts.
        assert refresh_by(another_engine(tables, old + 2), name).error is None
        assert taken
    assert len(tables.rows("ev")) == len(tables.rows("first")) == len(tables.rows("copied")) == 2
    for name in ("copied", "parted", "first"):
        assert tables.diff(name) == []
    assert refresh_by(another_engine(tables, old + 3), "copied").strategy == "noop"


def test_rows_that_others_add_while_a_refresh_is_computed_are_noticed(tables):
    taken: list[str] = []

    def add(point):
        if point == "table-before-commit" and not taken:
            taken.append(point)
            tables.runtime.sessions.root.sql(f"INSERT INTO delta.`{tables.path('copied')}` VALUES (99, 'x')")

    assert refresh_by(another_engine(tables, tables.runtime.epoch, add), "copied").committed
    repaired = refresh_by(another_engine(tables, tables.runtime.epoch), "copied")

    assert repaired.reason.startswith("FOREIGN_WRITE")
    assert tables.diff("copied") == []


def test_a_twin_of_the_same_epoch_is_noticed_and_planned_again(tables):
    taken: list[str] = []

    def overtaken(point):
        if point == "table-before-commit" and not taken:
            taken.append(point)
            assert refresh_by(another_engine(tables, tables.runtime.epoch), "copied").committed

    outcome = refresh_by(another_engine(tables, tables.runtime.epoch, overtaken), "copied")

    # The rows that were asked for are there, whoever wrote them.
    assert (outcome.state, outcome.strategy) == ("SUCCEEDED", "noop")
    assert len(tables.rows("copied")) == 2
    assert tables.diff("copied") == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["copied", "parted", "first"])
def test_twins_that_commit_at_the_same_moment_write_once(tables, name):
    tables.refresh("ev")
    together = threading.Barrier(2, timeout=60)
    told = threading.local()

    def wait_once(point):
        if point == "table-before-commit" and not getattr(told, "waited", False):
            told.waited = True
            together.wait()

    before = version_of(tables.path(name))
    twins = [another_engine(tables, tables.runtime.epoch, wait_once) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(lambda twin: refresh_by(twin, name), twins))

    assert [outcome.error for outcome in outcomes] == [None, None]
    assert sorted(outcome.committed for outcome in outcomes) == [False, True]
    assert newest_version(tables.path(name)) == before + 1
    assert tables.diff(name) == []


def test_a_zombie_that_wakes_up_late_is_skipped_by_the_fence(tables):
    """The zombie's epoch is old, and so is its number: its rows were never in the newest version."""
    copied = tables.refresh("copied")
    tables.sql("INSERT INTO s VALUES (3, 'c')")
    newer = refresh_by(another_engine(tables, tables.runtime.epoch + 5), "copied")
    tables.sql("INSERT INTO s VALUES (4, 'd')")

    zombie = refresh_by(another_engine(tables, tables.runtime.epoch), "copied")

    assert isinstance(zombie.error, FencedError)
    assert newest_version(tables.path("copied")) == newer.version == copied.version + 1
    assert [row["id"] for row in tables.rows("copied")] == [1, 2, 3]


def test_a_new_engine_takes_an_epoch_above_every_table(tables):
    refresh_by(another_engine(tables, 40), "copied")
    tables.restart(lose_control_store=True)

    assert tables.runtime.epoch == 41
    assert tables.refresh("first").state == "SUCCEEDED"

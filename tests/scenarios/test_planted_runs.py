"""The generated refreshes find mistakes of what runs: each of these, planted, is found within a few cases.

Those of the analysis are planted in `tests/query/test_planted_bugs.py`, where DuckDB finds them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from freshline.commit import small, write
from freshline.compute import keys
from freshline.compute.inputs import Pinned, read_inserted
from freshline.compute.keys import INSERT, OP
from freshline.errors import RefreshError
from freshline.refresh import constraint_check, decide, time_partitions
from freshline.refresh.attempt import Attempt
from freshline.refresh.constraint_check import ConstraintCheck
from freshline.strategies.keys import changes
from freshline.strategies.partition import times
from tests.plain_lab import PlainLab
from tests.scenarios.generator import judge
from tests.scenarios.generator.case import draw
from tests.scenarios.generator.judge import Counts, judge_refreshes

MOST_CASES = 12


def without_one_changed_row(real):
    """One changed row of an input is lost."""

    def read(spark, pinned, changes):
        images = real(spark, pinned, changes).localCheckpoint()
        return images.limit(max(images.count() - 1, 0))

    return read


def without_deletes(real):
    """Only inserts are read."""
    return lambda spark, pinned, changes: read_inserted(spark, pinned, changes)


def with_new_snapshot_as_old(real):
    """The old rows are read as they are now."""
    newest: dict[Path, Pinned] = {}

    def read(spark, pinned, *, arrival=False):
        known = newest.get(pinned.path, pinned)
        newest[pinned.path] = max(known, pinned, key=lambda item: item.position.version)
        return real(spark, newest[pinned.path], arrival=arrival)

    return read


def with_plain_equality(real):
    """Keys are matched by `=`, which is never true of NULL."""

    def on(rows, columns):
        named, _ = real(rows, columns)
        return named, [F.col(f"`{name}`") == F.col(f"_freshline_k{n}") for n, name in enumerate(columns)]

    return on


def without_null_among(real):
    """NULL is left out of the values by which rows are searched in a column."""
    return lambda span, column: real(replace(span, null=False), column)


def without_tombstones(real):
    """Rows that go away stay."""
    return lambda *arguments: real(*arguments).where(F.col(OP) != "D")


def without_netting(real):
    """Every row of an affected key is added, and none is taken away."""

    def difference(new, old, found):
        return new.select(F.lit(INSERT).alias(OP), *[F.col(f"`{name}`") for name in old.columns])

    return difference


def with_one_of_equal_rows(real):
    """Of rows that are equal one is kept."""
    return lambda *arguments: real(*arguments).distinct()


def without_updates(real):
    """Rows whose key was there before are taken for unchanged."""
    return lambda schema: F.lit(False)


def without_few_deletes(real):
    """Of a few keys, rows that are gone stay."""
    return lambda *arguments: _but(real(*arguments), keys.DELETE)


def without_few_updates(real):
    """Of a few keys, rows whose key was there before are taken for unchanged."""
    return lambda *arguments: _but(real(*arguments), keys.UPDATE)


def _but(found, op):
    return found if found is None else found.where(keys.OP, op, is_so=False)


def without_fence(real):
    """A write carries no transaction, so a writer that was overtaken writes too."""

    def fenced(rows, path, receipt):
        return rows.write.format("delta").option("userMetadata", receipt.to_json())

    return fenced


def without_looking_at_the_fence(real):
    """A small commit does not ask for the stored transaction."""
    return lambda *arguments, **named: True


def without_first_key(real):
    """One of the affected keys is forgotten."""

    def find(*arguments, **named):
        found = real(*arguments, **named)
        if not isinstance(found, keys.Keys) or found.count == 0:
            return found
        least = found.rows.orderBy(*found.rows.columns).limit(found.count - 1).localCheckpoint()
        return keys.Keys(least, found.columns, found.count - 1, dict.fromkeys(found.columns))

    return find


def with_the_end_inside(real):
    """A time partition has its end, which is the first moment of the next one."""
    return lambda *arguments: real(*arguments).replace(" < ", " <= ")


def without_the_first_moment(real):
    """A time partition lacks the moment that it begins with."""
    return lambda *arguments: real(*arguments).replace(" >= ", " > ")


def without_the_newest_partition(real):
    """The missing partitions end a day too early."""
    return lambda done, fingerprint, start, end: real(done, fingerprint, start, end - timedelta(days=1))


def with_partitions_that_are_not_there(real):
    """A change set brings rows of all times, not only of the partitions that the table has."""
    return property(lambda attempt: None)


def without_judging(real):
    """Rows are written whatever is expected of them."""
    return lambda self, computed, *, again, but=None: computed


def with_unknown_as_met(real):
    """A condition that is NULL counts as true."""

    def violated(constraints):
        met = [F.coalesce(F.expr(f"({each.condition})").cast("boolean"), F.lit(True)) for each in constraints]
        names = [F.when(~good, F.lit(each.name)) for good, each in zip(met, constraints, strict=True)]
        return F.array_compact(F.array(*names))

    return violated


# The bugs and their places; of some, the things that the tables of the cases have more often than others.
BUGS = [
    (changes, "read_net_images", without_one_changed_row, {}),
    (changes, "read_net_images", without_deletes, {}),
    (changes, "read_signed", without_one_changed_row, {"summed": 1.0}),
    (changes, "read_whole", with_new_snapshot_as_old, {}),
    (keys, "_on", with_plain_equality, {}),
    (keys.ValueRange, "text", without_null_among, {}),
    (changes, "difference_by_bag", without_tombstones, {}),
    (changes, "difference_by_key", without_tombstones, {}),
    (changes, "difference_by_bag", without_netting, {}),
    (changes, "difference_by_bag", with_one_of_equal_rows, {}),
    (keys, "_differ", without_updates, {}),
    (changes, "difference_of_few", without_few_deletes, {}),
    (changes, "difference_of_few", without_few_updates, {}),
    (changes, "find_keys", without_first_key, {}),
    (time_partitions, "interval_condition", with_the_end_inside, {"daily": 1.0}),
    (times, "interval_condition", without_the_first_moment, {"daily": 1.0}),
    (decide, "find_gaps", without_the_newest_partition, {"daily": 1.0}),
    (Attempt, "covered", with_partitions_that_are_not_there, {"daily": 1.0}),
    (ConstraintCheck, "rows", without_judging, {"judged": 1.0}),
    (constraint_check, "violated", with_unknown_as_met, {"judged": 1.0}),
    (write, "_fenced", without_fence, {}),
    (small, "_is_above", without_looking_at_the_fence, {"growing": True}),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "name", "plant", "shares"), BUGS, ids=[f"{plant.__name__}-{name}" for _, name, plant, _ in BUGS]
)
def test_a_planted_bug_is_found(spark, monkeypatch, place, name, plant, shares):
    monkeypatch.setattr(place, name, plant(getattr(place, name)))
    fence = plant in (without_fence, without_looking_at_the_fence)
    if fence:
        # Only a writer that was overtaken needs one.
        monkeypatch.setattr(judge, "OVERTAKEN", 1)
    if name in ("difference_by_key", "_differ"):
        # Few keys are compared in the engine's process.
        monkeypatch.setattr(changes, "difference_of_few", lambda *arguments: None)
    if plant is without_fence:
        # This bug is in Spark's writes, so they make all of them.
        monkeypatch.setattr(write, "open_small", lambda *arguments, **named: None)
    # Time partitions come by every strategy. Rows written twice show where they are added: a replacement hides them.
    force = "append" if shares.get("growing") else None if fence else "" if shares.get("daily") else "keys"

    for number in range(MOST_CASES):
        case = draw(7000 + number, tables=5, rounds=3, deep=2, **shares)
        counts = Counts()
        failure = judge_refreshes(case, lambda start: PlainLab(spark, start=start), counts, force=force)
        # A planted bug makes wrong rows, or is refused. A refresh that breaks has found a bug that nobody planted.
        assert failure is None or not failure.detail.startswith(RefreshError.code), failure
        if failure is not None:
            print(f"{plant.__name__} in {name} was found by case {number + 1}: {failure.kind} {failure.detail[:160]}")
            return
    pytest.fail(str(plant.__doc__))

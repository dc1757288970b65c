"""Cancelling interrupts what runs, and whatever registers later."""

from __future__ import annotations

import pytest

from freshline.compute.cancellation import Cancellation, Limited
from freshline.errors import CancelledError


def test_work_is_interrupted_as_often_as_it_is_cancelled():
    told = []
    cancellation = Cancellation()
    cancellation.check()
    cancellation.on_cancel(lambda: told.append("early"))
    cancellation.cancel()
    cancellation.on_cancel(lambda: told.append("late"))
    cancellation.cancel()

    assert told == ["early", "late", "early", "late"]
    assert cancellation.wait(60)
    with pytest.raises(CancelledError):
        cancellation.check()


def test_a_callback_that_is_forgotten_is_not_called():
    told = []

    def interrupt():
        told.append(1)

    cancellation = Cancellation()
    cancellation.on_cancel(interrupt)
    cancellation.forget(interrupt)
    cancellation.cancel()

    assert told == []


def test_a_limit_cancels_when_too_much_was_used_or_the_outer_one_does():
    outer = Cancellation()
    used = iter((0.5, 1.0, 1.5, 2.0))
    with Limited(outer, 1.0, every_seconds=0.01) as small:
        small.count(lambda: next(used))
        assert small.wait(60)
    assert (small.exceeded, outer.cancelled) == (True, False)
    assert next(used) == 2.0
    with Limited(outer, 60.0, every_seconds=0.01) as large:
        large.count(lambda: 0.0)
        outer.cancel()
    assert (large.cancelled, large.exceeded) == (True, False)
    with pytest.raises(CancelledError):
        large.check()


def test_a_limit_counts_what_was_used_and_not_the_time_that_passes():
    with Limited(Cancellation(), 0.01, every_seconds=0.01) as limited:
        limited.count(lambda: 0.0)
        assert not limited.wait(0.3)


def test_a_limit_that_was_left_in_time_does_not_cancel_what_comes_later():
    outer = Cancellation()
    with Limited(outer, 0.05, every_seconds=0.01) as limited:
        limited.count(lambda: 0.0)

    limited.count(lambda: 1.0)
    assert not limited.wait(0.2)
    outer.cancel()
    assert not limited.cancelled

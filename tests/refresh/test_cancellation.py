"""Cancelling interrupts what runs, and whatever registers later."""

from __future__ import annotations

import pytest

from freshline.errors import CancelledError
from freshline.refresh.cancellation import Cancellation, Limited


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


def test_what_is_forgotten_is_not_interrupted():
    told = []

    def interrupt():
        told.append(1)

    cancellation = Cancellation()
    cancellation.on_cancel(interrupt)
    cancellation.forget(interrupt)
    cancellation.cancel()

    assert told == []


def test_a_limit_cancels_when_its_time_is_over_or_the_outer_one_does():
    outer = Cancellation()
    with Limited(outer, 0.01) as short:
        assert short.wait(60)
    assert (short.exceeded, outer.cancelled) == (True, False)
    with Limited(outer, 60) as long:
        outer.cancel()
    assert (long.cancelled, long.exceeded) == (True, False)
    with pytest.raises(CancelledError):
        long.check()


def test_a_limit_that_was_left_in_time_does_not_cancel_what_comes_later():
    outer = Cancellation()
    with Limited(outer, 0.05) as limited:
        pass

    assert not limited.wait(0.2)
    outer.cancel()
    assert not limited.cancelled

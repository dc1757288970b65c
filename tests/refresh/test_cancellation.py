"""Cancelling interrupts what runs, and whatever registers later."""

from __future__ import annotations

import pytest

from freshline.errors import CancelledError
from freshline.refresh.cancellation import Cancellation


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

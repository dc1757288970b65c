"""Stages are recorded for the refresh of one thread, and cost nothing where nobody records them."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from freshline.refresh.stages import Stage, StageRecorder, unrecorded


def recorder() -> StageRecorder:
    ticks = count()
    return StageRecorder(lambda: float(next(ticks)))


def test_a_stage_knows_the_one_around_it():
    stages = recorder()
    with stages.recording() as found:
        with stages.stage("pin"):
            pass
        with stages.stage("compute"), stages.stage("commit"):
            pass

    assert found == [
        Stage("pin", 0.0, 1.0, None, False),
        Stage("compute", 2.0, 5.0, None, False),
        Stage("commit", 3.0, 4.0, 1, False),
    ]


def test_a_stage_that_raises_has_failed():
    stages = recorder()
    with stages.recording() as found, pytest.raises(ValueError, match="x"), stages.stage("pin"):
        raise ValueError("x")

    assert found == [Stage("pin", 0.0, 1.0, None, True)]


def test_another_thread_and_what_is_outside_are_not_recorded():
    stages = recorder()

    def elsewhere() -> None:
        with stages.stage("other"):
            pass

    with stages.recording() as found:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    with stages.stage("later"):
        pass

    assert found == []


def test_a_stage_that_nobody_records_is_always_the_same_object():
    assert unrecorded("pin") is unrecorded("commit")

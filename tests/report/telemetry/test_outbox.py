"""Whoever puts something into an outbox never waits, and the log says once that the other end is away."""

from __future__ import annotations

import logging
import threading
from functools import partial

import pytest

from freshline.errors import DeliveryError
from freshline.report.telemetry import outbox as module
from freshline.report.telemetry.outbox import Outbox


class End:
    """The other end, as a test wants it."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.got: list[str] = []
        self.tried = threading.Semaphore(0)
        self.arrived = threading.Semaphore(0)

    def deliver(self, what: str) -> None:
        trouble = self.trouble
        self.tried.release()
        if trouble is not None:
            raise trouble
        self.got.append(what)
        self.arrived.release()


def hang(over: threading.Event) -> None:
    assert over.wait(20)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.01)


def test_all_that_is_put_arrives_in_order():
    end = End()
    outbox = Outbox("there", end.deliver)
    for number in range(100):
        outbox.put(partial(str, number))
    outbox.close(20)

    assert end.got == [str(number) for number in range(100)]


def test_an_end_that_is_away_is_said_once_and_gets_what_waited_when_it_is_back(caplog):
    end = End()
    end.trouble = DeliveryError("localhost cannot be reached: Connection refused.")
    outbox = Outbox("there", end.deliver)
    with caplog.at_level(logging.INFO):
        for number in range(3):
            outbox.put(partial(str, number))
        for _ in range(5):
            assert end.tried.acquire(timeout=20)
        end.trouble = None
        for _ in range(3):
            assert end.arrived.acquire(timeout=20)
        outbox.close(20)

    assert sorted(end.got) == ["0", "1", "2"]
    said = [record.getMessage() for record in caplog.records]
    away = [line for line in said if "cannot be reached" in line]
    assert len(away) == 1
    assert away[0].startswith(
        "there cannot be reached: localhost cannot be reached: Connection refused. Up to 1000 are"
    )
    assert [line for line in said if "again" in line] == ["there is reached again; 0 were lost meanwhile"]


def test_an_event_that_an_end_refuses_is_left_out_and_the_next_goes_on(caplog):
    end = End()
    end.trouble = DeliveryError("localhost answered 400.", status=400)
    outbox = Outbox("there", end.deliver)
    outbox.put(lambda: "bad")
    assert end.tried.acquire(timeout=20)
    end.trouble = None
    outbox.put(lambda: "good")
    outbox.close(20)

    assert end.got == ["good"]
    assert "refused" in caplog.text


def test_a_mistake_in_one_thing_keeps_no_other(caplog):
    end = End()
    outbox = Outbox("there", end.deliver)
    outbox.put(lambda: str(1 / 0))
    outbox.put(lambda: "good")
    outbox.close(20)

    assert end.got == ["good"]
    assert "ZeroDivisionError" in caplog.text


def test_the_number_that_waits_is_bounded_and_the_oldest_go():
    end = End()
    end.trouble = DeliveryError("away")
    outbox = Outbox("there", end.deliver, most=10)
    for number in range(1_000):
        outbox.put(partial(str, number))
    end.trouble = None
    outbox.close(20)

    assert len(end.got) <= 11
    assert end.got[-1] == "999"


def test_closing_waits_for_no_end_that_hangs():
    over = threading.Event()
    outbox = Outbox("there", lambda _: hang(over))
    outbox.put(lambda: "one")
    outbox.close(0.1)
    over.set()

"""The button that refreshes a table, against an engine whose answers a test gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from freshline.dagster.webserver.refreshes import MOST_AT_ONCE, Refreshes
from freshline.errors import EngineError, FreshlineError, RequestError
from freshline.values.names import TableName

SPEND = TableName.parse("shop.spend")


class Scripted:
    """Answers each request with the same events, the last of them when it is let go."""

    def __init__(self, *events: dict[str, Any], waits: bool = False) -> None:
        self.events, self.asked = events, list[dict[str, Any]]()
        self.let_go = threading.Event()
        if not waits:
            self.let_go.set()

    def run(self, kind: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        self.asked.append({"kind": kind, **arguments})
        self.let_go.wait(60)
        yield from self.events


def outcome(**values: Any) -> dict[str, Any]:
    known = {"table": "shop.spend", "state": "SUCCEEDED", "strategy": "keys", "reason": "AFFECTED_KEYS: 3 keys"}
    return {"type": "outcome", "outcome": {**known, **values}}


DONE = {"type": "done", "state": "SUCCEEDED"}


def test_a_quick_refresh_is_answered_with_what_came_of_it():
    engine = Scripted(outcome(), DONE)

    assert Refreshes(lambda: engine, 60).ask(SPEND) == "shop.spend: keys, AFFECTED_KEYS: 3 keys"
    (asked,) = engine.asked
    assert (asked["kind"], asked["tables"], asked["upstreams"]) == ("refresh", ["shop.spend"], False)


def test_a_long_one_is_followed_after_the_answer_and_not_asked_for_twice():
    engine = Scripted(outcome(), DONE, waits=True)
    refreshes = Refreshes(lambda: engine, 0.01)

    assert refreshes.ask(SPEND).startswith("requested: shop.spend")
    with pytest.raises(RequestError, match="already"):
        refreshes.ask(SPEND)
    for number in range(1, MOST_AT_ONCE):
        refreshes.ask(TableName.parse(f"t{number}"))
    with pytest.raises(RequestError, match="Wait until one has ended"):
        refreshes.ask(TableName.parse("one_more"))
    engine.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "refresh shop.spend":
            thread.join(60)
    assert "keys" in Refreshes(lambda: engine, 60).ask(SPEND)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([outcome(state="FAILED", error={"code": "QUERY", "message": "no column <b>x</b>"}), DONE], "<b>x</b>"),
        ([{"type": "done", "state": "FAILED", "error": {"code": "REQUEST", "message": "no such table"}}], "no such"),
        ([{"type": "done", "state": "CANCELLED"}], "without an outcome for shop.spend"),
    ],
)
def test_a_refresh_that_fails_is_an_error_with_the_sentence_of_the_engine(events, said):
    with pytest.raises(FreshlineError, match=said):
        Refreshes(lambda: Scripted(*events), 60).ask(SPEND)


def test_an_engine_that_is_not_there_is_an_error():
    def connect() -> Scripted:
        raise EngineError("no engine is running.")

    with pytest.raises(EngineError, match="no engine is running"):
        Refreshes(connect).ask(SPEND)

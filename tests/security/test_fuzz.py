"""Any input is read, or refused with a documented error, in time: grammars, protocols and files that need no Spark."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import seed as hypothesis_seed
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from freshline.errors import FormatError, FreshlineError, RequestError
from tests.security.conftest import COVERED
from tests.security.fuzz import CASES, Target, cases_of, documented, hunt, mutated_json, try_input
from tests.security.targets import BODIES, PORT, RECEIPTS, TARGETS, TOKEN, read_engine_request, read_receipt

pytestmark = pytest.mark.security

BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.seconds
@pytest.mark.parametrize("name", BY_NAME)
def test_any_input_is_read_or_refused(name: str, inputs: int, seed: int, record_property: Any) -> None:
    target = BY_NAME[name]
    found = hunt(target, max(1, round(inputs * target.share)), seed)
    record_property(COVERED, f"{found}")

    assert not found.findings, f"FRESHLINE_SEED={seed}\n" + "\n".join(str(each) for each in found.findings)
    # A fuzzer whose inputs are all refused at the first word tries nothing.
    assert found.accepted, f"none of {found.inputs} inputs was accepted"


def test_the_shares_of_the_targets_are_a_whole() -> None:
    assert sum(target.share for target in TARGETS) == pytest.approx(1.0)
    assert len(BY_NAME) == len(TARGETS)


def test_kept_cases_are_of_a_target() -> None:
    assert {file.stem for file in CASES.glob("*.jsonl")} <= set(BY_NAME)
    assert sum(len(cases_of(name)) for name in BY_NAME) >= 20


# -- with hypothesis, which makes values that no correct input is near to

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def with_value(chance: random.Random, value: object, new: object) -> str:
    """A correct value of JSON in which one place has another value."""
    assert isinstance(value, dict)
    return json.dumps({**value, chance.choice(sorted(value)): new})


def answered(read: Any, text: str) -> None:
    code = None
    try:
        read(text)
    except FreshlineError as error:
        code = error.code
    assert code is None or code in documented()


@pytest.mark.seconds
def test_any_value_in_a_receipt_is_read_or_refused(inputs: int, seed: int, record_property: Any) -> None:
    count = max(50, inputs // 100)

    @hypothesis_seed(seed)
    @hypothesis_settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(VALUES, st.integers(0, 2**32))
    def run(value: object, number: int) -> None:
        chance = random.Random(number)
        answered(read_receipt, with_value(chance, chance.choice(RECEIPTS), value))

    run()
    record_property(COVERED, f"{count:,} values by hypothesis")


@pytest.mark.seconds
def test_any_value_in_a_request_is_answered(inputs: int, seed: int, record_property: Any) -> None:
    count = max(50, inputs // 100)

    @hypothesis_seed(seed)
    @hypothesis_settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(VALUES, st.integers(0, 2**32), st.text(max_size=30))
    def run(value: object, number: int, path: str) -> None:
        chance = random.Random(number)
        headers = [["host", f"127.0.0.1:{PORT}"], ["authorization", f"Bearer {TOKEN}"]]
        asked = {"method": "POST", "path": "/requests", "query": "", "headers": headers}
        body = with_value(chance, chance.choice(BODIES), value) if chance.random() < 0.8 else json.dumps(value)
        answered(read_engine_request, json.dumps({**asked, "body": body}))
        answered(read_engine_request, json.dumps({**asked, "path": f"/{path}", "method": "GET", "body": ""}))

    run()
    record_property(COVERED, f"{2 * count:,} requests by hypothesis")


# -- the fuzzer itself


def refuses(text: str) -> None:
    if "bad" in text:
        raise ValueError(text)
    if "worse" in text:
        raise FormatError("no")
    if "loop" in text:
        while True:
            pass


def test_a_finding_is_as_short_as_it_can_be_and_kept_for_the_next_run(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.security.fuzz.CASES", tmp_path)
    monkeypatch.setattr("tests.security.fuzz.KEPT", tmp_path)
    texts = ("fine", "not worse", "something bad in a long text", "another bad one")
    target = Target("own", lambda chance: chance.choice(texts), refuses, 1.0)
    found = hunt(target, 60, 1)

    assert [finding.text for finding in found.findings] == ["bad"]
    assert found.refused["FORMAT"] > 0
    assert cases_of("own") == ["bad"]
    assert hunt(target, 0, 2).findings[0].text == "bad"


def test_a_hang_and_an_unknown_code_are_findings() -> None:
    class Unknown(RequestError):
        code = "NOT_IN_THE_DOCS"

    def unknown(_text: str) -> None:
        raise Unknown("why")

    assert try_input(Target("own", str, refuses, 1.0, 0.2), "loop")[1] == "it took more than 0.2 CPU-seconds"
    assert try_input(Target("own", str, unknown, 1.0), "x")[1] == "the code NOT_IN_THE_DOCS is not documented"


def test_inputs_follow_from_the_seed_and_their_number() -> None:
    target = BY_NAME["receipts"]

    assert target.make(random.Random("receipts 1 5")) == target.make(random.Random("receipts 1 5"))
    assert mutated_json(random.Random(1), BODIES[0]) != mutated_json(random.Random(2), BODIES[0])

"""Few rows are computed without compiling, many with adaptive execution, and what was set by hand stays."""

from __future__ import annotations

import pytest

from freshline.compute.execution import FEW_ROWS, MANY_ROWS, suited_to

COMPILED, FACTORY, ADAPTIVE = (
    "spark.sql.codegen.wholeStage",
    "spark.sql.codegen.factoryMode",
    "spark.sql.adaptive.enabled",
)


@pytest.fixture
def session(spark):
    """A session of its own, with what an engine's has."""
    session = spark.newSession()
    for name, value in ((COMPILED, "true"), (FACTORY, "FALLBACK"), (ADAPTIVE, "false")):
        session.conf.set(name, value)
    return session


def confs(session):
    return [session.conf.get(name) for name in (COMPILED, FACTORY, ADAPTIVE)]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], ["false", "NO_CODEGEN", "false"]),
        ([FEW_ROWS // 2, FEW_ROWS // 2], ["false", "NO_CODEGEN", "false"]),
        ([FEW_ROWS, 1], ["true", "FALLBACK", "false"]),
        ([None], ["true", "FALLBACK", "false"]),
        ([MANY_ROWS], ["true", "FALLBACK", "false"]),
        ([1, MANY_ROWS + 1], ["true", "FALLBACK", "true"]),
    ],
)
def test_the_number_of_rows_decides(session, counts, expected):
    before = confs(session)

    with suited_to(session, counts):
        assert confs(session) == expected
    assert confs(session) == before


def test_it_is_put_back_after_an_error_and_leaves_what_was_set_by_hand(session):
    session.conf.set(FACTORY, "CODEGEN_ONLY")
    session.conf.set(ADAPTIVE, "true")

    seen = []

    def fail():
        with suited_to(session, [1]):
            seen.extend(confs(session))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == ["false", "CODEGEN_ONLY", "true"]
    assert confs(session) == ["true", "CODEGEN_ONLY", "true"]


def test_a_step_within_is_executed_as_suits_its_own_tables(session):
    session.conf.set(ADAPTIVE, "true")
    few, many = ["false", "NO_CODEGEN", "true"], ["true", "FALLBACK", "true"]
    seen = []
    with suited_to(session, [1]):
        with suited_to(session, [MANY_ROWS + 1]):
            seen.append(confs(session))
            with suited_to(session, [1]):
                seen.append(confs(session))
        seen.append(confs(session))
    seen.append(confs(session))

    assert seen == [many, few, few, many]


def test_a_step_within_does_not_compile_where_somebody_said_that_nothing_is_compiled(session):
    session.conf.set(COMPILED, "false")
    with suited_to(session, [1]), suited_to(session, [MANY_ROWS]):
        assert confs(session) == ["false", "FALLBACK", "false"]
    assert confs(session) == ["false", "FALLBACK", "false"]

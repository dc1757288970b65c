"""Which cases of one claim are run by `make test`; the other ones are in the long lane."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from freshline.testing.claims import claims_of


def long_but(kept: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`, of which all but `kept` are in the long lane; tuples have a value for each argument.

    Raises ValueError for one that is kept and is no case.
    """
    kept, cases = list(kept), list(cases)
    unknown = [each for each in kept if each not in cases]
    if unknown:
        raise ValueError(f"no such case: {unknown}")
    return [case if case in kept else _long(case) for case in cases]


def few_or_many(few: Any, many: Any) -> list[Any]:
    """The sizes of a claim about random cases for `parametrize`: few in `make test`, many in the long lane."""
    return [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.long)]


def all_but(kept: Iterable[str], suite: type[Any]) -> frozenset[str]:
    """The claims of a suite for `in_long_lane`, without these. Raises ValueError for a name that is no claim of it."""
    kept, names = frozenset(kept), frozenset(claims_of(suite))
    if unknown := sorted(kept - names):
        raise ValueError(f"no such claim: {unknown}")
    return names - kept


def is_in_long_lane(item: pytest.Item) -> bool:
    """Whether the class of a test names it in `in_long_lane`: a claim of its base that others have in `make test`.

    Raises pytest.UsageError for a name that is no claim of the class.
    """
    of_class = getattr(item, "cls", None)
    names: frozenset[str] = getattr(of_class, "in_long_lane", frozenset())
    unknown = sorted(name for name in names if not hasattr(of_class, name))
    if unknown:
        raise pytest.UsageError(f"{of_class} has no {', '.join(unknown)}")
    return getattr(item, "originalname", None) in names


def _long(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)

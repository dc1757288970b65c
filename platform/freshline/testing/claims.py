"""Claims that an extension must fulfil: methods whose names are sentences, run one by one without a test runner.

A class of claims is a class of tests too, for those who use pytest: `lab`, `system` and `tmp_path` are its fixtures.
Nothing here needs pytest, and no check is an `assert`, which `python -O` leaves out.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from freshline.testing.lab import Lab

SECRET = "hunter2-is-the-secret"
_BEGIN = "test_"


class ClaimError(AssertionError):
    """One claim failed; the message has what was found and what should have been."""


class ClaimsError(AssertionError):
    """Claims that failed for an extension. `broken` has the error of each by the name of the claim."""

    def __init__(self, title: str, broken: Mapping[str, Exception], tried: int) -> None:
        self.broken = dict(broken)
        told = "\n".join(f"- {_sentence(name)}: {_told(error)}" for name, error in broken.items())
        super().__init__(f"{len(broken)} of {tried} claims do not hold for {title}:\n{told}")


class ClaimSubject:
    """The thing that claims are about, made anew for each of them.

    It has no secret, and nothing to close, unless it says so.
    """

    secret: ClassVar[str] = ""
    # The environment variable to which the option for a secret refers.
    secret_variable: ClassVar[str]

    def held(self, secret: str) -> str:
        """The text that the option for a secret stands for, which contains the secret."""
        return secret

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables that are set while a claim is tried."""
        return {self.secret_variable: self.held(SECRET)} if self.secret else {}

    def close(self) -> None:
        """Let go of all that was opened; called after each claim, whether it failed or not."""


def require(found: object, wanted: object, about: str) -> None:
    """Raise ClaimError where a value is another one than it should be."""
    if found != wanted:
        raise ClaimError(f"{about}: found {found!r}, and it should be {wanted!r}")


def require_that(holds: object, sentence: str) -> None:
    """Raise ClaimError with this sentence where the condition is false."""
    if not holds:
        raise ClaimError(sentence)


@dataclass
class Refused:
    """The error that was raised, None before."""

    error: Any = None


@contextmanager
def refused(kind: type[BaseException], about: str = "") -> Iterator[Refused]:
    """Expect an error of this kind, whose text contains `about`. Raises ClaimError where there is none."""
    found = Refused()
    try:
        yield found
    except kind as error:
        found.error = error
    if found.error is None:
        raise ClaimError(f"nothing was refused, where {kind.__name__} was expected")
    require_that(about in str(found.error), f"the error does not say {about!r}: {found.error}")


@contextmanager
def environment(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable, or remove it, and put it back afterwards."""
    before = os.environ.get(name)
    _put(name, value)
    try:
        yield
    finally:
        _put(name, before)


def claims_of(suite: type[Any]) -> tuple[str, ...]:
    """The names of the claims of a class, those of its bases first."""
    found = {name: None for each in reversed(suite.__mro__) for name in vars(each) if name.startswith(_BEGIN)}
    return tuple(found)


def run_claims(
    suite: type[Any],
    make: Callable[[Lab], ClaimSubject],
    title: str,
    *,
    spark: SparkSession | None = None,
    leave_out: Collection[str] = (),
) -> None:
    """Try each claim in a Lab of its own; raises as `try_claims`."""
    try_claims(suite, title, lambda name: _try_in_lab(suite, name, make, spark), leave_out=leave_out)


def try_claims(
    suite: type[Any], title: str, try_claim: Callable[[str], None], *, leave_out: Collection[str] = ()
) -> None:
    """Try each claim of a class by its name. Raises ClaimsError once all were tried and some failed.

    Raises ValueError for a claim to be left out that is none.
    """
    names = claims_of(suite)
    if unknown := sorted(set(leave_out) - set(names)):
        raise ValueError(f"{', '.join(unknown)} is no claim here. The claims are: {', '.join(names)}.")
    tried = [name for name in names if name not in leave_out]
    broken: dict[str, Exception] = {}
    for name in tried:
        try:
            try_claim(name)
        except Exception as error:  # noqa: BLE001 - an extension may raise anything, and each claim is tried
            broken[name] = error
    if broken:
        raise ClaimsError(title, broken, len(tried)) from ExceptionGroup("claims", list(broken.values()))


def _try_in_lab(suite: type[Any], name: str, make: Callable[[Lab], ClaimSubject], spark: SparkSession | None) -> None:
    claim = getattr(suite(), name)
    with Lab(spark) as lab, tempfile.TemporaryDirectory(prefix="freshline-claim-") as folder:
        system = make(lab)
        with ExitStack() as stack:
            stack.callback(system.close)
            for variable, value in system.variables.items():
                stack.enter_context(environment(variable, value))
            given = {"lab": lab, "system": system, "tmp_path": Path(folder)}
            claim(**{each: given[each] for each in inspect.signature(claim).parameters})


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _sentence(name: str) -> str:
    return name.removeprefix(_BEGIN).replace("_", " ")


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ClaimError) else f"{type(error).__name__}: {error}"

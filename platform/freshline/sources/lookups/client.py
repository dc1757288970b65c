"""The client of a lookup: asks a system outside for the rows of keys.

A client knows how one request is made. How many are open at once, how often one is repeated and when to give up is
decided by whoever asks (`freshline.sources.lookups.ask`), alike for all systems.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from freshline.values.extension import Extension

# The values of the columns of PRIMARY KEY, in its order, as Python has them. None of them is None.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """The answer to a key: `row` has the values by the declared columns beside the key, None where there is no row.

    `failed` says why the answer is none, empty for an answer; it has nothing that is secret. `away`: the system gave
    none at all, and another time it may.
    """

    row: Mapping[str, Any] | None = field(default_factory=dict)
    failed: str = ""
    away: bool = False


NO_ROW = Answer(None)


class AwayError(Exception):
    """A system that gave no answer and may give one soon; the text is the end of a sentence about it.

    `wait_seconds` is how long it wants to be left alone, None where it does not say. A method of a client that raises
    this is asked again.
    """

    is_expected_of_extensions = True

    def __init__(self, why: str, *, wait_seconds: float | None = None) -> None:
        super().__init__(why)
        self.wait_seconds = wait_seconds


class ClientHost(Protocol):
    """The part of the engine that a client may use."""

    @property
    def root(self) -> Path:
        """The folder of the project."""


class LookupClient(Extension, ABC):
    """Asks one system. Its methods are called in several threads at once, so each has a connection of its own.

    `most_keys` is how many keys one request may have.
    """

    most_keys: ClassVar[int] = 1

    @abstractmethod
    def ask(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """The answers to these keys, one for each, in their order.

        Raises AwayError, and SourceErrors for what asking again does not help with.
        """

    def close(self) -> None:
        """Let go of the connections of all threads."""

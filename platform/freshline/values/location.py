"""The place where something was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Location:
    """A line of a file; `path` is relative to the project's root, `line` counts from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Written(Generic[T]):
    """A value and the line of the file on which it stands."""

    value: T
    line: int

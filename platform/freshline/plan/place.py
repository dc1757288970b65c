"""A place in the changes of a table, as somebody who follows it keeps it: how far all was read, to the part.

A version whose rows or changes are many is sent in parts. Whoever got some of them goes on with the next one, so the
place has their number. It also has marks of the table and of the commit: versions have the same numbers in a table that
was made anew, and in one whose log lost its newest commits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_TEXT = re.compile(r"(\d{1,18})-([0-9a-f]{8})-([0-9a-f]{16})(?:-(rows|changes)-(\d{1,9})-([0-9a-f]{8}))?\Z")


class Portion(StrEnum):
    """The parts of a version that are being read: all its rows, or its changes."""

    ROWS = "rows"
    CHANGES = "changes"


@dataclass(frozen=True)
class Within:
    """So many parts of the rows or changes of a version were read; `mark` is that of these parts."""

    portion: Portion
    parts: int
    mark: str


@dataclass(frozen=True)
class FollowedPlace:
    """Everything up to `version` was read, or with `within` only some parts of this version, and all before it.

    `table` and `commit` are marks of the table and of the commit of the version, empty where they are not known.

    >>> str(FollowedPlace(12, "1f0c9a3b", "e2d47705aa01b2c3"))
    '12-1f0c9a3b-e2d47705aa01b2c3'
    >>> FollowedPlace.parse("13-1f0c9a3b-a2d47705aa01b2c3-changes-4-00c0ffee").within
    Within(portion=<Portion.CHANGES: 'changes'>, parts=4, mark='00c0ffee')
    >>> FollowedPlace.parse("12").commit
    ''
    """

    version: int
    table: str = ""
    commit: str = ""
    within: Within | None = None

    @property
    def read_up_to(self) -> int:
        """The version whose changes, and all before them, were read: -1 where the first ones were not."""
        return self.version - 1 if self.within is not None and self.within.portion is Portion.CHANGES else self.version

    def __str__(self) -> str:
        parts = [str(self.version), self.table, self.commit]
        if self.within is not None:
            parts += [self.within.portion, str(self.within.parts), self.within.mark]
        return "-".join(parts)

    @classmethod
    def parse(cls, text: str) -> FollowedPlace:
        """The place of a text; the number of a version alone is one too. Raises ValueError."""
        if re.fullmatch(r"\d{1,18}", text):
            return cls(int(text))
        found = _TEXT.match(text)
        if found is None:
            raise ValueError(f"{text[:80]!r} is no position. Give the `id` of an event, or the number of a version.")
        version, table, commit, portion, parts, mark = found.groups()
        within = None if portion is None else Within(Portion(portion), int(parts), mark)
        return cls(int(version), table, commit, within)


def mark_of_table(table_id: str) -> str:
    """The mark of a table, by its id."""
    return hashlib.sha256(table_id.encode()).hexdigest()[:8]


def mark_of_parts(columns: Sequence[str], key: Sequence[str], cut: str) -> str:
    """The mark of parts with these columns, whose rows are paired by this key, and which are cut in this way."""
    return hashlib.sha256("\x00".join([*columns, "", *key, "", cut]).encode()).hexdigest()[:8]

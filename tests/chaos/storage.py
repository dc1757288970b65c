"""Tables as a reader sees them who knows Delta's log and nothing of freshline.

Commits are read from the files of the log, rows by delta-rs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.chaos.sent import Row


@dataclass(frozen=True)
class Commit:
    """One version of a table, with the receipt that the commit carries, None where it has none."""

    version: int
    receipt: Mapping[str, Any] | None

    @property
    def moves_rows(self) -> bool:
        """Whether it is a refresh's own commit, and not one that carries a receipt on."""
        return self.receipt is not None and not self.receipt.get("maintenance", False)


def versions(table: Path) -> list[int]:
    """The versions whose commits are in the log, in their order."""
    return sorted(int(file.stem) for file in (table / "_delta_log").glob("*.json") if file.stem.isdigit())


def read_commit(table: Path, version: int) -> Commit:
    """Read one commit. Raises OSError where it is not there, ValueError where it is no commit."""
    text = (table / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    for line in text.splitlines():
        information = json.loads(line).get("commitInfo")
        if information is not None:
            said = information.get("userMetadata")
            return Commit(version, json.loads(said) if said else None)
    return Commit(version, None)


def committed_at(table: Path, version: int) -> float:
    """When the file of a commit was written, in seconds of the wall clock. Raises OSError where it is not there."""
    return (table / "_delta_log" / f"{version:020d}.json").stat().st_mtime


def read_rows(table: Path, columns: Sequence[str], version: int | None = None) -> list[Row]:
    """The rows of a version, or of the newest one; times are aware and in UTC."""
    found = DeltaTable(str(table), version=version).to_pyarrow_table(columns=list(columns))
    return [tuple(map(_plain, row)) for row in zip(*(found.column(name).to_pylist() for name in columns), strict=True)]


def read_bag(table: Path, columns: Sequence[str]) -> Counter[Row]:
    """The same as a multiset: a row that is there twice counts twice."""
    return Counter(read_rows(table, columns))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value

"""The answers of the engine as values for programs: a verification, a restore, rows. A refresh has `values/result.py`.

The fields are the keys of the objects that `freshline refresh --json` and its like print, so an answer reads the same
in Python and in a shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from freshline.errors import UNREADABLE, EngineError
from freshline.values.json import from_json

T = TypeVar("T")


@dataclass(frozen=True)
class VerifyResult:
    """How a stored table differs from a recompute of its query.

    `missing` rows are in the recompute only, `extra` rows in the table only, `unverified` rows could not be recomputed.
    `samples` are some of the differing rows. `partitions` are those that were compared, none for all of the table.
    `error` says why nothing could be compared.
    """

    table: str
    equal: bool
    missing: int
    extra: int
    unverified: int
    version: int | None
    seconds: float
    samples: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    error: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class RestoreResult:
    """The result of a restore.

    `restored` are the tables that were brought back, with their new versions. `unchanged` had the same rows already.
    `behind` read what was brought back and are not in the savepoint: their next refresh follows. `redeclared` have
    another declaration than then.
    """

    savepoint: str
    created_at: datetime
    restored: Mapping[str, int] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    redeclared: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class ResultRows:
    """The rows of a SELECT.

    `columns` are pairs of name and Spark type, `rows` the values by column, as JSON has them (decimals as Decimal).
    `truncated` says that there are more than were asked for.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Mapping[str, Any], ...]
    truncated: bool = False


def read_result(kind: type[T], answer: Mapping[str, Any]) -> T:
    """A value of a class from the engine's answer. Keys that the class does not have are left out.

    Raises EngineError for an answer that lacks something: it is that of an engine of another version.
    """
    try:
        found: T = from_json(answer, kind)
    except UNREADABLE as error:
        raise EngineError(
            f"the engine's answer has another form than this version of freshline knows ({error!r}). End the engine "
            "with `freshline engine stop` and ask again."
        ) from error
    return found

"""The answers of the engine as values for programs: a refresh, a verification, a restore.

The fields are the keys of the objects that `freshline refresh --json` and its like print, so an answer reads the same
in Python and in a shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from freshline.errors import EngineError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """An error as the engine reports it. `where` is a place that a person can open."""

    code: str
    message: str
    where: str | None = None
    retry_helps: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True)
class Violations:
    """How many rows do not meet a constraint, and some of them as JSON texts."""

    rows: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class RefreshResult:
    """One refresh of one table or log table.

    `state` is SUCCEEDED, FAILED, CANCELLED, BLOCKED or SKIPPED. `kind` is `table`, `log` or `source`. `version` is the
    Delta version that holds the result, None before the first commit. `rows_in` counts the changed rows that were
    read, `rows_out` the rows written, `rejected` those that went to quarantine. `problems` did not stop the refresh.
    `violations` are those of each constraint by its name. `partitions` are the time partitions that were written.
    """

    table: str
    kind: str
    state: str
    mode: str | None
    strategy: str | None
    reason: str
    version: int | None
    rows_in: int
    rows_out: int
    rejected: int
    seconds: float
    late_rows: int | None = None
    ahead_rows: int | None = None
    cpu_seconds: float | None = None
    predicted_seconds: float | None = None
    full_seconds: float | None = None
    cache_hits: int = 0
    violations: Mapping[str, Violations] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    data_timestamp: datetime | None = None
    error: Problem | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed and nothing needs a person."""
        return self.state in ("SUCCEEDED", "SKIPPED") and not self.problems


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
    """What a restore did.

    `restored` are the tables that were brought back, with their new versions. `unchanged` held the same already.
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
class Rows:
    """The rows of a SELECT.

    `columns` are pairs of name and Spark type, `rows` the values by column, as JSON has them (decimals as Decimal).
    `truncated` says that there are more than were asked for.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Mapping[str, Any], ...]
    truncated: bool = False


def read_result(kind: type[T], answer: Mapping[str, Any]) -> T:
    """A value of a class of this module from the engine's answer; keys that the class does not have are left out.

    Raises EngineError for an answer that lacks something: it is that of an engine of another version.
    """
    try:
        return _converter().structure(answer, kind)
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(
            f"the engine's answer has another form than this version of freshline knows ({error!r}). End the engine "
            "with `freshline engine stop` and ask again."
        ) from error


@cache
def _converter() -> Converter:
    # Loaded with the first answer: importing freshline costs nothing.
    from cattrs import Converter

    converter = Converter(detailed_validation=False)
    converter.register_structure_hook(datetime, lambda text, _: datetime.fromisoformat(text))
    return converter

"""Sentences for a person: the decisions about a table beside its file, and whether its promise can be kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from freshline.freshness.alter import override_text, suspension_text
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.report.table_text import printable
from freshline.values.freshness import Freshness
from freshline.values.names import TableName


class Promise(Protocol):
    """A line of the status or of the plan."""

    @property
    def table(self) -> TableName: ...
    @property
    def declared_freshness_seconds(self) -> int | None: ...
    @property
    def override(self) -> FreshnessOverride | None: ...
    @property
    def suspended(self) -> Suspension | None: ...
    @property
    def blocked_by(self) -> TableName | None: ...
    @property
    def paused(self) -> str | None: ...
    @property
    def feasible(self) -> bool | None: ...
    @property
    def feasible_reason(self) -> str: ...


def intention_lines(promise: Promise) -> Iterator[str]:
    """One sentence for each; none for a table that is kept as it is declared."""
    told = []
    if promise.override is not None and promise.declared_freshness_seconds is not None:
        told.append(override_text(promise.override, Freshness(promise.declared_freshness_seconds)))
    if promise.suspended is not None:
        told.append(f"suspended {suspension_text(promise.suspended)}")
    if promise.blocked_by is not None:
        told.append(f"blocked: {promise.blocked_by}, which drives it, is suspended")
    if promise.paused is not None:
        told.append(f"paused: {promise.paused}")
    if promise.feasible is False:
        told.append(f"its freshness cannot be kept: {promise.feasible_reason}")
    for sentence in told:
        yield printable(f"{promise.table}: {sentence}")

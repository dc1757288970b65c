"""`versioned`: the row of a key with the greatest version; a row without a version is rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from freshline.merges.one_row import OneRow
from freshline.values.merge import REJECTED
from freshline.values.options import Option, Options

NULL_VERSION = "NULL_VERSION"


@dataclass(frozen=True)
class Versioned(OneRow):
    """The row of each key with the greatest version; of equal versions the greatest row.

    `order` is the version. `delete_when` is a condition: a winning row that matches it deletes its key.
    """

    name: ClassVar[str] = "versioned"
    takes_least: ClassVar[bool] = False
    order_option: ClassVar[str] = "merge.sequence"
    options: ClassVar[tuple[Option, ...]] = (
        Option("merge.sequence", "the version by which a row is later than another"),
        Option("merge.delete-when", "the condition by which a winning row deletes its key"),
    )
    rejections: ClassVar[Mapping[str, str]] = {NULL_VERSION: "the version ('merge.sequence') is NULL"}

    order: str | None = None
    tie_breaker: str | None = None
    delete_when: str | None = None

    @classmethod
    def declare(cls, options: Options) -> Versioned:
        if "merge.sequence" not in options:
            options.problems.add(
                "OPTION_NEEDS",
                "'merge' = 'versioned' needs 'merge.sequence': the column with the version of a row.",
                options.at("merge"),
            )
        return cls(options.text("merge.sequence"), None, options.text("merge.delete-when"))

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.name, self.order, self.delete_when, self.upstream_deletes)

    @property
    def delete_condition(self) -> str | None:
        return self.delete_when

    @property
    def helpers(self) -> Mapping[str, str]:
        return {**super().helpers, REJECTED: f"CASE WHEN ({self.order}) IS NULL THEN '{NULL_VERSION}' END"}

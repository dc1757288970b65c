"""The seam of merges: how all rows of one key become the rows that the table has of it.

A merge is one class. Its attributes describe the kind, an instance is what one declaration says of it, and stands in
the TableSpec as `merge`. It must give the same result for the same set of rows, in whatever order they come, because a
refresh, a union read and `freshline verify` all fold by it. `fold` is all that a merge needs: freshline then folds the
keys of changed rows again, over all rows that the input has of them. A merge that can compare new rows with the stored
row saves reading the older ones (`compares_with_stored`).

Declaring loads nothing heavy; `fold`, `complete` and `find_winners` may load Spark. Shipped merges and those of other
packages are found by name (`freshline.values.registry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.values.extension import Extension, calling
from freshline.values.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from freshline.values.spec import TableSpec

# A row with this column true takes its key away. Every merge may have it among its helpers.
DELETE = "_freshline_delete"
# A row with a text in this column, one of the merge's `rejections`, is not folded, like one with a NULL in its key.
# Every merge may have it among its helpers.
REJECTED = "_freshline_rejected"


@dataclass(frozen=True)
class Expression:
    """SQL over the columns that the query reads or returns, from an option; `several` allows a list with commas."""

    option: str
    text: str
    several: bool = False


@dataclass(frozen=True)
class Problem:
    """A reason why a merge does not fit the columns of its table: a rule of `freshline.values.rules`, and a sentence.

    `option` is the one whose line is shown.
    """

    rule: str
    option: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Merge(Extension, ABC):
    """A way to fold rows of one key; subclasses are frozen dataclasses, whose fields are what one declaration says.

    `name` is the value of the option `merge`, `options` are those of this kind alone. `compares_with_stored` says that
    `find_winners` is there. `rejections` are codes with a sentence each: why rows are not folded. They stand in the
    column REJECTED, and in the quarantine table of a log. `upstream_deletes` is what becomes of rows that the input
    updated or deleted: `retract`, `error` or `ignore`.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    compares_with_stored: ClassVar[bool] = False
    rejections: ClassVar[Mapping[str, str]] = {}

    upstream_deletes: str = "retract"

    @classmethod
    def declare(cls, options: Options) -> Self:
        """The merge as it is declared; problems are added to those of `options`.

        By default each option is read by its own kind, and given to the field of its name.
        """
        with calling(cls, "declare"):
            return cls(**options.values(cls.options))

    @property
    def meaning(self) -> tuple[object, ...]:
        """The part of the fingerprint: another value makes other rows of the same rows."""
        return (self.name, *(getattr(self, each.name) for each in fields(self)))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The SQL of its options, which is checked against the columns that the query reads and returns."""
        return ()

    def find_problems(self, spec: TableSpec) -> tuple[Problem, ...]:
        """The reasons why it does not fit the table; `spec` has the query's columns, and the key in their spelling."""
        return ()

    @property
    def helpers(self) -> Mapping[str, str]:
        """Columns that `fold` needs beside those of the table: SQL by name. Names begin with `_freshline_`."""
        return {}

    @property
    def is_by_arrival(self) -> bool:
        """Whether it needs the order in which rows arrived, which log tables alone record."""
        return False

    @property
    def follows_changes(self) -> bool:
        """Whether rows are those of the events of a change feed, where a row that leaves WHERE takes its key away."""
        return False

    def in_source_order(self) -> Self:
        """The same where changes are in the order of their positions in the database, and not in that of arrival."""
        raise NotImplementedError(f"{self.name} follows no changes")

    @property
    def depends_on_refreshes(self) -> bool:
        """Whether the result depends on which refresh saw a row first, so that verify replays the refreshes."""
        return False

    @property
    def follows_from_rows(self) -> bool:
        """Whether the rows that the input has now give the result, so that keys may be folded again."""
        return not self.depends_on_refreshes

    @property
    def needs_older_rows(self) -> bool:
        """Whether `find_winners` reads rows that the input had before, which log tables alone keep."""
        return False

    def why_not_ignore(self, spec: TableSpec) -> tuple[str, ...]:
        """The reasons why `upstream-deletes` = `ignore` cannot be kept, a sentence each; empty where it can."""
        return () if self.compares_with_stored else (f"a merge other than {self.name}, which folds whole keys again.",)

    def complete(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        """The rows of the query with its helpers, as `fold` takes them; the same where nothing has to be added."""
        return rows

    @abstractmethod
    def fold(self, rows: DataFrame, spec: TableSpec) -> DataFrame:
        """The table's rows of all keys that `rows` has: its columns, one row a key, none for a key that is deleted.

        `rows` are all rows of these keys, with the columns of the table and the helpers. No key has a NULL, and no row
        is rejected.
        """

    def stands_for_rows(self, rows: Any, stored: Any, spec: TableSpec) -> bool:
        """Whether the stored row of a key says all that new rows are folded with, so that `fold_onto` is exact.

        `rows` and `stored` are the schemas of what `fold_onto` is given.
        """
        return False

    def fold_onto(self, rows: DataFrame, stored: DataFrame, spec: TableSpec) -> DataFrame:
        """As `fold`, of new rows alone and the stored rows of their keys. The older rows are not read."""
        raise NotImplementedError(f"{self.name} folds all rows of a key")

    def find_winners(self, spark: SparkSession, spec: TableSpec, rows: DataFrame, before: Any) -> Any:
        """The rows among new ones that may take the place of stored rows (`freshline.compute.fold.Winners`).

        `before` is the input as it was read before, a `freshline.compute.inputs.Pinned`.
        """
        raise NotImplementedError(f"{self.name} does not compare new rows with stored ones")

"""The seam of registrars: how the tables of a project are entered in a catalog, where others find them by name.

A registrar is one class, whose instance is what one `[tool.freshline.catalogs.NAME]` says. It says under which place an
entry stands in its catalog and what it has there, and opens the catalog. `plan_catalog` compares what is there with the
tables of the project, from values alone. An entry is ours only if it bears the id of our warehouse: any other is left
as it is, whatever its name.

Shipped registrars and those of other packages are found by name (`freshline.values.registry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

from freshline.errors import CatalogError
from freshline.values.extension import Extension, calling
from freshline.values.names import TableName
from freshline.values.options import Option, Options

# The properties by which an entry says whose it is, in catalogs whose entries have properties.
WAREHOUSE_PROPERTY = "freshline_warehouse"
TABLE_PROPERTY = "freshline_table"


@dataclass(frozen=True)
class CatalogColumn:
    """A column; `type` is in Spark's spelling of declarations, such as `STRUCT<a: BIGINT>`."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True)
class CatalogEntry:
    """A table as it is to stand in a catalog.

    `path` is the absolute path of the Delta table, `table_id` its id in its log, and `warehouse_id` that of the
    warehouse whose entry it is.
    """

    name: TableName
    path: str
    table_id: str
    warehouse_id: str
    columns: tuple[CatalogColumn, ...] = ()
    comment: str | None = None


@dataclass(frozen=True)
class FoundEntry:
    """An entry that stands in a catalog at `place`. `warehouse_id` and `table_id` are None where it is somebody else's.

    `content` is compared with what the registrar's `content` makes of a table. `memory` is what the catalog wants to
    have again when the entry is written.
    """

    place: str
    content: object = None
    warehouse_id: str | None = None
    table_id: str | None = None
    memory: Any = field(default=None, compare=False, repr=False)


class CatalogChangeKind(StrEnum):
    """The kind of one change of a catalog."""

    CREATE = "create"
    CHANGE = "change"
    RENAME = "rename"
    DROP = "drop"
    CONFLICT = "conflict"  # the place is somebody else's: nothing is done


@dataclass(frozen=True)
class CatalogChange:
    """One change: of `found`, which is there, to `entry`, which is wanted.

    Nothing is there before a create, and nothing is wanted after a drop. `reason` says why a conflict is one.
    """

    kind: CatalogChangeKind
    place: str
    entry: CatalogEntry | None = None
    found: FoundEntry | None = None
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline catalog sync --json` prints."""
        renamed = self.kind is CatalogChangeKind.RENAME and self.found is not None
        return {
            "change": self.kind.value,
            "place": self.place,
            "table": None if self.entry is None else str(self.entry.name),
            "from": self.found.place if renamed and self.found is not None else None,
            "reason": self.reason or None,
        }

    def __str__(self) -> str:
        renamed = self.kind is CatalogChangeKind.RENAME and self.found is not None
        before = f"{self.found.place} to " if renamed and self.found is not None else ""
        return f"{self.kind.value} {before}{self.place}{f': {self.reason}' if self.reason else ''}"


@dataclass(frozen=True)
class CatalogHost:
    """The project of a registrar: its root, and `resolve`, which replaces a reference to a secret by the secret.

    `resolve` raises CatalogError for a reference to something that is not there.
    """

    root: Path
    resolve: Callable[[str], str]

    def path(self, text: str) -> Path:
        """A path relative to the project as an absolute one. Raises CatalogError where `~` is the home of nobody."""
        try:
            return Path(self.root / Path(text).expanduser()).absolute()
        except RuntimeError as error:
            raise CatalogError(
                f"{text} names the home of somebody unknown. Write the whole path.", refused=True
            ) from error


class Catalog(Extension, ABC):
    """A catalog that is open: what stands in it, and how one entry is written or dropped.

    Each method raises CatalogError where the catalog is away or refuses. The sentence has no secret.
    """

    @abstractmethod
    def find(self, warehouse_id: str, places: Collection[str]) -> Iterable[FoundEntry]:
        """All entries that this warehouse has, wherever they stand, and those at `places`, whosever they are."""

    @abstractmethod
    def write(self, entry: CatalogEntry, found: FoundEntry | None) -> None:
        """Let the entry stand at its place. `found` is the entry of ours that it takes the place of, None for none.

        Where `found` has another place it is renamed, so that what others added to it stays.
        """

    @abstractmethod
    def drop(self, found: FoundEntry) -> None:
        """Remove an entry of ours; the data of the table stay."""


class Registrar(Extension, ABC):
    """A kind of catalog; subclasses are frozen dataclasses, whose fields are what the settings say of one catalog.

    `title` is the name in sentences (`a Hive metastore`). `options` are the settings that it has beside `type`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def declare(cls, options: Options) -> Self:
        """The registrar as the settings have it; problems are added to those of `options`.

        By default each option is read by its own kind, and given to the field of its name.
        """
        with calling(cls, "declare"):
            return cls(**options.values(cls.options))

    @property
    def address(self) -> str:
        """The place of the catalog, for people, without any secret."""
        return ""

    @abstractmethod
    def place(self, name: TableName) -> str:
        """The name by which a table is found in the catalog."""

    @abstractmethod
    def content(self, entry: CatalogEntry) -> object:
        """The content of an entry in the catalog, to be compared with that of a FoundEntry."""

    @abstractmethod
    def open(self, host: CatalogHost) -> AbstractContextManager[Catalog]:
        """Open the catalog for one comparison. All that was written counts when the block ends well.

        Raises CatalogError where it cannot be reached.
        """


def plan_catalog(
    registrar: Registrar,
    wanted: Sequence[CatalogEntry],
    found: Iterable[FoundEntry],
    warehouse_id: str,
    *,
    may_drop: bool = True,
) -> tuple[CatalogChange, ...]:
    """The changes that make the entries of a warehouse those that are wanted; none where they are.

    Drops come first and renames next, because a place may be wanted by another table. Without `may_drop` an entry
    that is not wanted stays: its declaration may only have a mistake.
    """
    there = {each.place: each for each in found}
    ours = {place: each for place, each in there.items() if each.warehouse_id == warehouse_id}
    places: dict[str, CatalogEntry] = {}
    conflicts: list[CatalogChange] = []
    for entry in wanted:
        place = registrar.place(entry.name)
        first = places.get(place)
        if first is not None:
            reason = f"{first.name} is entered here"
        elif place in there and place not in ours:
            reason = "somebody else's entry is here"
        else:
            places[place] = entry
            continue
        conflicts.append(CatalogChange(CatalogChangeKind.CONFLICT, place, entry, reason=reason))
    # The entry that has the table's id and stands where no table is wanted was moved here.
    moved = {each.table_id: each for place, each in ours.items() if place not in places and each.table_id is not None}
    changes: list[CatalogChange] = []
    taken: set[str] = set()
    for place, entry in places.items():
        before = ours.get(place)
        if before is None and (source := moved.get(entry.table_id)) is not None and source.place not in taken:
            taken.add(source.place)
            changes.append(CatalogChange(CatalogChangeKind.RENAME, place, entry, source))
        elif before is None:
            changes.append(CatalogChange(CatalogChangeKind.CREATE, place, entry))
        elif before.content != registrar.content(entry) or before.table_id != entry.table_id:
            changes.append(CatalogChange(CatalogChangeKind.CHANGE, place, entry, before))
    drops = [
        CatalogChange(CatalogChangeKind.DROP, place, found=each)
        for place, each in sorted(ours.items())
        if may_drop and place not in places and place not in taken
    ]
    order = (CatalogChangeKind.RENAME, CatalogChangeKind.CHANGE, CatalogChangeKind.CREATE)
    return (*drops, *sorted(changes, key=lambda change: (order.index(change.kind), change.place)), *conflicts)


def apply_changes(catalog: Catalog, changes: Iterable[CatalogChange]) -> None:
    """Carry out the changes in their order. Stopped half way, the next plan has those that are left."""
    for change in changes:
        match change.kind:
            case CatalogChangeKind.CREATE | CatalogChangeKind.CHANGE | CatalogChangeKind.RENAME:
                assert change.entry is not None
                catalog.write(change.entry, change.found)
            case CatalogChangeKind.DROP:
                assert change.found is not None
                catalog.drop(change.found)
            case CatalogChangeKind.CONFLICT:
                pass

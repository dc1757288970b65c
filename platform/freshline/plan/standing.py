"""A project some of whose declarations have mistakes: what stands without them.

One mistake must not take the other tables out of sight. The files with mistakes are left out and the rest is read
again, until what is left has none. So a table that reads one with a mistake is left out too, and is not to blame.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.project import name_of_file
from freshline.declare.settings import Settings
from freshline.errors import DeclarationError, DeclarationErrors
from freshline.plan.project import open_project

LOG = logging.getLogger(__name__)

UNKNOWN_UPSTREAM = "UNKNOWN_UPSTREAM"


@dataclass(frozen=True)
class Mistaken:
    """A declaration that is left out. `name` is that of its file, None for a file that no table can be named like.

    `errors` are its mistakes. Where it has none of its own it reads tables that are left out, and these are `reads`.
    """

    name: TableName | None
    file: Path
    errors: tuple[DeclarationError, ...]
    reads: tuple[TableName, ...] = ()

    @property
    def why(self) -> tuple[DeclarationError, ...]:
        """Why it is left out: its mistakes, or that it reads tables that are left out."""
        if self.errors:
            return self.errors
        read = ", ".join(map(str, self.reads))
        said = f"it reads {read}, whose declaration has a mistake. It stands again when that is corrected."
        return (DeclarationError(UNKNOWN_UPSTREAM, said, where=str(self.name or self.file)),)


@dataclass(frozen=True)
class Standing:
    """The graph of all declarations without a mistake, and those that are left out, in the order of their files."""

    graph: Graph
    mistaken: tuple[Mistaken, ...] = ()

    @property
    def left_out(self) -> tuple[TableName, ...]:
        """The tables that are left out, as far as their files tell their names."""
        return tuple(each.name for each in self.mistaken if each.name is not None)

    @property
    def errors(self) -> tuple[DeclarationError, ...]:
        """All that is wrong."""
        return tuple(error for each in self.mistaken for error in each.why)

    def require(self, names: Collection[TableName]) -> None:
        """Raises DeclarationErrors where one of these is left out, or is not there and may be for a mistake."""
        for name in names:
            own = [error for each in self.mistaken if each.name == name for error in each.why]
            if own:
                raise DeclarationErrors(own)
            if name not in self.graph:
                # What a file declares that cannot be read is not known where it has several tables.
                unnamed = [error for each in self.mistaken if each.name is None for error in each.why]
                if unnamed:
                    raise DeclarationErrors(unnamed)


def log_mistake(error: DeclarationError) -> None:
    """Log a mistake that keeps nobody from what was asked."""
    place = f" {error.where}:" if error.where else ""
    LOG.warning("%s/%s%s %s", error.code, error.rule, place, error.message)


def open_graph(
    settings: Settings, wanted: Collection[str] = (), report: Callable[[DeclarationError], None] = log_mistake
) -> Graph:
    """The declarations without mistakes, for what needs no others; each mistake goes to `report`.

    Raises DeclarationErrors where one of the `wanted` tables has a mistake or reads one that has, and for mistakes that
    are in no declaration of the folder.
    """
    standing = open_standing(settings)
    standing.require([name for text in wanted if (name := _name_of(text)) is not None])
    for error in standing.errors:
        report(error)
    return standing.graph


def open_standing(settings: Settings, *, instead: Mapping[Path, str | None] | None = None) -> Standing:
    """What stands of a project. Raises DeclarationErrors for mistakes that are in no declaration of its folder.

    `instead` has texts that count in place of what is on disk, as for `open_project`.
    """
    left_out: dict[Path, Mistaken] = {}
    instead = instead or {}
    while True:
        try:
            graph = open_project(settings, instead={**instead, **dict.fromkeys(left_out)})
        except DeclarationError as error:
            found = _by_file(error, settings, instead)
            if found is None or found.keys() & left_out.keys():
                # Leaving out files does not help.
                raise
            names = [each.name for each in left_out.values() if each.name is not None]
            left_out |= {file: _mistaken(file, errors, names, settings) for file, errors in found.items()}
        else:
            return Standing(graph, tuple(left_out[file] for file in sorted(left_out)))


def _name_of(text: str) -> TableName | None:
    try:
        return TableName.parse(text)
    except ValueError:
        return None  # who asks for it says so


def mistakes_of(error: DeclarationError) -> tuple[str, ...]:
    """The mistakes that an error of a project has, each with file and line."""
    return tuple(map(str, _each(error)))


def _each(error: DeclarationError) -> Sequence[DeclarationError]:
    return error.errors if isinstance(error, DeclarationErrors) else (error,)


def _by_file(
    error: DeclarationError, settings: Settings, instead: Mapping[Path, str | None]
) -> Mapping[Path, Sequence[DeclarationError]] | None:
    """The mistakes by the declaring file; None where one is elsewhere."""
    found: defaultdict[Path, list[DeclarationError]] = defaultdict(list)
    for each in _each(error):
        path, colon, _ = (each.where or "").rpartition(":")
        file = settings.root / path
        if not colon or not file.is_relative_to(settings.declarations) or not (file.is_file() or file in instead):
            return None
        found[file].append(each)
    return found


def _mistaken(
    file: Path, errors: Sequence[DeclarationError], left_out: Sequence[TableName], settings: Settings
) -> Mistaken:
    name = name_of_file(file, settings)
    reads = tuple(other for other in left_out if any(_is_missing(error, other) for error in errors))
    if reads and all(error.rule == UNKNOWN_UPSTREAM for error in errors):
        return Mistaken(name, file, (), reads)
    return Mistaken(name, file, tuple(errors), reads)


def _is_missing(error: DeclarationError, name: TableName) -> bool:
    return error.rule == UNKNOWN_UPSTREAM and f" reads {name}, ".lower() in error.message.lower()

"""A project some of whose declarations have mistakes: what stands without them.

One mistake must not take the other tables out of sight. The files with mistakes are left out and the rest is read
again, until what is left has none. So a table that reads one with a mistake is left out too, and is not to blame.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from freshline.declare.graph import Graph
from freshline.declare.project import name_of_file
from freshline.errors import DeclarationError, DeclarationErrors
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

UNKNOWN_UPSTREAM = "UNKNOWN_UPSTREAM"
YAML = ".yaml"
# As the option of SQL, Python and YAML.
_GROUP = re.compile(r"""['"{ ]group['"]?\s*[=:]\s*['"]?([A-Za-z0-9_/]+)""")


@dataclass(frozen=True)
class LeftOutPlace:
    """The place of a declaration that is left out: a file, or the `entry` of one table in a file of several."""

    file: Path
    entry: TableName | None = None


@dataclass(frozen=True)
class Mistaken:
    """A declaration that is left out. `name` is that of its file, None for a file that no table can be named like.

    `errors` are its mistakes. Where it has none of its own it reads tables that are left out, and these are `reads`.
    `group` is the option of that name, as far as the text has it.
    """

    name: TableName | None
    file: Path
    errors: tuple[DeclarationError, ...]
    reads: tuple[TableName, ...] = ()
    group: str | None = None

    @property
    def why(self) -> tuple[DeclarationError, ...]:
        """The reason why it is left out: its mistakes, or that it reads tables that are left out."""
        if self.errors:
            return self.errors
        read = ", ".join(map(str, self.reads))
        said = f"it reads {read}, whose declaration has a mistake. It stands again when that is corrected."
        return (DeclarationError(UNKNOWN_UPSTREAM, said, where=str(self.name or self.file)),)


@dataclass(frozen=True)
class ValidProject:
    """The graph of all declarations without a mistake, and those that are left out, in the order of their files."""

    graph: Graph
    mistaken: tuple[Mistaken, ...] = ()

    @property
    def left_out(self) -> tuple[TableName, ...]:
        """The tables that are left out, as far as their files name them."""
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
                # A file of several tables that cannot be read does not say which ones it declares.
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
    standing = open_valid_project(settings)
    standing.require([name for text in wanted if (name := _name_of(text)) is not None])
    for error in standing.errors:
        report(error)
    return standing.graph


def judge_change(settings: Settings, file: Path, text: str | None) -> Graph:
    """The graph of what stands with that text in place of the file's, None for no file.

    Raises DeclarationErrors with what the change makes wrong. Mistakes that other files have without it are none of it.
    """
    with_it = open_valid_project(settings, instead={file: text})
    own = [error for each in with_it.mistaken if each.file == file for error in each.why]
    if own:
        raise DeclarationErrors(own)
    if with_it.mistaken:
        before = set(map(str, _errors_before(settings)))
        new = [error for error in with_it.errors if str(error) not in before]
        if new:
            raise DeclarationErrors(new)
    for error in with_it.errors:
        log_mistake(error)
    return with_it.graph


def _errors_before(settings: Settings) -> Sequence[DeclarationError]:
    try:
        return open_valid_project(settings).errors
    except DeclarationError as error:
        return _each(error)


def open_valid_project(settings: Settings, *, instead: Mapping[Path, str | None] | None = None) -> ValidProject:
    """The declarations of a project that stand. Raises DeclarationErrors for mistakes in none of its folder's ones.

    `instead` has texts that count in place of what is on disk, as for `open_project`.
    """
    left_out: dict[LeftOutPlace, Mistaken] = {}
    instead = instead or {}
    while True:
        try:
            graph = open_project(settings, instead={**instead, **_without(left_out, instead)})
        except DeclarationError as error:
            found = _by_place(error, settings, instead)
            if found is None or found.keys() & left_out.keys():
                # Leaving out files does not help.
                raise
            names = [each.name for each in left_out.values() if each.name is not None]
            left_out |= {place: _mistaken(place, errors, names, settings, instead) for place, errors in found.items()}
        else:
            return ValidProject(graph, tuple(left_out[place] for place in sorted(left_out, key=str)))


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


def _by_place(
    error: DeclarationError, settings: Settings, instead: Mapping[Path, str | None]
) -> Mapping[LeftOutPlace, Sequence[DeclarationError]] | None:
    """The mistakes by the declaring file, or the entry in it; None where one is elsewhere."""
    found: defaultdict[LeftOutPlace, list[DeclarationError]] = defaultdict(list)
    for each in _each(error):
        path, colon, line = (each.where or "").rpartition(":")
        file = settings.root / path
        if not colon or not file.is_relative_to(settings.declarations) or not (file.is_file() or file in instead):
            return None
        found[LeftOutPlace(file, _entry_at(file, line, instead) if file.suffix == YAML else None)].append(each)
    return found


def _entry_at(file: Path, line: str, instead: Mapping[Path, str | None]) -> TableName | None:
    """The table whose entry in a file of several has a line, None where none has, or it cannot be left out alone."""
    # YAML is loaded only for projects that have such a file.
    from freshline.declare.yaml_table import table_at, without_tables

    try:
        text = _text(file, instead)
        table = None if not line.isdigit() else table_at(text, int(line))
    except (DeclarationError, OSError, UnicodeDecodeError):
        return None  # it is no YAML, which is the mistake
    if table is None or table.name is None:
        return None
    return table.name if without_tables(text, [table.name]) is not None else None


def _without(left_out: Collection[LeftOutPlace], instead: Mapping[Path, str | None]) -> dict[Path, str | None]:
    """The files as they are read without what is left out, None for those that are left out as a whole."""
    found: dict[Path, str | None] = {}
    for file in {place.file for place in left_out}:
        entries = [place.entry for place in left_out if place.file == file]
        names = [entry for entry in entries if entry is not None]
        if len(names) < len(entries):
            found[file] = None
        else:
            from freshline.declare.yaml_table import without_tables

            found[file] = without_tables(_text(file, instead), names)
    return found


def _text(file: Path, instead: Mapping[Path, str | None]) -> str:
    if file in instead:
        return instead[file] or ""
    return file.read_text(encoding="utf-8-sig")


def _mistaken(
    place: LeftOutPlace,
    errors: Sequence[DeclarationError],
    left_out: Sequence[TableName],
    settings: Settings,
    instead: Mapping[Path, str | None],
) -> Mistaken:
    file = place.file
    name = place.entry or name_of_file(file, settings)
    reads = tuple(other for other in left_out if any(_is_missing(error, other) for error in errors))
    if reads and all(error.rule == UNKNOWN_UPSTREAM for error in errors):
        return Mistaken(name, file, (), reads, _group_in(place, instead))
    return Mistaken(name, file, tuple(errors), reads, _group_in(place, instead))


def _group_in(place: LeftOutPlace, instead: Mapping[Path, str | None]) -> str | None:
    """The option `group` in the text of what is left out, which may be no declaration at all."""
    try:
        text = _text(place.file, instead)
        if place.entry is not None:
            from freshline.declare.yaml_table import find_tables

            text = next((table.text for table in find_tables(text, "") if table.name == place.entry), "")
    except (OSError, UnicodeDecodeError):
        return None
    written = _GROUP.search(text)
    return None if written is None else written[1]


def _is_missing(error: DeclarationError, name: TableName) -> bool:
    return error.rule == UNKNOWN_UPSTREAM and f" reads {name}, ".lower() in error.message.lower()

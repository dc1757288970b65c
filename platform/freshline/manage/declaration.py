"""Declare a table by a statement, or declare it no more: the file is written or moved away.

The whole project is judged with the change before anything is written. A file is replaced in one step, so that whoever
reads it finds the declaration before or the one after.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import DeclarationError, RequestError, StorageError
from freshline.freshness.alter import find_table
from freshline.manage.decide import Clock, utc_now
from freshline.plan.definition import ChangeClass, may_start_at_date, start_arguments
from freshline.plan.project import open_project
from freshline.plan.valid_project import judge_change, open_graph, open_valid_project
from freshline.sql.managing import AlterQuery, Create
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.settings import Settings
from freshline.values.spec import Spec, TableSpec


@dataclass(frozen=True)
class DeclarationChange:
    """The result of a change of a declaration; `file` is where it stands, or was moved to."""

    table: TableName
    file: Path | None
    changed: bool
    sentence: str

    def as_json(self) -> dict[str, object]:
        """The object that CREATE and DROP print."""
        return {
            "table": str(self.table),
            "file": None if self.file is None else str(self.file),
            "changed": self.changed,
            "sentence": self.sentence,
        }


def create(statement: Create, settings: Settings) -> DeclarationChange:
    """Write the declaration to its file, if the project with it is in order; the same text changes nothing.

    Raises RequestError for a table that is there already, unless the statement says OR ALTER, and DeclarationErrors
    with everything that would be wrong.
    """
    name = statement.name
    file = _file_of(settings, name)
    before = _text_of(file)
    if before is not None and _trimmed(before) == _trimmed(statement.text):
        return DeclarationChange(name, file, False, f"{name} is declared so already in {_shown(settings, file)}.")
    if before is not None and not statement.or_alter:
        raise RequestError(
            f"{name} is declared already, in {_shown(settings, file)}. CREATE OR ALTER changes it.", where=str(name)
        )
    old = _standing_graph(settings)
    if file.suffix != ".sql":
        raise _not_in_sql(settings, name, file)
    text = f"{_trimmed(statement.text)};\n"
    new = judge_change(settings, file, text)
    _write(file, text)
    sentence = f"declared: {name}, in {_shown(settings, file)}."
    spec = new.spec(name)
    if isinstance(spec, TableSpec) and old is not None and name in old:
        sentence += _change_sentence(settings, spec)
    return DeclarationChange(name, file, True, sentence)


def _change_sentence(settings: Settings, spec: TableSpec) -> str:
    """The sentence about the stored rows, where they follow another declaration; empty where they do not."""
    # delta-rs is imported when it is used, like all that is heavy.
    from freshline.commit.definitions import change_of

    change = change_of(Warehouse(settings.warehouse), spec)
    if change is None or change.kind is ChangeClass.UNCHANGED:
        return ""
    if change.kind is ChangeClass.ADDITIVE:
        return f" The next refresh takes the change up: {change.text}."
    return (
        f" The change is {change.kind}: {change.text}. The rows stay as they are until `freshline apply {spec.name}` "
        "says from when on it holds."
    )


def alter_query(
    statement: AlterQuery, settings: Settings, *, force: bool = False
) -> tuple[DeclarationChange, dict[str, Any] | None]:
    """Write another query into the declaration of a table.

    Returns what became of the declaration, and what to ask of the refresh that takes it up: None where there is nothing
    to take up. Where a start has to be stated and is not, and where what is stored would go away, nothing is written.
    Stopped after the file was written, the same statement goes on. Raises RequestError and DeclarationErrors.
    """
    # delta-rs is imported when it is used, like all that is heavy.
    from freshline.commit.definitions import change_of

    graph = open_graph(settings, [str(statement.table)], lambda _: None)
    name = find_table(graph, str(statement.table))
    spec = graph.spec(name)
    _require_own(spec)
    file = settings.root / spec.written_at.path
    before = _text_of(file)
    if (
        before is None
        or file.suffix != ".sql"
        or not isinstance(spec, TableSpec)
        or not isinstance(spec.query, SqlQuery)
    ):
        raise _not_in_sql(settings, name, file)
    begin = before.rfind(spec.query.written)
    if begin < 0:
        raise RequestError(f"its query is not found in {_shown(settings, file)}. Change it there.", where=str(name))
    text = f"{before[:begin]}{_trimmed(statement.query)}{before[begin + len(spec.query.written) :]}"
    new = judge_change(settings, file, text).table(name)
    change = change_of(Warehouse(settings.warehouse), new)
    asked = None
    if change is not None:
        asked = start_arguments(name, change, statement.start, force=force, by_date=may_start_at_date(new))
    written = new.fingerprint != spec.fingerprint
    if written:
        _write(file, text)
    sentence = f"{name} has this query {'now' if written else 'already'}, in {_shown(settings, file)}."
    if change is None:
        return DeclarationChange(name, file, written, f"{sentence} It has no version yet."), None
    if change.kind is ChangeClass.UNCHANGED:
        return DeclarationChange(name, file, written, f"{sentence} Nothing is to be taken up."), None
    return DeclarationChange(name, file, written, f"{sentence} The change is {change.kind}: {change.text}."), asked


def drop(
    table: TableName,
    settings: Settings,
    *,
    if_exists: bool = False,
    purge: bool = False,
    clock: Clock = utc_now,
) -> DeclarationChange:
    """Move the declaration of a table away, with what was decided about it; its data stays, for an engine to `purge`.

    Raises RequestError for a table that is not there (unless `if_exists`), is a source, or is read by others. Of one
    that is to be purged the data is enough: so a drop that was stopped half way is finished by another.
    """
    # Whether a declaration with a mistake reads it is not known, and what is purged does not come back.
    graph = open_project(settings) if purge else open_graph(settings, [str(table)], lambda _: None)
    left = Warehouse(settings.warehouse)
    if table not in graph:
        # The decisions about it outlived a drop that was stopped half way, or a file that a person removed.
        _forget(settings, table)
    if purge and table not in graph and any(path.is_dir() for path in (left.path(table), left.pending_lookups(table))):
        return DeclarationChange(table, None, True, f"dropped: {table}. It was declared no more.")
    if if_exists and table not in graph:
        return DeclarationChange(table, None, False, f"there is no table {table}. Nothing is changed.")
    name = find_table(graph, str(table))
    _require_own(graph.spec(name))
    readers = [each for one in graph.with_beside([name]) for each in graph.consumers(one)]
    if readers:
        raise RequestError(f"{', '.join(str(each) for each in readers)} reads it. Drop that first.", where=str(name))
    file = settings.root / graph.spec(name).written_at.path
    if file.suffix == ".yaml":
        # The file may have other tables, and is that of a component.
        raise _not_in_sql(settings, name, file)
    judge_change(settings, file, None)
    # Nothing may refuse it from here on but the store and the disk: what is refused changes nothing.
    _require_control_store(settings, name)
    away = settings.state / "dropped" / f"{name}-{clock():%Y%m%dT%H%M%S}{file.suffix}"
    try:
        away.parent.mkdir(parents=True, exist_ok=True)
        _write(away, file.read_text(encoding="utf-8-sig"))
        file.unlink()
    except OSError as error:
        raise _refused(error, file) from error
    for each in graph.with_beside([name]):
        _forget(settings, each)
    data = "." if purge else f", its data stays in {left.path(name)}."
    spec = graph.spec(name)
    outside = "" if not isinstance(spec, TableSpec) or spec.sink is None else f" {spec.sink.left_behind}"
    return DeclarationChange(name, away, True, f"dropped: {name}. Its declaration is in {away}{data}{outside}".rstrip())


def _require_own(spec: Spec) -> None:
    """Raises RequestError for a table that another one's declaration makes."""
    if isinstance(spec, TableSpec) and spec.declared_with is not None:
        rows = "late rows" if spec.late_rows_of is not None else "side output"
        raise RequestError(
            f"it is declared with {spec.declared_with}, whose {rows} it has. Change or drop that.",
            where=str(spec.name),
        )


def declaration_text(settings: Settings, graph: Graph, name: TableName) -> str:
    """The declaration of a table or source, as it was written: its file, or its entry in a YAML file."""
    at = graph.spec(name).written_at
    text = (settings.root / at.path).read_text(encoding="utf-8-sig")
    if at.path.endswith(".yaml"):
        # Loaded for such a file only.
        from freshline.declare.yaml_table import declared_text

        return declared_text(text, at.line) or text.strip()
    return text.strip()


def _not_in_sql(settings: Settings, name: TableName, file: Path) -> RequestError:
    return RequestError(f"{name} is not declared in SQL, but in {_shown(settings, file)}. Change it there.")


def _require_control_store(settings: Settings, name: TableName) -> None:
    """A declaration that is away, with what was decided about it left, would be half a drop. Raises StorageError."""
    with closing(ControlStore.open(settings.control_store, settings.umask)) as control:
        control.intentions.forget_failures(name)


def _forget(settings: Settings, name: TableName) -> None:
    """A table of this name that is declared later begins without what was decided about this one."""
    with closing(ControlStore.open(settings.control_store, settings.umask)) as control:
        intentions = control.intentions.read()
        if name in intentions.overrides or name in intentions.suspensions:
            control.intentions.change(remove_overrides=[name], remove_suspensions=[name])
        control.intentions.forget_failures(name)


def _file_of(settings: Settings, name: TableName) -> Path:
    """Where the name is declared, in any letter case; where it would be, if it is not."""
    wanted = {str(Path(*name.parts).with_suffix(suffix)).lower() for suffix in (".sql", ".py")}
    for folder in (settings.declarations, *_folders(settings.declarations)):
        for file in sorted(folder.iterdir()) if folder.is_dir() else ():
            if str(file.relative_to(settings.declarations)).lower() in wanted:
                return file
    return settings.declarations.joinpath(*name.parts).with_suffix(".sql")


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []


def _standing_graph(settings: Settings) -> Graph | None:
    """The graph before the change, which may be meant to repair the rest; None where no declaration can be read."""
    try:
        return open_valid_project(settings).graph
    except DeclarationError:
        return None


def _text_of(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None


def _trimmed(text: str) -> str:
    return text.strip().rstrip(";").rstrip()


def _write(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.{uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise _refused(error, file) from error


def _refused(error: OSError, file: Path) -> StorageError:
    return StorageError(
        f"the file cannot be written: {error.strerror or error}. Make its folder writable for this user.",
        where=str(error.filename or file),
    )


def _shown(settings: Settings, file: Path) -> str:
    return file.relative_to(settings.root).as_posix() if file.is_relative_to(settings.root) else str(file)

"""From a folder on disk to settings and a graph.

The only part of `declare` that touches the disk and the environment, both handed in or named by settings. Everything
that is wrong with a project's declarations is reported at once, in the order of file and line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING

from freshline.declare.cache import DeclarationCache
from freshline.declare.graph import Graph, Thresholds, arrange, build_graph, columns_of
from freshline.declare.model import ModelFile, ModelSpec, check_calls, check_kept_models, read_model
from freshline.declare.project_settings import find_project, read_settings
from freshline.errors import DeclarationError, ExtensionFailedError
from freshline.sql.clauses import Declaration
from freshline.values.as_of_joins import Versions
from freshline.values.connector import Place
from freshline.values.extension import try_properties
from freshline.values.location import Location
from freshline.values.lookup import Lookup, OnError
from freshline.values.names import PART, TableName
from freshline.values.query import WINDOW_BOUNDS, SqlQuery, WindowInput
from freshline.values.rules import Problems, declaration_error
from freshline.values.settings import Settings, as_private, provide_state
from freshline.values.spec import SourceSpec, Spec, TableSpec

if TYPE_CHECKING:
    from freshline.declare.python_loading import PythonLoader

# Resolves a table by its inputs: their columns, by name, which of them are logs, and how as-of joins read their rows.
Resolve = Callable[
    [
        Declaration,
        Mapping[TableName, tuple[str, ...] | None],
        frozenset[TableName],
        Mapping[TableName, Versions | None],
    ],
    TableSpec,
]

__all__ = ["find_project", "read_declarations", "read_project", "read_settings"]

SUFFIXES = (".sql", ".py")
# Dagster's entry point lies beside the declarations.
NOT_DECLARATIONS = ("definitions.py",)
# The folder in which Dagster's `dg` keeps components: Python and SQL there declare no tables, and this file may.
COMPONENTS = "defs"
COMPONENT_FILE = "defs.yaml"


@dataclass(frozen=True)
class _Caches:
    """The results of the last reading: declarations, models, contents of model files, and tables with their columns."""

    declarations: DeclarationCache[Declaration]
    models: DeclarationCache[ModelSpec]
    model_files: DeclarationCache[ModelFile]
    resolved: DeclarationCache[TableSpec]


def read_project(
    settings: Settings,
    environ: Mapping[str, str] | None = None,
    *,
    instead: Mapping[Path, str | None] | None = None,
) -> Graph:
    """Read all declarations of a project; raises DeclarationErrors with everything that is wrong.

    `environ` is what `${env:NAME}` refers to, by default that of the process. `instead` has texts that count in place
    of what is on disk, None for a file that does not count: how a change is judged before it is made. Reading changes
    nothing but a cache in the state directory.
    """
    folder = settings.state / "cache"
    caches = _Caches(
        DeclarationCache(folder / "declarations", Declaration),
        DeclarationCache(folder / "models", ModelSpec),
        DeclarationCache(folder / "model_files", ModelFile),
        DeclarationCache(folder / "resolved", TableSpec),
    )
    with ExitStack() as stack:
        # A process is started for a Python file that is not in the cache, and only then.
        loader = once(lambda: stack.enter_context(_python_loader(settings)))
        graph = _read(settings, os.environ if environ is None else environ, caches, loader, instead or {})
    # Reading a project must work on a read-only disk: it is then only slower.
    with suppress(OSError):
        provide_state(settings)
    with as_private(settings.umask):
        for cache in (caches.declarations, caches.models, caches.model_files, caches.resolved):
            cache.save()
    return graph


def read_declarations(files: Mapping[str, str], settings: Settings) -> Graph:
    """The graph of SQL declarations that are given as texts, by path below the folder of declarations.

    For tests and for judging a declaration before it is written. Raises DeclarationErrors.
    """
    problems = Problems()
    declarations, models, broken = list[Declaration](), list[ModelSpec](), set[TableName]()
    for path, text in sorted(files.items()):
        shown = _shown(settings, settings.declarations / path)
        name = _name_of(Path(path), Location(shown, 1))
        try:
            found = _declare_sql(text, shown, name)
            if isinstance(found, ModelSpec):
                models.append(found)
            else:
                declarations.append(found)
        except DeclarationError as error:
            problems.extend(error)
            broken.add(name)
    return _graph(declarations, models, frozenset(broken), settings, os.environ, _resolve, problems)


def name_of_file(file: Path, settings: Settings) -> TableName | None:
    """The name of the table that a file of the folder of declarations is for; None where no name is like the file's.

    Files of components declare tables of other names.
    """
    path = file.relative_to(settings.declarations)
    if file.suffix not in SUFFIXES or len(path.parts) > 2:
        return None
    try:
        return _name_of(path, Location(_shown(settings, file), 1))
    except DeclarationError:
        return None


def _read(
    settings: Settings,
    environ: Mapping[str, str],
    caches: _Caches,
    loader: Callable[[], PythonLoader],
    instead: Mapping[Path, str | None],
) -> Graph:
    problems = Problems()
    declarations: list[Declaration] = []
    models: list[ModelSpec] = []
    broken: set[TableName] = set()
    keys: dict[TableName, str] = {}
    new = sorted(file for file, text in instead.items() if text is not None and not file.is_file())
    left_out = frozenset(file for file, text in instead.items() if text is None)
    for file in (*_files(settings, problems, left_out), *new):
        at = Location(_shown(settings, file), 1)
        try:
            name = _name_of(file.relative_to(settings.declarations), at)
        except DeclarationError as error:
            problems.extend(error)
            continue
        try:
            declaration, key = _declaration(settings, file, name, caches, loader, instead.get(file))
        except DeclarationError as error:
            problems.extend(error)
            broken.add(name)
            continue
        if isinstance(declaration, ModelSpec):
            models.append(declaration)
            continue
        declarations.append(declaration)
        keys[declaration.spec.name] = key
    for declaration, key in _yaml_declarations(settings, instead, caches.declarations, problems, broken):
        declarations.append(declaration)
        keys[declaration.spec.name] = key

    def resolve(
        declaration: Declaration,
        inputs: Mapping[TableName, tuple[str, ...] | None],
        logs: frozenset[TableName],
        versions: Mapping[TableName, Versions | None],
    ) -> TableSpec:
        spec = declaration.spec
        declared = (spec.declared_with if isinstance(spec, TableSpec) else None) or spec.name
        facts = json.dumps([[str(n), c, n in logs, repr(versions[n])] for n, c in inputs.items()])
        key = caches.resolved.key(keys[declared], facts, str(spec.name))
        found = caches.resolved.get(key)
        if found is None:
            found = _resolve(declaration, inputs, logs, versions)
            caches.resolved.put(key, found)
        return found

    return _graph(
        declarations, models, frozenset(broken), settings, environ, resolve, problems, files=caches.model_files
    )


# -- files


def _files(settings: Settings, problems: Problems, left_out: frozenset[Path]) -> Iterator[Path]:
    """The declaration files, in order, without some; files that cannot be ones are reported."""
    folder = settings.declarations
    if not folder.is_dir():
        problems.add(
            "FILE",
            f"there is no folder {_shown(settings, folder)}. Make it, or name another with `declarations` in "
            "[tool.freshline].",
            Location("pyproject.toml", 1),
        )
        return
    for base, folders, names in os.walk(folder, followlinks=True):
        depth = len(Path(base).relative_to(folder).parts)
        folders[:] = sorted(
            name for name in folders if not name.startswith(("_", ".")) and (depth > 0 or name != COMPONENTS)
        )
        for name in sorted(names):
            if not name.endswith(SUFFIXES) or name.startswith(("_", ".")) or name in NOT_DECLARATIONS:
                continue
            file = Path(base) / name
            if file in left_out:
                continue
            if depth > 1:
                problems.add(
                    "FILE",
                    "the file lies too deep: a name has at most one namespace, so declarations lie in the folder "
                    f"{_shown(settings, folder)} or one below it. Move it up.",
                    Location(_shown(settings, file), 1),
                )
            else:
                yield file
        if depth > 1:
            folders[:] = []


def _yaml_declarations(
    settings: Settings,
    instead: Mapping[Path, str | None],
    cache: DeclarationCache[Declaration],
    problems: Problems,
    broken: set[TableName],
) -> Iterator[tuple[Declaration, str]]:
    """The tables in the `defs.yaml` of components, with their keys in the cache.

    Mistakes are collected in `problems`, and the names of tables that have any in `broken`.
    """
    for file in sorted((settings.declarations / COMPONENTS).rglob(COMPONENT_FILE)):
        # YAML is loaded only for projects that have such a file.
        from freshline.declare.yaml_table import find_tables

        path = _shown(settings, file)
        try:
            text = instead[file] if file in instead else _text(file, path)
            tables = () if text is None else find_tables(text, path)
        except DeclarationError as error:
            problems.extend(error)
            continue
        for table in tables:
            key = cache.key("yaml", str(table.at), table.text)
            found = cache.get(key)
            try:
                if found is None:
                    clauses = table.clauses()
                    found = _declare(clauses, clauses.name)
                    cache.put(key, found)
            except DeclarationError as error:
                problems.extend(error)
                if table.name is not None:
                    broken.add(table.name)
                continue
            yield found, key


def _shown(settings: Settings, file: Path) -> str:
    return file.relative_to(settings.root).as_posix() if file.is_relative_to(settings.root) else file.as_posix()


def _name_of(path: Path, at: Location) -> TableName:
    parts = (*path.parts[:-1], path.stem)
    if len(parts) == 2 and parts[0] == COMPONENTS:
        raise declaration_error(
            "FILE_NAME",
            f"the folder {COMPONENTS} is that of Dagster's components, so it is no namespace. Choose another name.",
            at,
        )
    for part in parts:
        if not PART.match(part):
            raise declaration_error(
                "FILE_NAME",
                f"{part!r} in the path of the file is not a name: a table is named like its file. Rename it to "
                "letters, digits and underscores, or begin it with an underscore to keep it out.",
                at,
            )
    return TableName(parts[0] if len(parts) == 2 else None, parts[-1])


def _declaration(
    settings: Settings,
    file: Path,
    name: TableName,
    caches: _Caches,
    loader: Callable[[], PythonLoader],
    instead: str | None,
) -> tuple[Declaration | ModelSpec, str]:
    path = _shown(settings, file)
    text = _text(file, path) if instead is None else instead
    if file.suffix == ".sql":
        key = caches.declarations.key("sql", path, text)
        read: Callable[[], Declaration | ModelSpec] = lambda: _declare_sql(text, path, name)  # noqa: E731
    else:
        from freshline.declare.python_file import own_modules

        modules = own_modules(settings.root, file, text)
        key = caches.declarations.key("python", path, text, json.dumps(modules, sort_keys=True))
        read = lambda: loader().read(file, text, path, name)  # noqa: E731
    found = caches.declarations.get(key) or caches.models.get(key)
    if found is None:
        found = read()
        if isinstance(found, ModelSpec):
            caches.models.put(key, found)
        else:
            caches.declarations.put(key, found)
    return found, key


def _text(file: Path, path: str) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise declaration_error(
            "FILE", f"the file cannot be read: {error.strerror or error}.", Location(path, 1)
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise declaration_error(
            "FILE", "the file is not UTF-8 here. Save it as UTF-8.", Location(path, line)
        ) from error


def _python_loader(settings: Settings) -> PythonLoader:
    from freshline.declare.python_loading import PythonLoader

    return PythonLoader(settings)


# -- declarations; sqlglot is loaded below, and so only for what is not in the cache


def _declare_sql(text: str, path: str, name: TableName) -> Declaration | ModelSpec:
    from freshline.declare.model import declare_model
    from freshline.sql.clauses import ModelClauses
    from freshline.sql.statement import read_statement
    from freshline.sql.tokens import Text

    clauses = read_statement(Text(text, path))
    if not isinstance(clauses, ModelClauses):
        return _declare(clauses, name)
    problems = Problems()
    if clauses.name != name:
        problems.add("FILE_NAME", _misplaced("model", clauses.name, name, clauses.written_at), clauses.written_at)
    problems.raise_all()
    return declare_model(clauses)


def _misplaced(kind: str, declared: TableName, name: TableName, at: Location) -> str:
    return (
        f"the file is that of {name}, and declares {declared}. Rename the {kind}, or move the file to "
        f"{'/'.join(declared.parts)}{Path(at.path).suffix}."
    )


def declare_python(root: Path, file: Path, text: str, path: str, name: TableName) -> Declaration:
    """The declaration in a Python file, which is loaded in this process. Raises DeclarationError."""
    from freshline.declare.python_file import read_python

    return _declare(read_python(root, file, text, path, name), name)


def _declare(clauses: object, name: TableName) -> Declaration:
    from freshline.declare.sink import declare_sink
    from freshline.declare.source import declare_source
    from freshline.declare.table import declare_table
    from freshline.sql.clauses import SinkClauses, SourceClauses, TableClauses

    assert isinstance(clauses, (SinkClauses, SourceClauses, TableClauses))
    problems = Problems()
    if clauses.name != name:
        problems.add("FILE_NAME", _misplaced("table", clauses.name, name, clauses.written_at), clauses.written_at)
    try:
        if isinstance(clauses, SinkClauses):
            declaration = declare_sink(clauses)
        elif isinstance(clauses, SourceClauses):
            declaration = declare_source(clauses)
        else:
            declaration = declare_table(clauses)
    except DeclarationError as error:
        problems.extend(error)
        problems.raise_all()
        raise AssertionError("an error was collected") from error
    except ExtensionFailedError as error:
        raise declaration_error("EXTENSION", error.message, clauses.written_at) from error
    problems.raise_all()
    return declaration


def _resolve(
    declaration: Declaration,
    inputs: Mapping[TableName, tuple[str, ...] | None],
    logs: frozenset[TableName],
    versions: Mapping[TableName, Versions | None],
) -> TableSpec:
    from freshline.declare.table import resolve_table

    return resolve_table(declaration, inputs, logs, versions)


def _graph(
    declarations: list[Declaration],
    models: list[ModelSpec],
    broken: frozenset[TableName],
    settings: Settings,
    environ: Mapping[str, str],
    resolve: Resolve,
    problems: Problems,
    *,
    files: DeclarationCache[ModelFile] | None = None,
) -> Graph:
    known = _models(models, declarations, settings, environ, problems, files)
    broken |= {model.name for model in models if model.name not in known}
    predicting = {name: model.known for name, model in known.items()}
    beside = [each for declaration in declarations for each in declaration.beside]
    ordered = arrange([*declarations, *beside], broken, problems)
    by_name = {declaration.spec.name: declaration.spec for declaration in ordered}
    settled: dict[TableName, Declaration] = {}
    for declaration in ordered:
        spec = declaration.spec
        if isinstance(spec, SourceSpec):
            settled[spec.name] = _placed_source(declaration, spec, settings, environ, problems)
            continue
        if any(read not in settled for read in spec.reads):
            continue  # the mistake of its inputs is reported; it is not to blame
        if spec.sink is not None:
            settled[spec.name] = _placed_sink(declaration, spec, settled, settings, environ, problems)
            continue
        inputs = {read: columns_of(settled[read].spec) for read in spec.reads}
        logs = frozenset(read for read in spec.reads if _is_log(settled[read].spec))
        try:
            declaration = _with_own_bounds(declaration, inputs, by_name)
            versions = {read: settled[read].spec.versions for read in spec.reads}
            resolved = resolve(declaration, inputs, logs, versions)
            try_properties(resolved.merge)
            if resolved.query.model_calls:
                called = check_calls(resolved.query.model_calls, predicting, spec.written_at.path, broken)
                resolved = replace(resolved, query=replace(resolved.sql, models=called))
                divided = any(isinstance(b.spec, TableSpec) and b.spec.side_output_of for b in declaration.beside)
                check_kept_models(resolved, problems, has_side_outputs=divided)
            asked = tuple(sorted((n for n in resolved.lookups if _quarantines(settled[n].spec)), key=str))
            resolved = replace(resolved, quarantined_lookups=asked) if asked else resolved
            settled[spec.name] = replace(declaration, spec=resolved)
            _check_window_times(spec, settled, problems)
            _check_nodes(spec, settled, problems)
            if resolved.merge is not None and resolved.merge.follows_changes:
                feed = _check_changes(resolved, settled, declaration, problems)
                if feed is not None and feed.format is not None and feed.format.is_in_source_order:
                    settled[spec.name] = replace(
                        declaration, spec=replace(resolved, merge=resolved.merge.in_source_order())
                    )
        except DeclarationError as error:
            problems.extend(error)
        except ExtensionFailedError as error:
            problems.add("EXTENSION", error.message, spec.written_at)
    thresholds = Thresholds(settings.default_freshness, settings.continuous_below, settings.incremental_below)
    judged = [settled.get(d.spec.name, d) for d in ordered]
    graph = build_graph(judged, thresholds, problems)
    problems.raise_all()
    return replace(graph, models=known)


def _quarantines(spec: Spec) -> bool:
    """Whether rows whose key has no answer of it go to quarantine."""
    lookup = spec.connection if isinstance(spec, SourceSpec) else None
    return isinstance(lookup, Lookup) and lookup.lookup_on_error == OnError.QUARANTINE


def _placed_sink(
    declaration: Declaration,
    spec: TableSpec,
    settled: Mapping[TableName, Declaration],
    settings: Settings,
    environ: Mapping[str, str],
    problems: Problems,
) -> Declaration:
    """The sink with the columns of its table and its paths resolved; mistakes go to `problems`."""
    # Loads the parser, which a project that has no sink does without.
    from freshline.declare.sink import resolve_sink

    (table,) = spec.reads
    try:
        resolved = resolve_sink(declaration, settled[table].spec)
        assert resolved.sink is not None
        place = Place(settings.root, settings.environment, environ, settings.warehouse, declaration.at)
        placed = replace(resolved, sink=resolved.sink.resolve(place))
        try_properties(placed.sink)
        return replace(declaration, spec=placed)
    except DeclarationError as error:
        problems.extend(error)
    except ExtensionFailedError as error:
        problems.add("EXTENSION", error.message, spec.written_at)
    return declaration


def _models(
    models: list[ModelSpec],
    declarations: list[Declaration],
    settings: Settings,
    environ: Mapping[str, str],
    problems: Problems,
    files: DeclarationCache[ModelFile] | None,
) -> dict[TableName, ModelSpec]:
    """The models with what their files have, by name; those with errors are left out."""
    others = {each.spec.name: each.spec for one in declarations for each in (one, *one.beside)}
    found: dict[TableName, ModelSpec] = {}
    for model in sorted(models, key=lambda each: (each.name, each.written_at)):
        other = others.get(model.name) or found.get(model.name)
        if other is not None:
            problems.add(
                "DUPLICATE_NAME",
                f"{model.name} is also declared in {other.written_at}. Names are equal in any letter case: rename or "
                "remove one.",
                model.written_at,
            )
        place = Place(settings.root, settings.environment, environ, settings.warehouse, model.at)
        try:
            found[model.name] = read_model(model, place, files)
        except DeclarationError as error:
            problems.extend(error)
    return found


def _with_own_bounds(
    declaration: Declaration, inputs: Mapping[TableName, tuple[str, ...] | None], specs: Mapping[TableName, Spec]
) -> Declaration:
    """The declaration whose windows take the place of columns of their input that have the same names.

    Which an input has, nobody knows while a file is read alone.
    """
    spec = declaration.spec
    if not isinstance(spec, TableSpec) or not isinstance(spec.query, SqlQuery) or not spec.query.window_times:
        return declaration
    columns = {name: known for name, known in inputs.items() if known is not None}
    if not any(name.lower() in WINDOW_BOUNDS for known in columns.values() for name in known):
        return declaration
    # Loads the parser, which a project that was read before does without.
    from freshline.sql.query_parser import parse_late_rows, parse_query

    path = spec.written_at.path
    if spec.late_rows_of is None:
        query = parse_query(spec.query.written, path, spec.query.line, spec.final, spec.query.moved, columns)
        return replace(declaration, spec=replace(spec, query=query))
    whole = specs[spec.late_rows_of]
    assert isinstance(whole, TableSpec)
    assert whole.final is not None
    late = parse_late_rows(whole.sql.written, path, whole.sql.line, whole.final, columns)
    return declaration if late is None else replace(declaration, spec=replace(spec, query=late))


def _check_window_times(spec: TableSpec, settled: Mapping[TableName, Declaration], problems: Problems) -> None:
    """Check that windows are made of times, where a source's columns are declared; the refresh checks the others."""
    times = (*spec.query.window_times, *spec.query.pattern_times)
    if not times:
        return
    inputs = {read: _window_input(settled[read].spec) for read in spec.reads}
    for time in times:
        error = time.check(inputs, spec.written_at.path)
        if error is not None:
            problems.extend(error)


def _check_nodes(spec: TableSpec, settled: Mapping[TableName, Declaration], problems: Problems) -> None:
    """Check that both ends of edges are nodes, where a source's columns are declared; the refresh checks the others."""
    if spec.query.graph is not None:
        types = {read: _window_input(settled[read].spec).types for read in spec.reads}
        error = spec.query.graph.check(types, spec.written_at.path)
        if error is not None:
            problems.extend(error)


def _check_changes(
    spec: TableSpec, settled: Mapping[TableName, Declaration], declaration: Declaration, problems: Problems
) -> SourceSpec | None:
    """The feed whose changes a table follows. It has the key of the feed: a delete has no other columns."""
    (name,) = spec.driving
    feed = settled[name].spec
    if not isinstance(feed, SourceSpec) or not feed.is_change_feed:
        problems.add(
            "MERGE_ARRIVAL",
            f"'merge.sequence' = 'change' needs the order of the changes of a database, and {name} is no change feed. "
            "Give 'merge.sequence' an expression, and a 'merge.tie-breaker'.",
            declaration.at("merge.sequence"),
        )
        return None
    # Loads the parser, which a project that was read before does without.
    from freshline.sql.columns import plain_columns

    shown = plain_columns(spec.sql, [column.name for column in feed.columns])
    key = {shown.get(column.lower()) for column in spec.primary_key}
    if key != {column.lower() for column in feed.primary_key}:
        problems.add(
            "CHANGE_KEY",
            f"PRIMARY KEY ({', '.join(spec.primary_key)}) is not that of {name}, which is "
            f"({', '.join(feed.primary_key)}). Select these columns as they are, and name them in PRIMARY KEY: the "
            "events of a row have nothing else in common.",
            declaration.at("PRIMARY KEY"),
        )
    return feed


def _window_input(spec: Spec) -> WindowInput:
    types = {column.name.lower(): column.type for column in spec.columns} if isinstance(spec, SourceSpec) else {}
    return WindowInput(types, spec.unique_key)


def _is_log(spec: Spec) -> bool:
    return isinstance(spec, SourceSpec) and spec.is_log


def _placed_source(
    declaration: Declaration, spec: SourceSpec, settings: Settings, environ: Mapping[str, str], problems: Problems
) -> Declaration:
    try:
        place = Place(settings.root, settings.environment, environ, settings.warehouse, declaration.at)
        placed = replace(spec, connection=spec.connection.resolve(place))
        for each in (placed.connection, *placed.formats):
            try_properties(each)
        return replace(declaration, spec=placed)
    except DeclarationError as error:
        problems.extend(error)
    except ExtensionFailedError as error:
        problems.add("EXTENSION", error.message, spec.written_at)
    return declaration

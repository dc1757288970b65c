"""Loading a Python declaration from its file.

A file is loaded by path under a name that nothing else has. While a project is read, its own modules are loaded
anew and forgotten afterwards: a change on disk is always seen, and nothing that is loaded here is found by others.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import io
import sys
import threading
import tokenize
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from freshline.declare.python_table import one_note, read_note, taking_notes
from freshline.sql.clauses import SinkClauses, SourceClauses, TableClauses
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.rules import declaration_error

# Tokens that may go over several lines; parts of f-strings are tokens of their own from Python 3.12 on.
TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
# sys.path and sys.modules belong to the process: one file at a time.
_loading = threading.RLock()


def read_python(
    root: Path, file: Path, text: str, path: str, default_name: TableName
) -> TableClauses | SourceClauses | SinkClauses:
    """The clauses of the one declaration in a Python file; raises DeclarationError.

    `path` is what errors call the file.
    """
    with _loading, _own_modules_apart(root), taking_notes(str(file)) as notes:
        _execute(root, file, text, path)
        note = one_note(notes, path)
        return read_note(note, text, path, default_name, code_hash(root, file, text))


def load_function(root: Path, query: PythonQuery) -> Callable[..., Any]:
    """The function of a Python table, for whoever computes it.

    The project's root stays on `sys.path`, so that the function can import the project's modules when it runs. The
    file itself is not entered in `sys.modules`: its functions are sent to Spark's workers by value.
    """
    file = root / query.path
    with _loading:
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        try:
            text = file.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise declaration_error(
                "FILE", f"cannot be read: {error.strerror or error}.", Location(query.path, 1)
            ) from error
        module = _execute(root, file, text, query.path)
    function = getattr(module, query.function, None)
    if not callable(function):
        raise declaration_error(
            "PYTHON_DECLARATION", f"there is no function {query.function}.", Location(query.path, 1)
        )
    loaded: Callable[..., Any] = function
    return loaded


def own_modules(root: Path, file: Path, text: str) -> dict[str, str]:
    """The text of every module of the project that the file imports, near or far, by its path below the root.

    Imports are found by reading, not by running: one that is computed is not seen.
    """
    found: dict[str, str] = {}
    waiting: list[tuple[Path, str]] = [(file, text)]
    while waiting:
        importer, source = waiting.pop()
        for module in _imported_files(root, importer, source):
            path = module.relative_to(root).as_posix()
            if path in found or module == file:
                continue
            try:
                found[path] = module.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError):
                continue  # importing it will show what is wrong with it
            waiting.append((module, found[path]))
    return found


def code_hash(root: Path, file: Path, text: str) -> str:
    """The sum of what the table computes: the file and the project's modules that it imports.

    Comments, blank lines and the arguments of `freshline.table` and `freshline.process` are left out: another freshness
    is not another table.
    """
    parts = {".": _without_comments(_without_decorators(text))}
    parts.update({path: _without_comments(source) for path, source in own_modules(root, file, text).items()})
    digest = hashlib.sha256()
    for path in sorted(parts):
        digest.update(f"{path}\0{parts[path]}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


# -- loading


def _execute(root: Path, file: Path, text: str, path: str) -> ModuleType:
    name = f"freshline_declaration_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
    module = ModuleType(name)
    module.__file__ = str(file)
    # Dataclasses and pickling find their module by name while the file runs.
    sys.modules[name] = module
    try:
        exec(compile(text, str(file), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        line_at = _raised_at(error, root, file, path)
        first_line = str(error).partition("\n")[0].rstrip(".")
        said = "it ends the process" if isinstance(error, SystemExit) else f"{type(error).__name__}: {first_line}"
        raise declaration_error("PYTHON_FILE", f"the file does not load: {said}. Correct it.", line_at) from error
    finally:
        del sys.modules[name]
    return module


def _raised_at(error: BaseException, root: Path, file: Path, path: str) -> Location:
    """The deepest line of the project's own code from which the error came."""
    if isinstance(error, SyntaxError) and error.filename:
        place = _own_path(error.filename, root, file, path)
        if place is not None:
            return Location(place, error.lineno or 1)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        place = _own_path(frame.filename, root, file, path)
        if place is not None:
            return Location(place, frame.lineno or 1)
    return Location(path, 1)


def _own_path(filename: str, root: Path, file: Path, path: str) -> str | None:
    if filename == str(file):
        return path
    found = Path(filename)
    if _is_own(found, root):
        return found.relative_to(root).as_posix()
    return None


def _is_own(file: Path, root: Path) -> bool:
    """Whether a module's file is the project's own: below the root, not installed, and not freshline itself."""
    if not file.is_relative_to(root) or file.is_relative_to(Path(__file__).parents[1]):
        return False
    return not any(part in ("site-packages", "dist-packages") for part in file.relative_to(root).parts)


@contextmanager
def _own_modules_apart(root: Path) -> Iterator[None]:
    """Load the project's modules anew inside, and leave `sys.modules` and `sys.path` as they were."""
    before = dict(sys.modules)
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    hidden = _top_names(root)
    for name, module in before.items():
        if name != "__main__" and (_is_own_module(module, root) or name.partition(".")[0] in hidden):
            del sys.modules[name]
    sys.path.insert(0, str(root))
    # Bytecode is matched by the second in which its source was written: two changes within one would seem the same.
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode
        for name, module in list(sys.modules.items()):
            if name in before:
                sys.modules[name] = before[name]
            elif _is_own_module(module, root):
                del sys.modules[name]
        sys.modules.update({name: module for name, module in before.items() if name not in sys.modules})


def _top_names(root: Path) -> frozenset[str]:
    """The modules at the top of the project; another of that name may be loaded from elsewhere already."""
    files = {file.stem for file in root.glob("*.py")}
    packages = {file.parent.name for file in root.glob("*/__init__.py")}
    return frozenset((files | packages) - sys.stdlib_module_names - {"__main__", "freshline"})


def _is_own_module(module: ModuleType | None, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    if file:
        return _is_own(Path(file), root)
    # A folder without __init__.py is a module too, with a path for each place that it was found in.
    paths = list(getattr(module, "__path__", ()))
    return bool(paths) and all(_is_own(Path(place), root) for place in paths)


# -- reading


def _imported_files(root: Path, importer: Path, source: str) -> Iterator[Path]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:
                folder = importer.parents[node.level - 1] if node.level <= len(importer.parents) else root
                if not folder.is_relative_to(root):
                    continue
                parts = [*folder.relative_to(root).parts, *parts]
            yield from _files_of(root, parts)
            for alias in node.names:
                yield from _files_of(root, [*parts, alias.name])


def _files_of(root: Path, parts: list[str]) -> Iterator[Path]:
    """The files that importing a module by these parts would run, if it is the project's own."""
    folder = root
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        module, package = folder / f"{part}.py", folder / part / "__init__.py"
        if package.is_file():
            yield package
        elif last and module.is_file() and _is_own(module, root):
            yield module
        folder = folder / part


def _without_decorators(text: str) -> str:
    """The text without the decorators that are called `table` or `process`, as in `@freshline.table(..)`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    lines = io.BytesIO(text.encode()).readlines()
    spans: list[tuple[int, int, int, int]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if name == ("table" if isinstance(node, ast.FunctionDef) else "process"):
                    end_line, end = decorator.end_lineno or decorator.lineno, decorator.end_col_offset or 0
                    spans.append((decorator.lineno - 1, decorator.col_offset, end_line - 1, end))
    for first, start, last, end in reversed(spans):
        lines[first : last + 1] = [lines[first][:start] + lines[last][end:]]
    return b"".join(lines).decode()


def _without_comments(text: str) -> str:
    """The text without comments, blank lines and blanks at ends of lines, but for those inside of texts."""
    lines = text.split("\n")
    inside: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
            elif token.type in TEXTS:
                inside.update(range(token.start[0] - 1, token.end[0] - 1))
    except (tokenize.TokenError, SyntaxError):
        return text
    kept = (line if at in inside else line.rstrip() for at, line in enumerate(lines) if line.strip() or at in inside)
    return "\n".join(kept)

"""Calls of classes that other packages have: an exception that they raise names the package, the class and the method.

The seams derive from `Extension`, which guards each method of a subclass in another package where freshline calls it.
A call by the package itself is left as it is: it may expect the exception. Errors of freshline's tree pass, and so do
those of Spark's jobs, which may be of the user's query (`freshline.refresh.failure` reports these).
"""

from __future__ import annotations

import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, wraps
from importlib.metadata import Distribution, distribution, entry_points, packages_distributions
from pathlib import Path
from typing import Any, TypeVar

from freshline.errors import ExtensionFailedError, FreshlineError

LOG = logging.getLogger(__name__)

GROUPS = (
    "freshline.connectors",
    "freshline.sinks",
    "freshline.lookups",
    "freshline.formats",
    "freshline.merges",
    "freshline.strategies",
    "freshline.registrars",
)
_OWN = __name__.partition(".")[0]
_GUARDED = "_freshline_guarded"
# The error that Spark raises before it runs anything.
_REFUSAL = "AnalysisException"
# So many different failures are logged with their traceback, each once: a loop has one every few seconds.
_MOST_LOGGED = 1_000
_logged: set[tuple[str, str]] = set()

T = TypeVar("T")


class Extension:
    """A class that another package may extend. Its public methods, where that package overrides them, are guarded."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not is_own(cls):
            _guard_methods(cls)


def is_own(kind: type[Any]) -> bool:
    """Whether a class is freshline's own."""
    return _is_own_module(kind.__module__)


@contextmanager
def calling(kind: type[Any] | Callable[..., Any], method: str, *about: Any, runs_query: bool = False) -> Iterator[None]:
    """Report an exception of what another package has as its own: of a class and a method, or of a function.

    `about` are values that may say which declaration it is about. With `runs_query` it runs the user's query, so that
    what Spark refuses may be that. Raises ExtensionFailedError.
    """
    try:
        yield
    except Exception as error:
        if _is_own_module(kind.__module__) or passes(error) or (runs_query and _REFUSAL in _spark_kinds(error)):
            raise
        raise failed(kind, method, error, *about) from error


def passes(error: Exception) -> bool:
    """Whether an exception is reported as it is: one of freshline's, or one of a job of Spark, which reads rows."""
    if isinstance(error, FreshlineError) or getattr(error, "is_expected_of_extensions", False):
        return True
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is not None and frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "py4j":
        return True  # there is no JVM any more
    kinds = _spark_kinds(error)
    return "Py4JError" in kinds or ("CapturedException" in kinds and _REFUSAL not in kinds)


def _spark_kinds(error: Exception) -> set[str]:
    """The classes of Spark that an exception has, by their names: Spark is not loaded to find them."""
    return {each.__name__ for each in type(error).__mro__ if each.__module__.partition(".")[0] in ("pyspark", "py4j")}


def failed(
    kind: type[Any] | Callable[..., Any], method: str, error: BaseException, *about: Any
) -> ExtensionFailedError:
    """The error to report for an exception of another package; its traceback goes to the log."""
    package, name = package_of(kind), kind.__qualname__ + (f".{method}" if method else "")
    said = f"{type(error).__name__}: {_first_line(error)}"
    place = _place_in(error, kind)
    if len(_logged) < _MOST_LOGGED and (name, said) not in _logged:
        _logged.add((name, said))
        LOG.error("%s of %s raised %s", name, package, said, exc_info=error)
    return ExtensionFailedError(package, name, f"raised {said}{f' ({place})' if place else ''}", where=where_of(*about))


def broken(kind: type[Any] | Callable[..., Any], method: str, sentence: str, *about: Any) -> ExtensionFailedError:
    """The error for a class of another package that does not keep what its seam asks; `sentence` is what it does."""
    name = kind.__qualname__ + (f".{method}" if method else "")
    return ExtensionFailedError(package_of(kind), name, sentence, where=where_of(*about))


def given(value: T, kind: type[Any], owner: type[Any], method: str, *about: Any) -> T:
    """The value that a method gave, which has to be of this kind. Raises ExtensionFailedError."""
    if not isinstance(value, kind):
        raise broken(owner, method, f"gives {value!r}, which is no {kind.__name__}", *about)
    return value


def try_properties(value: object) -> None:
    """Ask an object of another package for each property of its seam. Raises ExtensionFailedError.

    They are asked for later where nobody expects an error: for a fingerprint, on the board, in Dagster.
    """
    kind = type(value)
    for name in _of_seam(kind) if not is_own(kind) else ():
        member = inspect.getattr_static(kind, name)
        if isinstance(member, property | cached_property) and not is_own(_definer(kind, name)):
            with calling(kind, name, value):
                getattr(value, name)


def where_of(*about: Any) -> str | None:
    """The table and the file of the first value that is a spec, or has one; None where there is none."""
    for value in about:
        spec: Any = value if hasattr(value, "written_at") else getattr(value, "spec", None)
        if spec is not None and hasattr(spec, "written_at") and hasattr(spec, "name"):
            return f"{spec.name} ({spec.written_at})"
    return None


def package_of(kind: type[Any] | Callable[..., Any]) -> str:
    """The package that a class or function is of, with its version, or its module where no package has it."""
    found = _distribution(kind.__module__.partition(".")[0])
    return f"the module {kind.__module__}" if found is None else f"{found.name} {found.version}"


def is_file_of(path: str, kind: type[Any] | Callable[..., Any]) -> bool:
    """Whether a file is one of the package that has a class or function.

    Where nothing lists the files of a package, those beside its module are.
    """
    top = kind.__module__.partition(".")[0]
    begins = getattr(sys.modules.get(top), "__file__", None)
    if begins is None:
        return False
    root, file = Path(begins), Path(path)
    if root.name == "__init__.py":
        return root.parent in file.parents
    found = _distribution(top)
    if found is None or not found.files:
        return file.parent == root.parent
    listed = found.files
    return file == root or any(Path(str(found.locate_file(each))) == file for each in listed if each.name == file.name)


@cache
def _distribution(top: str) -> Distribution | None:
    for group in GROUPS:
        for entry in entry_points(group=group):
            if entry.module.partition(".")[0] == top and entry.dist is not None:
                return entry.dist
    names = packages_distributions().get(top, [])
    if names:
        return distribution(names[0])
    # A module beside those that an entry point names, in a package that lists no files.
    file = getattr(sys.modules.get(top), "__file__", None)
    for group in GROUPS if file is not None else ():
        for entry in entry_points(group=group):
            named = getattr(sys.modules.get(entry.module), "__file__", None)
            if named is not None and entry.dist is not None and Path(named).parent == Path(str(file)).parent:
                return entry.dist
    return None


def forget_packages() -> None:
    """Forget the known packages of modules, after some were installed."""
    _distribution.cache_clear()


def _guard_methods(kind: type[Any]) -> None:
    for name in _of_seam(kind):
        definer = _definer(kind, name)
        if is_own(definer):
            continue
        guarded = _guarded_member(vars(definer)[name], kind, name)
        if guarded is not None:
            setattr(kind, name, guarded)


def _of_seam(kind: type[Any]) -> tuple[str, ...]:
    """The public names of the classes of freshline that a class extends."""
    seams = [each for each in kind.__mro__ if issubclass(each, Extension) and is_own(each)]
    return tuple(dict.fromkeys(name for seam in seams for name in vars(seam) if not name.startswith("_")))


def _definer(kind: type[Any], name: str) -> type[Any]:
    return next(each for each in kind.__mro__ if name in vars(each))


def _guarded_member(member: Any, kind: type[Any], name: str) -> Any:
    """The same member of a class with a guard around it; None for one that is no method, or has a guard."""
    if isinstance(member, classmethod | staticmethod):
        guarded = _guarded(member.__func__, kind, name)
        return None if guarded is None else type(member)(guarded)
    if isinstance(member, property):
        guarded = None if member.fget is None else _guarded(member.fget, kind, name)
        return None if guarded is None else property(guarded, member.fset, member.fdel, member.__doc__)
    if isinstance(member, cached_property):
        guarded = _guarded(member.func, kind, name)
        if guarded is None:
            return None
        kept: cached_property[Any] = cached_property(guarded)
        kept.__set_name__(kind, name)
        return kept
    return _guarded(member, kind, name) if inspect.isfunction(member) else None


def _guarded(function: Any, kind: type[Any], name: str) -> Any:
    if getattr(function, _GUARDED, False):
        return None

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        while caller.f_globals.get("__name__") == cached_property.__module__ and caller.f_back is not None:
            caller = caller.f_back
        if not _is_own_module(caller.f_globals.get("__name__", "")):
            return function(*args, **kwargs)
        with calling(kind, name, *args, *kwargs.values()):
            return function(*args, **kwargs)

    setattr(call, _GUARDED, True)
    return call


def _is_own_module(name: str) -> bool:
    return name.partition(".")[0] == _OWN


def _first_line(error: BaseException) -> str:
    line = next((line.strip() for line in str(error).split("\n") if line.strip()), "no message")
    return line if len(line) <= 300 else line[:297] + "..."


def _place_in(error: BaseException, kind: type[Any] | Callable[..., Any]) -> str:
    """The file and line of the package where an exception came from, the deepest of it."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_own_file(each.filename)]
    found = next((each for each in reversed(frames) if is_file_of(each.filename, kind)), None)
    found = found or (frames[0] if frames else None)
    return "" if found is None else f"{Path(found.filename).name}:{found.lineno}"


def _is_own_file(name: str) -> bool:
    return Path(__file__).parents[1] in Path(name).parents

"""Parsed declarations, kept by the content they were parsed from.

A cache may be lost, damaged or unwritable at any moment without any effect but time. It is one file of JSON, written
beside its place and then renamed, and begins with the sum of what follows: a damaged file is never decoded. Its content
is read as values of known classes, so whoever can write the file can give wrong values and run nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from freshline.values.connector import Connector
from freshline.values.format import Format
from freshline.values.freshness import Freshness
from freshline.values.merge import Merge
from freshline.values.registry import find_connector, find_format, find_merge, find_sink, origin
from freshline.values.sink import Sink
from freshline.values.spec import Downstream
from freshline.version import __version__

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

# The folders of freshline whose code makes declarations of texts.
PARSING = ("values", "sql", "declare", "sources", "sinks", "merges", "keyed")


class DeclarationCache(Generic[T]):
    """Values of one class that were parsed last time, and those that were used this time.

    Read with `get`, filled with `put`, written with `save`, which keeps only what this reading used.
    """

    def __init__(self, folder: Path, kind: Any, made_by: tuple[str, ...] = PARSING) -> None:
        """`kind` is the class or type of the values: frozen dataclasses, enums, mappings and tuples of these.

        `made_by` are the folders of freshline whose code the values follow from.
        """
        self._file = folder / "parsed"
        self._kind = kind
        self._salt = _salt(made_by)
        self._stored: dict[str, Any] | None = None
        self._used: dict[str, Any] = {}
        self._parsed = False

    def key(self, *parts: str) -> str:
        """A key over texts; it changes with the version of freshline and of what it parses with."""
        text = hashlib.sha256(self._salt.encode())
        for part in parts:
            text.update(f"{len(part)}:".encode())
            text.update(part.encode("utf-8", "surrogateescape"))
        return text.hexdigest()

    def get(self, key: str) -> T | None:
        """The stored value, None where there is none."""
        stored = self._loaded().get(key)
        if stored is None:
            return None
        try:
            value: T = _converter().structure(stored, self._kind)
        except (AttributeError, KeyError, LookupError, TypeError, ValueError):
            return None  # not what is written here
        self._used[key] = stored
        return value

    def put(self, key: str, value: T) -> None:
        """Keep a value for the next time."""
        self._used[key] = _converter().unstructure(value, unstructure_as=self._kind)
        self._parsed = True

    def save(self) -> None:
        """Write what was used, if it differs from what is stored. A folder that cannot be written is left alone."""
        if not self._parsed and self._used.keys() == self._loaded().keys():
            return
        content = json.dumps(self._used, separators=(",", ":")).encode()
        # Reading a project must work on a read-only disk: it is then only slower.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix=".parsed-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(content).digest() + content)
                Path(name).replace(self._file)
            except BaseException:
                Path(name).unlink()
                raise

    def _loaded(self) -> dict[str, Any]:
        if self._stored is None:
            self._stored = self._load()
        return self._stored

    def _load(self) -> dict[str, Any]:
        try:
            data = self._file.read_bytes()
        except OSError:
            return {}  # none yet, or not ours to read: parse again
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            return {}
        try:
            stored = json.loads(data[32:])
        except (ValueError, RecursionError):
            return {}  # written by a version that kept another format
        return stored if isinstance(stored, dict) else {}


def to_values(value: Any, kind: Any) -> Any:
    """A value of that class in a form that JSON has."""
    return _converter().unstructure(value, unstructure_as=kind)


def from_values(values: Any, kind: Any) -> Any:
    """The value of that class from what `to_values` made of it."""
    return _converter().structure(values, kind)


@cache
def _converter() -> Converter:
    """Values to JSON and back. Loaded with the first value: a command that reads none does without."""
    from cattrs.preconf.json import make_converter

    # One error says enough: the value is parsed again.
    converter = make_converter(detailed_validation=False)

    def freshness(value: Any, _: Any) -> Freshness | Downstream | None:
        if value is None or isinstance(value, str):
            return None if value is None else Downstream(value)
        return converter.structure(value, Freshness)

    for kind in (Freshness | Downstream, Freshness | Downstream | None):
        converter.register_structure_hook(kind, freshness)
    # The class of a connector, sink, format or merge is found by its name, also in another package.
    for base, find in (
        (Connector, find_connector),
        (Sink, find_sink),
        (Format, find_format),
        (Merge, find_merge),
    ):
        _register(converter, base, find)
    return converter


def _register(converter: Converter, base: type[Any], find: Callable[[str], type[Any]]) -> None:
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

    writers: dict[type[Any], Callable[[Any], Any]] = {}
    readers: dict[type[Any], Callable[[Any, Any], Any]] = {}

    def write(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        kind = type(value)
        if kind not in writers:
            writers[kind] = make_dict_unstructure_fn(kind, converter)
        return {"name": value.name, "origin": origin(kind), "values": writers[kind](value)}

    def read(value: Any, _: Any) -> Any:
        if value is None:
            return None
        kind = find(value["name"])
        if value["origin"] != origin(kind):
            raise ValueError(f"{value['name']} was of {value['origin']}")
        if kind not in readers:
            readers[kind] = make_dict_structure_fn(kind, converter)
        return readers[kind](value["values"], kind)

    for kind in (base, base | None):
        converter.register_unstructure_hook(kind, write)
        converter.register_structure_hook(kind, read)


@cache
def _salt(made_by: tuple[str, ...]) -> str:
    """The versions of what parses; the sizes and times of our own modules make it right during development too."""
    library = Path(__file__).parent.parent
    folders = [library / name for name in made_by]
    modules = sorted(module for folder in folders for module in folder.rglob("*.py"))
    facts = [(module.name, (stat := module.stat()).st_size, stat.st_mtime_ns) for module in modules]
    return f"{__version__} {version('sqlglot')} {facts}"

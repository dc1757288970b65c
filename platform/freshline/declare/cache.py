"""Parsed declarations, kept by the content they were parsed from.

A cache may be lost, damaged or unwritable at any moment without any effect but time. It is one file, written beside
its place and then renamed, and begins with the sum of what follows: a damaged file is never decoded.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from freshline import __version__


class DeclarationCache:
    """What was parsed last time, and what was used this time.

    Read with `get`, filled with `put`, written with `save`, which keeps only what this reading used.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "parsed"
        self._salt = _salt()
        self._stored: dict[str, Any] | None = None
        self._used: dict[str, Any] = {}

    def key(self, *parts: str) -> str:
        """A key over texts; it changes with the version of freshline and of what it parses with."""
        text = hashlib.sha256(self._salt.encode())
        for part in parts:
            text.update(f"{len(part)}:".encode())
            text.update(part.encode("utf-8", "surrogateescape"))
        return text.hexdigest()

    def get(self, key: str) -> Any:
        """The stored value, None where there is none."""
        if self._stored is None:
            self._stored = self._load()
        value = self._stored.get(key)
        if value is not None:
            self._used[key] = value
        return value

    def put(self, key: str, value: Any) -> None:
        self._used[key] = value

    def save(self) -> None:
        """Write what was used, if it differs from what is stored. A folder that cannot be written is left alone."""
        if self._stored is not None and self._used.keys() == self._stored.keys():
            return
        content = pickle.dumps(self._used, protocol=pickle.HIGHEST_PROTOCOL)
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

    def _load(self) -> dict[str, Any]:
        try:
            data = self._file.read_bytes()
        except OSError:
            return {}  # none yet, or not ours to read: parse again
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            return {}
        try:
            stored = pickle.loads(data[32:])
        except (AttributeError, ImportError, IndexError, TypeError, ValueError, EOFError, pickle.UnpicklingError):
            return {}  # written by another version, whose classes are gone
        return stored if isinstance(stored, dict) else {}


def _salt() -> str:
    """The versions of what parses; the sizes and times of our own modules make it right during development too."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    facts = [(module.name, (stat := module.stat()).st_size, stat.st_mtime_ns) for module in modules]
    return f"{__version__} {version('sqlglot')} {facts}"

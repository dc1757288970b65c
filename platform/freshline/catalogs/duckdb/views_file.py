"""The file of views: read whole, changed in memory, and replaced in one step.

A reader sees the file as it was before or after. Others that change it through freshline wait for each other. Killed
before the last step, the file is as it was.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from freshline.catalogs.duckdb.registrar import DuckDb
from freshline.errors import CatalogError
from freshline.values.registrar import (
    TABLE_PROPERTY,
    WAREHOUSE_PROPERTY,
    Catalog,
    CatalogEntry,
    FoundEntry,
)

_BEGIN = re.compile(
    rf"-- {WAREHOUSE_PROPERTY}=(?P<warehouse>\S+) {TABLE_PROPERTY}=(?P<table>\S+) place=(?P<place>.+)\Z"
)
_END = "-- freshline_end"
_HEAD = (
    "-- Views of Delta tables. Blocks from a line with freshline_warehouse to one with freshline_end are freshline's",
    "-- and are written again by it. Other statements in this file are yours.",
)
_NAME = r'(?:"(?:[^"]|"")*"|[A-Za-z_]\w*)'
# Where a statement of somebody else makes a view or table.
_MADE = re.compile(
    rf"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:VIEW|TABLE|MACRO)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    rf"({_NAME}(?:\s*\.\s*{_NAME})*)",
    re.IGNORECASE,
)
_PATIENCE_SECONDS = 10.0


class ViewsFile(Catalog):
    """The statements of a file: lines of others as they are, and our blocks by their places."""

    def __init__(self, registrar: DuckDb, text: str) -> None:
        self._registrar = registrar
        self._parts: list[str | FoundEntry] = list(_parts(text))
        self.changed = False

    def find(self, warehouse_id: str, places: Collection[str]) -> Iterator[FoundEntry]:
        made = {place for part in self._parts if isinstance(part, str) for place in self._made(part)}
        ours = {
            part.place for part in self._parts if isinstance(part, FoundEntry) and part.warehouse_id == warehouse_id
        }
        yield from (FoundEntry(place) for place in sorted(made & set(places) - ours))
        yield from (part for part in self._parts if isinstance(part, FoundEntry))

    def write(self, entry: CatalogEntry, found: FoundEntry | None) -> None:
        place, content = self._registrar.place(entry.name), self._registrar.statements(entry)
        new = FoundEntry(place, content, entry.warehouse_id, entry.table_id)
        if found in self._parts:
            self._parts[self._parts.index(found)] = new
        else:
            self._parts.append(new)
        self.changed = True

    def drop(self, found: FoundEntry) -> None:
        self._parts.remove(found)
        self.changed = True

    def _made(self, text: str) -> Iterator[str]:
        """The places of the views and tables that statements of others make."""
        for match in _MADE.finditer(text):
            names = [each.strip('"').replace('""', '"') for each in re.findall(_NAME, match[1])]
            yield ".".join(names[-2:] if len(names) > 1 else ("main", *names)).lower()

    @property
    def text(self) -> str:
        """The whole file."""
        lines = [_block(part) if isinstance(part, FoundEntry) else part for part in self._parts]
        if not any(isinstance(part, str) for part in self._parts):
            lines[:0] = ["\n".join(_HEAD)]
        return "\n".join(lines) + "\n"


def _parts(text: str) -> Iterator[str | FoundEntry]:
    """The blocks of a file and the lines between them. Raises CatalogError for a block without an end."""
    kept: list[str] = []
    begin: re.Match[str] | None = None
    block: list[str] = []
    for line in text.removesuffix("\n").split("\n") if text else ():
        if begin is not None:
            if line == _END:
                yield FoundEntry(begin["place"], "\n".join(block), begin["warehouse"], begin["table"])
                begin, block = None, []
            else:
                block.append(line)
        elif (begin := _BEGIN.match(line)) is not None:
            if kept:
                yield "\n".join(kept)
            kept = []
        else:
            kept.append(line)
    if begin is not None:
        raise CatalogError(
            f"the views file has a block without its last line, `{_END}`. Remove the block, from its first line "
            "on, and sync again.",
            refused=True,
        )
    if kept:
        yield "\n".join(kept)


def _block(entry: FoundEntry) -> str:
    head = f"-- {WAREHOUSE_PROPERTY}={entry.warehouse_id} {TABLE_PROPERTY}={entry.table_id} place={entry.place}"
    return f"{head}\n{entry.content}\n{_END}"


@contextmanager
def open_views(registrar: DuckDb, file: Path) -> Iterator[ViewsFile]:
    """The views of a file, which is replaced at the end of the block where something changed. Raises CatalogError.

    The error names the file as the settings do, which may be a reference.
    """
    try:
        # The file itself is replaced, and not a link that leads to it.
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.parent, registrar.file):
            text = target.read_bytes().decode() if target.exists() else ""
            views = ViewsFile(registrar, text)
            yield views
            if views.changed:
                _replace(target, views.text)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CatalogError(f"the views file {registrar.file} cannot be written: {reason}.") from error
    except UnicodeDecodeError as error:
        raise CatalogError(
            f"the views file {registrar.file} is not UTF-8. Remove it, and sync again.", refused=True
        ) from error


@contextmanager
def _alone(folder: Path, shown: str) -> Iterator[None]:
    """Wait until nobody else changes a file of views in this folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CatalogError(
                        f"somebody else has been writing the folder of {shown} for {_PATIENCE_SECONDS:.0f} seconds."
                    ) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _replace(file: Path, text: str) -> None:
    part = file.with_name(f".{file.name}.{uuid4().hex}")
    try:
        with part.open("wb") as written:
            if file.exists():
                os.fchmod(written.fileno(), file.stat().st_mode & 0o777)
            written.write(text.encode())
            written.flush()
            os.fsync(written.fileno())
        part.replace(file)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise

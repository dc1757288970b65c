"""Small files that are kept beside the tables: notes, which are JSON below `.freshline`, and those that never change.

A note is written whole or not at all, and is on the disk when the call returns: what a crash leaves is the file as it
was before or after, and perhaps one with another name that nobody reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from freshline.errors import StorageError

ENDING = ".json"


def read_note(path: Path) -> dict[str, Any] | None:
    """The content of a file, None where there is none. Raises StorageError for one that cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise StorageError(f"{path.name} cannot be read: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise StorageError(f"{path.name} holds no object", where=str(path))
    return value


def read_notes(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """All files of a folder, by name."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ENDING)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"the folder cannot be read: {error}", where=str(folder)) from error
    for file in files:
        value = read_note(file)
        if value is not None:
            yield file, value


def write_note(path: Path, value: Mapping[str, Any], *, new: bool = False) -> bool:
    """Write a file; with `new`, False where one of this name is there already, which stays as it is."""
    # No reader takes it for a note: it has another ending.
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            json.dump(dict(value), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        try:
            if new:
                os.link(partial, path)
            else:
                partial.replace(path)
        except FileExistsError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as error:
        raise StorageError(
            f"{path.name} cannot be written: {error.strerror or error}. Make room, or make it writable.",
            where=str(path),
        ) from error
    return True


def remove_note(path: Path) -> bool:
    """Remove a file; whether it was there."""
    try:
        path.unlink()
        _sync(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"{path.name} cannot be removed: {error.strerror or error}.", where=str(path)) from error
    return True


def keep_file(path: Path, content: bytes) -> None:
    """Write a file that is named by its content, unless it is there. It is moved to its place in one step.

    Raises StorageError where the warehouse cannot be written.
    """
    try:
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{uuid4().hex}")
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise StorageError(
            f"the warehouse cannot be written: {error.strerror or error}. Make it writable for this user.",
            where=str(path),
        ) from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

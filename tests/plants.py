"""Bugs that are planted on purpose, into a copy of the library: who looks for bugs must find these first."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "platform" / "freshline"


@dataclass(frozen=True)
class Plant:
    """One bug: in `file`, below platform/freshline, `new` stands in place of `old`. `why` says what it lets happen."""

    name: str
    file: str
    old: str
    new: str
    why: str


def planted_copy(plant: Plant, folder: Path) -> Path:
    """Copy the library to folder/freshline with the bug in it; returns the folder to put on PYTHONPATH.

    Raises ValueError where the text to replace does not occur exactly once.
    """
    text = (LIBRARY / plant.file).read_text(encoding="utf-8")
    found = text.count(plant.old)
    if found != 1:
        raise ValueError(f"{plant.name}: the text to replace occurs {found} times in {plant.file}, not once")
    shutil.copytree(LIBRARY, folder / "freshline", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "freshline" / plant.file).write_text(text.replace(plant.old, plant.new), encoding="utf-8")
    return folder

"""The identity of a file or folder of this machine, which a copy of it does not have.

A copy of a warehouse or of a state folder has the records of its original: which process has it, at which port it
answers. Such a record is true only in the folder in which it was written, so it carries that folder's identity.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FileId:
    """The device and inode of a file or folder: kept by a rename, new in a copy."""

    device: int
    inode: int

    @classmethod
    def of(cls, file: Path | int) -> FileId:
        """The identity of what is at a path, or behind an open descriptor. Raises OSError where there is nothing."""
        status = os.stat(file)  # noqa: PTH116 - a descriptor has no path
        return cls(status.st_dev, status.st_ino)

    @classmethod
    def from_json(cls, value: object) -> FileId | None:
        """The identity in a record; None in records of versions that did not write one. Raises ValueError."""
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("not a device and an inode")
        return cls(int(value[0]), int(value[1]))

    def as_json(self) -> list[int]:
        """The form in which records carry it."""
        return [self.device, self.inode]

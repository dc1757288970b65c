"""The clock of the attacked processes, which can be moved both ways while they run.

A library of some lines is compiled for it (`clock.c`) and loaded into every process of the run. Without a C compiler,
or on another system than Linux, clocks are not moved, and the report says so.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")


@dataclass(frozen=True)
class Clock:
    """The offset of the clock in a file, and the library that reads it there; without a library nothing moves."""

    file: Path
    library: Path | None

    @classmethod
    def open(cls, folder: Path) -> Clock:
        """Compile the library where that can be, and set the clock right."""
        compiler = shutil.which("cc") if sys.platform == "linux" else None
        library = folder / "clock.so"
        if compiler is not None:
            subprocess.run(
                [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"],
                check=True,
                capture_output=True,
            )
        clock = cls(folder / "clock", library if compiler is not None else None)
        clock.move(0)
        return clock

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that a process needs to follow this clock."""
        if self.library is None:
            return {}
        return {"LD_PRELOAD": str(self.library), "FRESHLINE_CHAOS_CLOCK": str(self.file)}

    def move(self, seconds: float) -> None:
        """Set the clock off the real one by some seconds."""
        # In place: the processes have this very file in their memory.
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("<q", round(seconds * 1e9)))

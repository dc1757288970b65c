"""The disk of the attacked project: a file system in a file, so that it can be full or refuse writes for real.

It needs root, loop devices and mkfs.ext4, and a mount namespace of the harness's own (`unshare --mount`), in which
nothing is left over when the harness is killed. Without these the project is in a plain folder and the faults of disks
are not tried, and the report says so.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

IN_NAMESPACE = "FRESHLINE_CHAOS_NAMESPACE"
_MEGABYTES = 3_000


def enter_namespace(arguments: Sequence[str]) -> None:
    """Go on in a mount namespace of this process's own, where that can be; returns where it is one, or cannot be."""
    if IN_NAMESPACE in os.environ or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    if tried.returncode == 0:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", "tests.chaos", *arguments])


@dataclass
class Disk:
    """A mounted file system; `real` is False where it is only a folder."""

    folder: Path
    real: bool
    _read_only: list[Path] = field(default_factory=list)

    @classmethod
    def open(cls, image: Path, folder: Path) -> Disk:
        """Make the file system, or take the one that is in the file already, and mount it."""
        folder.mkdir(exist_ok=True)
        if IN_NAMESPACE not in os.environ or shutil.which("mkfs.ext4") is None:
            return cls(folder, real=False)
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(_MEGABYTES * 1_000_000)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        tried = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, check=False)
        return cls(folder, real=tried.returncode == 0)

    def fill(self) -> None:
        """Take all space that is left."""
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            block = bytes(1_000_000)
            for size in (len(block), 4096, 1):
                try:
                    while True:
                        file.write(block[:size])
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the space back."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def refuse_writes(self, folder: Path) -> None:
        """Let a folder refuse writes to whoever opens something in it from now on."""
        # Made read-only where nobody opens anything, because a mount in which a file is open for writing cannot be. A
        # mount of that one is read-only from the beginning.
        aside = Path(tempfile.mkdtemp(prefix="freshline-chaos-"))
        _run("mount", "--bind", str(folder), str(aside))
        try:
            _run("mount", "-o", "remount,bind,ro", str(aside))
            _run("mount", "--bind", str(aside), str(folder))
            self._read_only.append(folder)
        finally:
            _run("umount", "--lazy", str(aside))
            aside.rmdir()

    def allow_writes(self) -> None:
        """Let all folders take writes again."""
        while self._read_only:
            _run("umount", "--lazy", str(self._read_only.pop()))

    def close(self) -> None:
        """Unmount; the file keeps what is in it."""
        self.allow_writes()
        if self.real:
            _run("umount", "--lazy", str(self.folder))


def _run(*line: str) -> None:
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(line)}: {done.stderr.strip()}")

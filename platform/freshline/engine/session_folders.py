"""The places of one Spark session below the state folder, and what killed sessions left in them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path

import psutil

_PREFIX = "freshline-"
# The process that a scratch folder, the link to one, or a file of confs is of.
_OWNER = re.compile(r"(\d+)(?:-[0-9a-f]+(?:\.conf)?)?\Z")


class SessionFolders:
    """The places of a session below the state folder.

    Its scratch folder has a name that nobody can foresee, so nobody can put a link in its place beforehand.
    """

    def __init__(self, state: Path) -> None:
        self.state = state
        self.base = state / "spark"
        self.pools = self.base / "pools.xml"
        self.log4j = self.base / "log4j2.properties"
        self.unnamed_tables = self.base / "unnamed"
        self.scratch_of_all = self.base / "scratch"
        self._own = self.scratch_of_all / f"{os.getpid()}-{secrets.token_hex(8)}"
        self.scratch = self._own
        self.logs = state / "logs"
        self.spark_log = self.logs / "spark.log"
        self.jvm_log = self.logs / "jvm.log"

    @property
    def confs(self) -> Path:
        """The file with Spark's confs while it starts."""
        return self._own.with_name(f"{self._own.name}.conf")

    def make(self) -> None:
        """Make what is missing and remove the scratch folders that killed sessions left."""
        self.scratch_of_all.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.unnamed_tables.mkdir(exist_ok=True)
        for left in self.scratch_of_all.iterdir():
            owner = _OWNER.match(left.name)
            if owner is not None and not psutil.pid_exists(int(owner[1])):
                _remove(left)
        if "," in str(self.state):
            # Spark splits this path at commas, wherever it takes it from, and has no way to write one. The folder is
            # elsewhere then, and a link here says where.
            self.scratch = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._own.symlink_to(self.scratch)
        else:
            self.scratch.mkdir(mode=0o700)

    def remove_scratch(self) -> None:
        """Remove what this session wrote beside tables."""
        _remove(self._own)


def _remove(scratch: Path) -> None:
    if scratch.is_symlink():
        target = scratch.readlink()
        # Others may write to a shared state folder. Only a folder as `make` makes it is removed.
        if target.parent == Path(tempfile.gettempdir()) and target.name.startswith(_PREFIX) and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        scratch.unlink(missing_ok=True)
    elif scratch.is_dir():
        shutil.rmtree(scratch, ignore_errors=True)
    else:
        scratch.unlink(missing_ok=True)


def write_private(file: Path, text: str) -> None:
    """Write a new file that only its owner can read, from its first byte on."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)

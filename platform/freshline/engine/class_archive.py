"""The parsed classes of Spark and Delta, kept from one JVM for the next: a start takes a third of the CPU time.

The JVM checks by itself that an archive belongs to it and to its class path, and does without otherwise, and says
nothing. It is recorded by a session that is asked to and finds none, when it ends in order, and renamed into place by
`keep`; what a killed one left half written is never used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from freshline.engine.jars import user_cache
from freshline.engine.java import Java

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassArchive:
    """One archive: `file` is its place, `part` the file that this process writes, if it `is_recorded`."""

    file: Path
    part: Path
    is_recorded: bool

    @classmethod
    def find(cls, java: Java, *, record: bool, folder: Path | None = None, spark: Path | None = None) -> ClassArchive:
        """The archive of a Java and a Spark, in the user's cache unless a `folder` is named.

        `spark` is the folder of the Spark whose jars are meant, by default the one that is imported.
        """
        folder = user_cache() / "classes" if folder is None else folder
        spark = Path(pyspark.__file__).parent if spark is None else spark
        place = _digest(f"{java.version_text}\n{java.home}\n{spark / '__init__.py'}")
        name = f"spark-{pyspark.__version__}-java-{java.version}-{place}-{_digest(_jars(spark))}.jsa"
        file = folder / name
        part = file.with_name(f".{name}.{os.getpid()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(f".spark-*-{place}-*.jsa.*"):
                if not psutil.pid_exists(int(left.name.rpartition(".")[2])):
                    left.unlink(missing_ok=True)
        except OSError as error:
            # A read-only home costs a slower start and nothing else.
            LOG.info("no class-data archive: %s", error)
            return cls(file=file, part=part, is_recorded=False)
        return cls(file=file, part=part, is_recorded=record and not file.exists())

    def options(self) -> list[str]:
        """The options that make a JVM use the archive, or record it."""
        quiet = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"]
        if self.is_recorded:
            return [shlex.quote(f"-XX:ArchiveClassesAtExit={self.part}"), *quiet]
        if self.file.exists():
            return [shlex.quote(f"-XX:SharedArchiveFile={self.file}"), *quiet]
        return []

    def keep(self) -> None:
        """Put what was recorded into its place, and remove the archives of jars that were in that place before."""
        if not (self.is_recorded and self.part.is_file()):
            return
        self.part.replace(self.file)
        place = self.file.stem.split("-")[-2]
        for other in self.file.parent.glob(f"spark-*-{place}*.jsa"):
            if other != self.file:
                # 200 MB each. A JVM that uses it has it open.
                other.unlink(missing_ok=True)

    def drop(self) -> None:
        """Remove what was recorded in part."""
        self.part.unlink(missing_ok=True)


def _jars(spark: Path) -> str:
    """The facts of each jar that the JVM compares. Spark that is installed again in its place has other times."""
    found = sorted((jar.name, jar.stat()) for jar in (spark / "jars").glob("*.jar"))
    return "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

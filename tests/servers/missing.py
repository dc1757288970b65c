"""Tests of a server that a machine does not have are skipped, or fail where the environment requires it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from freshline.declare.project_settings import read_settings
from freshline.engine.jars import parse_lock, provide_jars
from freshline.engine.java import find_java
from freshline.errors import JarError, JavaError


def report_missing(name: str, remedy: str) -> NoReturn:
    """Skip a test that needs a server, or fail where `FRESHLINE_REQUIRE_<NAME>` is set."""
    if os.environ.get(f"FRESHLINE_REQUIRE_{name.upper()}"):
        pytest.fail(f"{name} is required here and missing ({remedy})")
    pytest.skip(f"{name} is missing ({remedy})")


def require_jars(name: str, lock: Path, folder: Path) -> tuple[Path, list[Path]]:
    """Java's program and the jars of a lock, which are fetched where they are not there."""
    (folder / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    # By the environment: jars may have to come from a mirror or a folder.
    settings = read_settings(folder, os.environ)
    try:
        jars = provide_jars(settings, lock=parse_lock(lock.read_text(encoding="utf-8")))
        return find_java(settings).home / "bin" / "java", list(jars)
    except (JarError, JavaError) as error:
        report_missing(name, str(error))

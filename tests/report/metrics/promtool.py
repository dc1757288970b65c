"""promtool, Prometheus' own check of metrics and rules, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGE = "prometheus"  # of Debian; it has the program


def find_promtool() -> str:
    """The program; skipped where it is not installed, unless the environment requires it."""
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("FRESHLINE_REQUIRE_PROMTOOL"):
            pytest.fail(f"promtool is required here and not installed: apt-get install {PACKAGE}")
        pytest.skip(f"promtool is not installed: apt-get install {PACKAGE}")
    return found


def check_metrics(text: str) -> str:
    """The output of `promtool check metrics` for a scrape: nothing where all is well."""
    return _run("check", "metrics", given=text)


def check_rules(file: Path) -> str:
    """The output of `promtool check rules` for a file where it is wrong."""
    return _run("check", "rules", "--lint-fatal", str(file), is_silent=False)


def check_config(file: Path) -> str:
    """The output of `promtool check config` for a configuration where it is wrong."""
    return _run("check", "config", str(file), is_silent=False)


def run_rule_tests(file: Path) -> str:
    """The output of `promtool test rules` for tests that fail."""
    return _run("test", "rules", str(file), is_silent=False)


def _run(*arguments: str, given: str = "", is_silent: bool = True) -> str:
    done = subprocess.run(
        [find_promtool(), *arguments], input=given.encode(), capture_output=True, check=False, timeout=60
    )
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    if is_silent or done.returncode or "WARNING" in said:
        return said or f"exit code {done.returncode}" * bool(done.returncode)
    return ""

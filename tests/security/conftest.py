"""The size of a run, its seed, and what it covered."""

from __future__ import annotations

import os
import secrets

import pytest

COVERED = "covered"
# Inputs that `make security` reads; a night reads ten million.
INPUTS = 30_000
# One seed for all processes of a run: those that share the work inherit it.
SEED = os.environ.setdefault("FRESHLINE_SEED", str(secrets.randbelow(10**9)))


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run, another one each time unless FRESHLINE_SEED says which."""
    return int(SEED)


@pytest.fixture(scope="session")
def inputs() -> int:
    """How many inputs this run reads in all."""
    return int(os.environ.get("FRESHLINE_INPUTS", str(INPUTS)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each test noted about what it covered."""
    lines = [
        f"{report.nodeid.rpartition('/')[2]}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == COVERED
    ]
    if lines:
        terminalreporter.section(f"covered, FRESHLINE_SEED={SEED}")
        for line in lines:
            terminalreporter.line(line)

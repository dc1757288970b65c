"""The mark that `freshline down` leaves, so that an engine which somebody waits for is not started after it.

A command that needs an engine may wait: for the one before to end, or behind another command that starts one. It reads
the mark when it begins, and the engine that it starts compares it once it has the warehouse. `down` writes a new mark
before it searches for engines. So each engine is either found by `down`, or finds the new mark and ends by itself.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from freshline.engine.whole_file import write_whole
from freshline.errors import EngineError

NAME = "down"


def read_down_mark(state: Path) -> str:
    """The newest mark; empty where `down` was never called. Only reads."""
    try:
        return (state / NAME).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def write_down_mark(state: Path) -> None:
    """Put a new mark in the place of the one that is there. Raises OSError where the folder cannot be written."""
    if not state.is_dir():
        return  # nothing was ever started here
    write_whole(state / NAME, secrets.token_hex(16))


def require_not_down(state: Path, mark: str) -> None:
    """Raise EngineError where `down` was called since `mark` was read."""
    if read_down_mark(state) != mark:
        raise EngineError(
            "no engine is started, because `freshline down` was called meanwhile. Ask again to start one."
        )

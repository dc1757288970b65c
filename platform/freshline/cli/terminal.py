"""How wide the terminal is, for texts that leave out columns and end lines between words."""

from __future__ import annotations

import shutil


def terminal_width() -> int | None:
    """The columns of the terminal that stdout is, or of COLUMNS; None where there is neither: then nothing is fitted.

    A program that reads a pipe gets whole lines.
    """
    return shutil.get_terminal_size((0, 0)).columns or None

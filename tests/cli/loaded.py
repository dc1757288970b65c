"""The modules that one command loads, in a process of its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CODE = """
import sys
from freshline.cli.main import run
assert run(sys.argv[2:]) == 0
print([name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr)
"""


def loaded_by_command(arguments: Sequence[str], *names: str, folder: Path | None = None) -> list[str]:
    """Those of the names that are loaded once the command has succeeded."""
    asked = [sys.executable, "-c", CODE, " ".join(names), *arguments]
    ended = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=folder)
    found: list[str] = ast.literal_eval(ended.stderr.splitlines()[-1])
    return found

"""A peer that is a process a run: a command for each step, in the environment of this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from serve import serve


def serve_command(command: Sequence[str], folder: Path) -> None:
    """Run the command in the folder for each step; its output is a log."""

    def step() -> None:
        done = subprocess.run(
            command, cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(done.stdout, flush=True)
        if done.returncode:
            lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
            raise RuntimeError(" / ".join(lines[-3:]) or f"it ended with {done.returncode}")

    serve(step)

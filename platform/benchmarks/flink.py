"""PyFlink as a peer of `event_time`: an environment of its own, and one run over all batches.

apache-flink pins other versions of what freshline uses, so it cannot be in the same environment. Where it does not
install, its lines say why, and nothing fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measure import Cost

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-peers" / "flink"
REQUIREMENTS = Path(__file__).with_name("flink.txt")
JOB = Path(__file__).with_name("flink_job.py")
_LINES_SHOWN = 3


class NotRunError(Exception):
    """Why there is no figure of Flink."""


@dataclass(frozen=True)
class FlinkRun:
    """The cost of a run over all batches, its start included, the peak of memory, and where the rows of JSON are."""

    cost: Cost
    peak_bytes: int
    rows: Path


def provide_flink(progress: Callable[[str], None]) -> Path:
    """The Python of an environment with apache-flink, made if it is not there.

    Raises NotRunError if it does not install.
    """
    python = ENVIRONMENT / "bin" / "python"
    installed = ENVIRONMENT / "installed"
    if not installed.exists() or installed.read_text() != REQUIREMENTS.read_text():
        progress("installing apache-flink into .venv-peers/flink, which takes some minutes")
        venv.EnvBuilder(clear=True, with_pip=True).create(ENVIRONMENT)
        _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(REQUIREMENTS)])
        installed.write_text(REQUIREMENTS.read_text())
    return python


def run_flink(python: Path, shape: str, folder: Path, days: str) -> FlinkRun:
    """Run the job of a shape over the sources below a folder. Raises NotRunError if the job fails."""
    began = time.perf_counter()
    _run([str(python), str(JOB), f"--shape={shape}", f"--delay={days}", f"--folder={folder}"])
    wall = time.perf_counter() - began
    found = json.loads((folder / "found.json").read_text())
    return FlinkRun(Cost(found["cpu"], wall), found["peak_bytes"], folder / "result")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotRunError(" / ".join(said[-_LINES_SHOWN:]) or f"{Path(command[1]).name} ended with {done.returncode}")


if __name__ == "__main__":
    provide_flink(lambda message: print(message, file=sys.stderr))

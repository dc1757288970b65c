"""An environment for each peer, below `.venv-peers`, made by uv from the pins in `requirements`.

They cannot be groups of freshline's own dependencies, because they pin other versions of the same packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.peers.catalog import HERE, REQUIREMENTS, Peer
from freshline.declare.project import read_settings
from freshline.engine.jars import provide_jars

ROOT = HERE.parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"
DEFAULTS = HERE / "spark-defaults.conf"
LOGGING = HERE / "log4j2.properties"
_LINES_SHOWN = 3


class NotRunError(Exception):
    """Why there are no figures of a peer."""


def provide(peer: Peer, folder: Path, progress: Callable[[str], None]) -> tuple[Path, Mapping[str, str]]:
    """The Python that runs a peer, and the variables of its process. Its environment is made if it is not there.

    `folder` is the one where the peer keeps all that it makes. Raises NotRunError if it does not install.
    """
    python, variables = Path(sys.executable), dict(os.environ)
    if peer.commit is not None:
        python = _provide_commit(peer.commit, progress)
        variables.pop("PYTHONPATH", None)
    if peer.environment is not None:
        python = _provide_environment(peer.environment, progress)
        # It has freshline's packages, which are not the peer's.
        variables.pop("PYTHONPATH", None)
    # Images of containers set it. Every process would then compile all that it imports.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    if peer.on_spark:
        variables["SPARK_CONF_DIR"] = str(_provide_session(folder))
        variables["PYSPARK_PYTHON"] = str(python)
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    return python, variables


def _provide_environment(name: str, progress: Callable[[str], None]) -> Path:
    requirements = REQUIREMENTS / f"{name}.txt"
    environment = ENVIRONMENTS / name
    installed = environment / "installed"
    python = environment / "bin" / "python"
    if not installed.exists() or installed.read_text() != requirements.read_text():
        progress(f"installing {name} into {environment.relative_to(ROOT)}")
        uv = shutil.which("uv") or str(ROOT / ".uv-tool" / "bin" / "uv")
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), "--requirement", str(requirements)])
        installed.write_text(requirements.read_text())
    return python


def _provide_commit(commit: str, progress: Callable[[str], None]) -> Path:
    """The Python of a clone of this repository at a commit."""
    named = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if named.returncode:
        raise NotRunError(f"there is no commit {commit}")
    clone = ENVIRONMENTS / f"freshline-{named.stdout.strip()[:12]}"
    if not (clone / ".git").exists():
        progress(f"cloning {commit} into {clone.relative_to(ROOT)}")
        _run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(clone)])
    _run(["git", "-C", str(clone), "checkout", "--quiet", "--detach", named.stdout.strip()])
    _run(["make", "--directory", str(clone), "setup"])
    return clone / ".venv" / "bin" / "python"


def _provide_session(folder: Path) -> Path:
    """A folder of Spark's configuration for one run, with Delta's jars on the class path of the driver.

    Pipelines start their session by themselves, so the jars must be named by a file that each session reads.
    """
    jars = provide_jars(read_settings(ROOT, os.environ))
    confs = folder / "conf"
    confs.mkdir(parents=True)
    class_path = ":".join(str(jar) for jar in jars)
    own = {
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
        # Where a session keeps the names of tables by Derby: each run has its own.
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder / 'derby'}",
    }
    text = "".join(f"{name} {value}\n" for name, value in own.items())
    (confs / "spark-defaults.conf").write_text(DEFAULTS.read_text() + text)
    shutil.copy(LOGGING, confs)
    return confs


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError as error:
        raise NotRunError(f"{command[0]} does not start: {error}") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotRunError(" / ".join(lines[-_LINES_SHOWN:]) or f"{command[0]} ended with {done.returncode}")

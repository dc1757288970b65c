"""The wheel, installed into an empty environment, is a working freshline."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def uv() -> str:
    """The uv that set this checkout up: the machine's, or the project's own."""
    found = shutil.which("uv") or str(ROOT / ".uv-tool" / "bin" / "uv")
    if not Path(found).is_file():
        pytest.skip("there is no uv here; `make setup` brings it")
    return found


@pytest.mark.spark
@pytest.mark.long
def test_an_installed_wheel_makes_and_reads_a_project(tmp_path):
    built = [uv(), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(built, check=True, timeout=300)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    environment = tmp_path / "environment"
    subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, str(environment)], check=True, timeout=120)
    # The versions of the lock, so that nothing newer is judged here.
    constraints = tmp_path / "constraints.txt"
    exported = [uv(), "export", "--quiet", "--frozen", "--no-dev", "--no-hashes", "--no-emit-project"]
    constraints.write_text(subprocess.run(exported, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    install = [uv(), "pip", "install", "--quiet", "--python", str(environment), "-c", str(constraints), str(wheel)]
    subprocess.run(install, check=True, timeout=600)

    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def freshline(*arguments: str, folder: Path = tmp_path) -> str:
        command = [str(environment / "bin" / "freshline"), *arguments]
        done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # The demo is of a clone.
    assert "demo" not in freshline("--help")
    # Its files that are no code are there too.
    assert "FreshlineTableLate" in freshline("metrics", "--rules")
    assert json.loads(freshline("metrics", "--dashboard"))["title"] == "freshline"
    freshline("init", "shop")
    shop = tmp_path / "shop"
    try:
        outcomes = json.loads(freshline("refresh", "--json", folder=shop))
        rows = json.loads(freshline("sql", "--json", "SELECT * FROM spend ORDER BY customer", folder=shop))
    finally:
        freshline("engine", "stop", folder=shop)

    assert [(outcome["table"], outcome["strategy"]) for outcome in outcomes] == [
        ("orders", "append"),
        ("spend", "full"),
    ]
    assert [row["customer"] for row in rows] == ["ada", "alan", "grace"]

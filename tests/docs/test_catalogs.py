"""The page "Catalogs", typed: its commands in an empty folder, and its two readers, which know nothing of freshline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshline.engine.jars import jar_cache, read_lock
from tests.docs.test_tutorial import Shell, lines_of
from tests.duckdb_views import require_duckdb
from tests.metastore import MetastoreServer

PAGE = (Path(__file__).parents[2] / "platform" / "docs" / "catalogs.md").read_text(encoding="utf-8")
(COMMANDS,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
(SHOWN,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
SPARK, DUCKDB = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
# As `INSTALL delta` leaves the extension, which the tests have from a package.
INSTALL = """
import pathlib, sys
import duckdb, duckdb_extension_delta
(platform,) = duckdb.connect().sql("PRAGMA platform").fetchone()
folder = pathlib.Path.home() / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
folder.mkdir(parents=True)
(file,) = pathlib.Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
(folder / file.name).symlink_to(file)
"""


def python(program: str | Path, code: str, where: Path, **environ: str) -> str:
    said = subprocess.run(
        [str(program), "-c", code],
        cwd=where,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    return said.stdout.strip()


def until_it_is_there(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"no engine wrote {file.name}"
        time.sleep(0.1)


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_is_typed_in_an_empty_folder(
    tmp_path: Path, metastore: MetastoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METASTORE", metastore.uri)
    shell = Shell(tmp_path)
    refreshed, asked, rest = COMMANDS.partition("freshline catalog sync\n")
    try:
        shell.type(refreshed)
        # The engine of the refresh enters the tables by itself.
        until_it_is_there(shell.folder / "views.sql")
        shell.type(asked)
        said = shell.type(rest)
    finally:
        shell.type("freshline down")

    assert lines_of(SHOWN) == lines_of(said)

    jars = ",".join(str(jar_cache() / jar.file_name) for jar in read_lock())
    code = SPARK.replace("spark.jars.packages", "spark.jars").replace("io.delta:delta-spark_4.2_2.13:4.4.0", jars)
    code = code.replace("thrift://metastore:9083", metastore.uri).replace(
        ".getOrCreate()", '.config("spark.ui.enabled", "false").master("local[1]").getOrCreate()'
    )
    assert jars in code
    assert metastore.uri in code
    assert python(sys.executable, code, tmp_path, SPARK_LOCAL_IP="127.0.0.1") == "3"

    home = tmp_path / "home"
    home.mkdir()
    python(require_duckdb(), INSTALL, tmp_path, HOME=str(home))
    rows = python(require_duckdb(), DUCKDB, shell.folder, HOME=str(home))
    assert rows == "[('ada', Decimal('27.25')), ('alan', Decimal('120.00')), ('grace', Decimal('5.00'))]"

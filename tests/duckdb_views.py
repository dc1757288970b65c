"""A DuckDB with its extension for Delta, which knows nothing of freshline: it reads views and answers queries.

It is in an environment of its own, because the extension fits one version, which is not the tests' second engine.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = Path(__file__).parents[1] / ".venv-views"
_QUERIES = """
import json, pathlib, sys
import duckdb, duckdb_extension_delta
session = duckdb.connect()
session.load_extension(str(next(pathlib.Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))))
views, *queries = json.load(sys.stdin)
session.execute(views)
found = []
for query in queries:
    rows = session.execute(query).fetchall()
    found.append([[each[0] for each in session.description], rows])
json.dump(found, sys.stdout, default=str)
"""


def require_duckdb() -> Path:
    """The Python that has it; skips a test where there is none, unless the environment requires it."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        said = f"{ENVIRONMENT.name} is missing, which has a DuckDB for views of Delta tables (make it with: make)"
        if os.environ.get("FRESHLINE_REQUIRE_VIEWS"):
            pytest.fail(said)
        pytest.skip(said)
    return python


def ask(views: str, *queries: str) -> Sequence[tuple[list[str], list[list[Any]]]]:
    """The names of the columns and the rows of each query, after the statements in `views`."""
    said = subprocess.run(
        [str(require_duckdb()), "-I", "-c", _QUERIES],
        input=json.dumps([views, *queries]),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    return [(columns, rows) for columns, rows in json.loads(said.stdout)]

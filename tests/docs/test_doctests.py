"""Examples in docstrings of packages that decide run where there is no Spark, no Dagster and no Delta reader.

The run of all tests runs every example of the library. This one shows that those of `values`, `sql`, `declare` and
`plan` need nothing heavy.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "platform" / "freshline"
LIGHT = [file for room in ("values", "sql", "declare", "plan") for file in (LIBRARY / room).glob("*.py")]
HEAVY = ("pyspark", "dagster", "deltalake", "pyarrow", "pandas", "py4j")

RUN = """
import doctest, importlib, sys
heavy, modules = eval(sys.argv[1]), eval(sys.argv[2])
sys.modules.update(dict.fromkeys(heavy))  # importing one raises ImportError
results = [doctest.testmod(importlib.import_module(name)) for name in modules]
print(sum(result.failed for result in results), sum(result.attempted for result in results))
"""


@pytest.mark.seconds
def test_examples_of_what_decides_run_without_spark() -> None:
    modules = [
        ".".join(file.relative_to(LIBRARY.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in sorted(LIGHT)
    ]

    done = subprocess.run(
        [sys.executable, "-c", RUN, repr(HEAVY), repr(modules)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    *failures, last = done.stdout.splitlines()
    failed, attempted = map(int, last.split())
    assert failed == 0, "\n".join(failures)
    assert attempted > 10

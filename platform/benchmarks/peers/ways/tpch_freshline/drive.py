"""freshline: a project with one table over those of TPC-H. The third argument is the name of its query."""

from __future__ import annotations

import sys
from pathlib import Path

import freshline  # noqa: F401 - the one that is installed, which may be an earlier one

# Its benchmarks are not used.
sys.path.insert(0, str(Path(__file__).parents[4]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from engine import serve_engine
from serve import folders

from benchmarks.tpch_tables.declarations import SOURCES, sources_of
from benchmarks.tpch_tables.shapes import shape_named


def main() -> None:
    landing, folder = folders()
    shape = shape_named(sys.argv[3])
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text("[tool.freshline]\n")
    declarations = {
        name: f"CREATE SOURCE {name} ({SOURCES[name].columns}) "
        f"WITH ('connector' = 'delta', 'path' = '{landing / name}');"
        for name in sources_of(shape.query)
    }
    declarations[shape.table] = (
        f"CREATE MATERIALIZED TABLE {shape.table} {shape.header} FRESHNESS = INTERVAL '5' MINUTE AS {shape.query};"
    )
    for name, text in declarations.items():
        (folder / "assets" / f"{name}.sql").write_text(text)
    serve_engine(folder)


if __name__ == "__main__":
    main()

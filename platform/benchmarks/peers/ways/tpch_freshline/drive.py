"""freshline: a project with one table over those of TPC-H. The third argument is the name of its query."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[4])]

from engine import serve_engine  # noqa: E402 - by the path above
from serve import folders  # noqa: E402

from benchmarks.tpch_tables.declarations import SOURCES, sources_of  # noqa: E402
from benchmarks.tpch_tables.shapes import shape_named  # noqa: E402


def main() -> None:
    landing, folder = folders()
    shape = shape_named(sys.argv[3])
    (folder / "assets").mkdir(parents=True)
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

"""DuckDB: a process a run."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from process import serve_command  # noqa: E402 - by the path above
from serve import folders  # noqa: E402


def main() -> None:
    landing, folder = folders()
    (folder / "tables").mkdir(exist_ok=True)
    serve_command([sys.executable, str(HERE / "pipeline.py"), str(landing), str(folder / "tables")], folder)


if __name__ == "__main__":
    main()

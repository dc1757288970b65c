"""freshline: a project of six declarations."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from engine import serve_engine  # noqa: E402 - by the path above
from serve import folders  # noqa: E402


def main() -> None:
    landing, folder = folders()
    if not (folder / "assets").exists():
        (folder / "assets").mkdir(parents=True)
        (folder / "pyproject.toml").write_text("[tool.freshline]\n")
        for declaration in HERE.glob("*.sql"):
            shutil.copy(declaration, folder / "assets")
        (folder / "landing").symlink_to(landing)
    serve_engine(folder)


if __name__ == "__main__":
    main()

"""Takes the pictures of the freshness board for the documentation, from the project of these tests.

    python -m tests.report.board.pictures platform/docs/pictures

It needs no engine and no Spark: the project's past is written as an engine and a watch would write it.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from freshline.report.board.page import render_file
from freshline.report.board.read import BoardReader
from tests.browser import load_pictures
from tests.report.board.shop import DECLARATIONS, HOSTILE, SPEND, fill, open_shop

COMMENT = "What each customer has spent"


def take_all(folder: Path) -> None:
    """The list of all tables, and the page of one."""
    declarations = {name: text.replace(HOSTILE.replace("'", "''"), COMMENT) for name, text in DECLARATIONS.items()}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        root = Path(temporary) / "shop"
        root.mkdir()
        with open_shop(root, declarations) as shop:
            fill(shop, "the landing directory is gone", "column `amont` does not exist")
            board = BoardReader(shop.settings, shop.control).read(
                shop.graph, shop.now, shop.now - timedelta(days=7), lambda rows: [row.name for row in rows]
            )
        file = Path(temporary) / "board.html"
        file.write_text(render_file(board), encoding="utf-8")
        anchor = f"t{[row.name for row in board.rows].index(SPEND)}"
        folder.mkdir(parents=True, exist_ok=True)
        with load_pictures().browser() as window:
            for name, place in (("board", ""), ("board_table", f"?#{anchor}")):
                window.open(f"{file.as_uri()}{place}", 960, 1_400)
                (folder / f"{name}.png").write_bytes(window.picture())


if __name__ == "__main__":
    take_all(Path(sys.argv[1]))

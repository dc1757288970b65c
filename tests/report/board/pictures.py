"""Takes the pictures of the freshness board for the documentation from the UI of the project of these tests.

    python -m tests.report.board.pictures platform/docs/pictures

The project's past is written as an engine and a watch would write it, and the UI is the one of `freshline up`, so the
pictures have all states, and need no Spark. `platform/docs/pictures.py` takes the same pictures of any other UI.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.browser import load_pictures
from tests.dagster.served import served
from tests.report.board.shop import DECLARATIONS, HOSTILE, SPEND, fill, open_shop

COMMENT = "Spending of each customer"


def take_all(folder: Path) -> None:
    """The list of all tables and the page of one, as wide as a desk and as a phone."""
    pictures = load_pictures()
    declarations = {name: text.replace(HOSTILE.replace("'", "''"), COMMENT) for name, text in DECLARATIONS.items()}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        root = Path(temporary) / "shop"
        root.mkdir()
        with open_shop(root, declarations) as shop:
            shop.now = datetime.now(UTC).replace(microsecond=0)
            fill(shop, "the landing directory is gone", "column `amont` does not exist", "c")
            with served(root) as webserver:
                pictures.take_all(webserver.url, folder, pictures.board_pages(str(SPEND)))


if __name__ == "__main__":
    take_all(Path(sys.argv[1]))

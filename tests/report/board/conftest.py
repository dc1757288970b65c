"""One project with a past for all tests of the board that only read it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.board.shop import Shop, fill, open_shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("board")) as shop:
        fill(shop)
        yield shop

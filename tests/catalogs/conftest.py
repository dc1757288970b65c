"""Projects with tables that are entered in catalogs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalogs.shop import CatalogProject


@pytest.fixture
def shop(tmp_path: Path) -> CatalogProject:
    """A project without tables."""
    return CatalogProject(tmp_path / "it's a shop")

"""A log of the table `t` of a database, which each kind of database makes."""

from __future__ import annotations

import pytest

from tests.sources.jdbc.queried import Queried
from tests.sources.reading import Host


@pytest.fixture
def log(database, tmp_path):
    made = Queried(Host(tmp_path))
    made.open()
    yield made
    made.reader.close()

"""A log of a stream of its own."""

from __future__ import annotations

import pytest

from tests.sources.kinesis.reading import Log
from tests.sources.reading import Host


@pytest.fixture
def log(kinesis, tmp_path):
    made = Log(Host(tmp_path), kinesis, kinesis.create())
    yield made
    made.close()

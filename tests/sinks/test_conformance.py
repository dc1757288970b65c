"""The claims about every sink, on a real server of each kind."""

from __future__ import annotations

import pytest

from freshline.testing.sinks import SinkConformance
from tests.sinks.systems import PostgresSystem


class TestPostgres(SinkConformance):
    """A table of Postgres."""

    @pytest.fixture
    def system(self, lab, postgres, monkeypatch):
        made = PostgresSystem(lab, postgres)
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        yield made
        made.close()

"""Sinks with nothing to send leave their systems alone."""

from __future__ import annotations

import pytest

from tests.databases import Database
from tests.servers.counting import counted

TIMES = 10


@pytest.fixture
def doors(lab, postgres, webhook, monkeypatch):
    """Two sinks of a table, and the doors before their systems."""
    database = Database(postgres)
    with counted(postgres.folder / ".s.PGSQL.5432") as shop, counted(webhook.port) as hook:
        monkeypatch.setenv("SHOP_URL", f"postgresql://freshline@127.0.0.1:{shop.port}/{database.name}?sslmode=disable")
        monkeypatch.setenv("HOOK_URL", f"http://localhost:{hook.port}/")
        monkeypatch.setenv("HOOK_SECRET", "s")
        lab.source("ord", "id INT, note STRING", primary_key=["id"])
        lab.declare(
            "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS SELECT * FROM ord"
        )
        lab.declare("CREATE SINK shop FROM big WITH ('connector' = 'jdbc', 'url' = '${env:SHOP_URL}', 'table' = 'o')")
        lab.declare(
            "CREATE SINK hook FROM big WITH ('connector' = 'webhook', 'url' = '${env:HOOK_URL}', 'secret' = "
            "'${env:HOOK_SECRET}', 'private-addresses' = 'true')"
        )
        yield {"shop": shop, "hook": hook}
    database.close()


def test_a_sink_with_nothing_new_does_not_connect(lab, doors):
    def refresh_all():
        for name in ("big", *doors):
            outcome = lab.refresh(name)
            assert outcome.error is None, outcome.error
        return outcome.reason

    def connections():
        return {name: door.connections for name, door in doors.items()}

    lab.sql("INSERT INTO ord VALUES (1, 'a')")
    refresh_all()
    before = connections()
    assert min(before.values()) >= 1
    for _ in range(TIMES):
        assert refresh_all().startswith("NOTHING_NEW")
    assert connections() == before
    # Another engine has no connection yet, and needs none to see that there is nothing to send.
    lab.restart()
    for _ in range(TIMES):
        assert refresh_all().startswith("NOTHING_NEW")
    assert connections() == before
    lab.sql("INSERT INTO ord VALUES (2, 'b')")
    refresh_all()
    assert all(connections()[name] > before[name] for name in doors)

"""DROP .. PURGE asks the engine to delete the data of what is declared no more, and finishes what was stopped."""

from __future__ import annotations

import json
from pathlib import Path

from freshline.cli.main import run
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_settings
from freshline.values.names import TableName

DROP = "DROP MATERIALIZED TABLE spend PURGE"


def test_a_dropped_table_is_deleted_by_the_engine(shop: Path, fake_engine, capsys):
    fake_engine.answers["purge"] = [{"type": "purged", "table": "spend", "folders": ["/w/spend"]}]

    assert run(["sql", DROP, "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert (said["table"], said["changed"], said["deleted"]) == ("spend", True, ["/w/spend"])
    assert fake_engine.asked == [("purge", {"table": "spend"})]
    assert not (shop / "assets" / "spend.sql").exists()


def test_a_drop_that_was_stopped_before_the_engine_was_asked_is_finished_by_another(shop: Path, fake_engine, capsys):
    (shop / "assets" / "spend.sql").unlink()
    assert run(["sql", DROP]) == 1
    assert "there is no table spend" in capsys.readouterr().err
    assert run(["sql", "DROP MATERIALIZED TABLE IF EXISTS spend PURGE"]) == 0
    assert fake_engine.asked == []

    Warehouse(read_settings(shop, {}).warehouse).path(TableName.parse("spend")).mkdir(parents=True)
    assert run(["sql", DROP]) == 0
    assert fake_engine.asked == [("purge", {"table": "spend"})]


def test_tables_that_others_read_and_sources_are_not_purged(shop: Path, fake_engine, capsys):
    assert run(["sql", "CREATE MATERIALIZED TABLE spent AS SELECT customer FROM spend"]) == 0

    assert run(["sql", DROP]) == 1
    assert "spent reads it" in capsys.readouterr().err
    assert run(["sql", "DROP MATERIALIZED TABLE orders PURGE"]) == 1
    assert "is a source" in capsys.readouterr().err
    assert fake_engine.asked == []
    assert (shop / "assets" / "spend.sql").exists()

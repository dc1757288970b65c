"""The newest versions that agree: older ones of tables that are ahead, and a sentence where none agree."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from freshline.commit.small import append_small, create_small
from freshline.commit.snapshot import newest_snapshot
from freshline.commit.warehouse import Warehouse
from freshline.errors import ReadError
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.receipt import Receipt

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "integer", "nullable": True, "metadata": {}}]}
A, B, EV = TableName(None, "a"), TableName(None, "b"), TableName(None, "ev")


@pytest.fixture
def project(settings):
    settings.declarations.mkdir(parents=True)
    declared = {
        "ev": "CREATE SOURCE ev (id INT) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')",
        "a": "CREATE MATERIALIZED TABLE a AS SELECT id FROM ev",
        "b": "CREATE MATERIALIZED TABLE b AS SELECT id FROM ev",
    }
    for name, text in declared.items():
        (settings.declarations / f"{name}.sql").write_text(text)
    return open_project(settings), Warehouse(settings.warehouse)


def commit(warehouse, name, seq, saw, *, maintenance=False):
    path = warehouse.path(name)
    create_small(path, json.dumps(SCHEMA), partitioned_by=[], configuration={})
    rows = pa.table({"id": pa.array([] if maintenance else [seq], pa.int32())})
    cut = {"ev": {"seq": saw}}
    receipt = Receipt(
        name, "f", 1, seq, "batch", "append", "", None, {}, 1, 1, f"{name}{seq}", cut, maintenance=maintenance
    )
    assert append_small(DeltaTable(str(path)), rows, receipt)


def test_the_newest_versions_that_saw_the_same_of_a_source(project):
    graph, warehouse = project
    assert newest_snapshot(graph, warehouse).positions == {}
    for seq in (1, 2, 3):
        commit(warehouse, EV, seq, seq)
        commit(warehouse, A, seq, seq)
    commit(warehouse, B, 1, 2)

    found = newest_snapshot(graph, warehouse)

    assert found.cut == {"ev": 2}
    assert {str(name): (at.version, at.seq) for name, at in found.positions.items()} == {
        "ev": (3, 2),
        "a": (2, 2),
        "b": (1, 1),
    }
    commit(warehouse, B, 2, 3)
    newest = newest_snapshot(graph, warehouse)
    assert (newest.cut, newest.positions[A].version) == ({"ev": 3}, 3)
    assert newest.as_json()["tables"]["b"]["seq"] == 2


def test_where_none_agree_a_sentence_says_so(project):
    graph, warehouse = project
    commit(warehouse, EV, 1, 1)
    commit(warehouse, A, 1, 5)
    commit(warehouse, B, 1, 6)

    with pytest.raises(ReadError, match="Refresh all of them"):
        newest_snapshot(graph, warehouse)

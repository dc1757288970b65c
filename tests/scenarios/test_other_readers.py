"""DuckDB (over Arrow), delta-rs and Polars read every table of the reference deployment, and find what Spark finds."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import polars
import pytest
from deltalake import DeltaTable

from freshline.commit.delta_log import exists
from freshline.plan.project import open_project
from freshline.run import maintain_table
from resources.generator import Generator

ASSETS = Path(__file__).parents[2] / "assets"


@pytest.fixture
def deployment(lab):
    """The declarations of this repository, and two portions of its events."""
    for file in ASSETS.glob("*.sql"):
        shutil.copy(file, lab.settings.declarations)
    landing = lab.settings.root / ".freshline" / lab.settings.environment / "landing"
    generator = Generator(landing, landing / "campaign_load", seed=7)
    for number in range(2):
        generator.portion(number, 2, 300, 100, 80)
        if number == 0:
            lab.runtime.graph = open_project(lab.settings)
        outcomes = lab.refresh_all()
        assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return lab


@pytest.mark.long
def test_every_table_is_read_alike(deployment):
    runtime, spark = deployment.runtime, deployment.runtime.sessions.root
    beside = ("quarantine", "file", "parked")
    paths = {str(name): deployment.path(str(name)) for name in runtime.graph.order}
    paths |= {
        f"{name}__{side}": path
        for name in runtime.graph.order
        for side in beside
        if exists(path := runtime.warehouse.side(name, side))
    }
    # Maintenance of a table is no hindrance to anybody.
    for name in runtime.graph.order:
        maintain_table(runtime, name, eager=True)
    assert len(paths) >= 10

    for name, path in paths.items():
        # The texts of values differ from engine to engine: sums and counts do not.
        rows = spark.read.format("delta").load(str(path))
        texts = [field.name for field in rows.schema.fields if field.dataType.simpleString() == "string"]
        expected = [rows.count(), *(rows.select(column).distinct().count() for column in texts[:2])]
        arrow = DeltaTable(str(path)).to_pyarrow_table()
        frame = polars.read_delta(str(path))

        assert arrow.num_rows == frame.height == expected[0], name
        for column, distinct in zip(texts[:2], expected[1:], strict=True):
            database = duckdb.connect()
            database.register("stored", arrow)
            found = database.sql(f'SELECT count(*) FROM (SELECT DISTINCT "{column}" FROM stored)').fetchall()
            assert found == [(distinct,)], (name, column)
            assert frame[column].n_unique() == distinct, (name, column)
    path = paths["sale_order"]
    (total,) = spark.read.format("delta").load(str(path)).selectExpr("sum(total_amount)").collect()[0]
    database = duckdb.connect()
    database.register("sale_order", DeltaTable(str(path)).to_pyarrow_table())
    assert database.sql("SELECT sum(total_amount) FROM sale_order").fetchall() == [(total,)]
    assert polars.read_delta(str(path))["total_amount"].sum() == total

"""The Spark session of users' own assets: attached or of its own, one a run, interrupted and let go of at its end.

Without `from __future__ import annotations`: Dagster reads the annotations of assets.
"""

import os
import runpy
import signal
import threading
import time
from pathlib import Path

import pytest
from dagster import AssetExecutionContext, DagsterInstance, asset, materialize
from dagster._core.errors import DagsterExecutionInterruptedError, DagsterResourceFunctionError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshline.dagster.spark_resource import MODE, TOKEN, SparkResource
from freshline.engine.spark import connect_address
from freshline.errors import SettingsError

SECONDS = 30.0
EXAMPLE = Path(__file__).parents[2] / "platform" / "examples" / "spark_asset" / "best_customers.py"


@asset
def counted(context: AssetExecutionContext, spark: SparkResource) -> None:
    session = spark.spark_session
    rows = session.range(10).where(F.col("id") >= 4)
    context.add_output_metadata(
        {"rows": rows.count(), "session": session.session_id, "remote": ".connect." in type(session).__module__}
    )


@asset
def endless(spark: SparkResource) -> None:
    spark.spark_session.range(10**13).agg(F.sum(F.col("id") % 7)).collect()


def metadata(result):
    [event] = result.asset_materializations_for_node("counted")
    return {key: value.value for key, value in event.metadata.items()}


@pytest.fixture
def remote(spark, monkeypatch):
    """A resource on the Connect server of the tests' session."""
    monkeypatch.setenv(TOKEN, "token-of-the-tests")
    return SparkResource(target=connect_address(spark))


def test_a_run_attaches_to_a_server_with_a_session_of_its_own(remote):
    first, second = (materialize([counted], resources={"spark": remote}) for _ in range(2))

    for result in (first, second):
        shown = metadata(result)
        assert (shown["rows"], shown["remote"]) == (6, True)
        assert shown["session"] == result.run_id
    assert MODE not in os.environ


def test_cancelling_ends_the_work_on_the_server(spark, remote):
    tracker = spark.sparkContext.statusTracker()

    def interrupt() -> None:
        deadline = time.monotonic() + SECONDS
        while not tracker.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises((DagsterExecutionInterruptedError, KeyboardInterrupt)):
        materialize([endless], resources={"spark": remote}, instance=DagsterInstance.ephemeral())
    thread.join()
    deadline = time.monotonic() + 10
    while tracker.getActiveJobsIds():
        assert time.monotonic() < deadline, tracker.getActiveJobsIds()
        time.sleep(0.1)


def test_a_session_of_its_own_leaves_one_that_was_there(spark):
    SparkSession.builder._options.clear()
    result = materialize([counted_plainly], resources={"spark": SparkResource(target="own")})

    assert result.success
    assert spark.range(1).count() == 1


@asset
def counted_plainly(spark: SparkResource) -> None:
    assert spark.spark_session.range(10).count() == 10


@pytest.mark.long
def test_tables_are_read_by_name_with_their_declared_columns(lab, monkeypatch):
    lab.files("ev", "id STRING")
    lab.land("ev", "1.json", '{"id": "a"}\n')
    lab.refresh("ev")
    monkeypatch.setattr("freshline.dagster.spark_resource.read_settings", lambda *_: lab.settings)
    resource = SparkResource(target="own", project=str(lab.settings.root))

    rows = resource.read_table("ev")

    assert [row.asDict() for row in rows.collect()] == [{"id": "a"}]


def test_the_example_reads_a_table_and_writes_beside_it(lab, monkeypatch, tmp_path):
    lab.source("paid", "customer STRING, amount INT")
    lab.sql("INSERT INTO paid VALUES ('ada', 2), ('alan', 9), ('ada', 3)")
    lab.declare("CREATE MATERIALIZED TABLE spend AS SELECT customer, sum(amount) AS total FROM paid GROUP BY customer")
    lab.refresh("spend")
    monkeypatch.setattr("freshline.dagster.spark_resource.read_settings", lambda *_: lab.settings)
    monkeypatch.setenv("BEST_CUSTOMERS", str(tmp_path / "best"))
    example = runpy.run_path(str(EXAMPLE))

    resource = SparkResource(target="own", project=str(lab.settings.root))
    result = materialize([example["best_customers"]], resources={"spark": resource})

    assert result.success
    session = SparkSession.getActiveSession()
    assert session is not None
    rows = session.read.parquet(str(tmp_path / "best")).collect()
    assert [(row["customer"], row["total"]) for row in rows] == [("alan", 9), ("ada", 5)]


def test_another_target_is_refused():
    with pytest.raises(DagsterResourceFunctionError) as raised:
        materialize([counted_plainly], resources={"spark": SparkResource(target="yarn")})
    assert isinstance(raised.value.__cause__, SettingsError)
    assert "target is 'yarn'" in str(raised.value.__cause__)

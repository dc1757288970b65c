"""Unsynced, as Dagster's own resolver says it: of a table that is behind, and of no other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pyarrow as pa
import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from freshline.commit.delta_log import position_of, receipt_at
from freshline.commit.warehouse import Warehouse
from freshline.dagster.data_versions import inputs_of
from freshline.dagster.materialize import Materialization, used_inputs
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from tests.dagster.sensors.conftest import TABLE, Bench

pytestmark = pytest.mark.slow  # Dagster's own sensors are evaluated

DECLARED = {
    "second": TABLE.format("second", "'10' SECOND", "live"),
    "slow": TABLE.format("slow", "'20' MINUTE", "event"),
    "looked_up": "CREATE MATERIALIZED TABLE looked_up FRESHNESS = INTERVAL '10' SECOND AS "
    "SELECT e.id FROM event AS e LEFT JOIN hourly FOR SYSTEM_TIME AS OF PROCTIME() AS h ON h.id = e.id",
}
ENGINE = ("event", "live", "second", "slow", "looked_up")


@pytest.fixture
def declarations():
    return DECLARED


@dataclass
class Tables:
    """The tables of a bench, each written with a receipt that has the newest versions of its inputs."""

    bench: Bench
    seqs: dict[str, int] = field(default_factory=dict)

    def refresh(self, *names: str) -> None:
        for text in names:
            self._refresh(text)
        self.bench.check(*self.seqs)

    def _refresh(self, text: str) -> None:
        bench, name = self.bench, TableName.parse(text)
        seq = self.seqs[text] = self.seqs.get(text, 0) + 1
        receipt = Receipt(
            table=name, fingerprint=bench.graph.spec(name).fingerprint, epoch=1, seq=seq, mode="continuous",
            strategy="append", reason="new", data_timestamp=bench.now, rows_in=1, rows_out=1, attempt="a",
            positions={read: self.position(read) for read in bench.graph.reads(name) if str(read) != "loads"},
        )  # fmt: skip
        self._write(text, receipt)
        bench.record(text, committed=True, strategy="append", reason="new", rows_in=1, rows_out=1)

    def maintain(self, text: str) -> None:
        """A commit that moves no rows, as OPTIMIZE makes it."""
        path = self.path(text)
        receipt = receipt_at(path, DeltaTable(path).version())
        assert receipt is not None
        self._write(text, replace(receipt, maintenance=True))

    def _write(self, text: str, receipt: Receipt) -> None:
        properties = CommitProperties(custom_metadata={"userMetadata": receipt.to_json()})
        write_deltalake(self.path(text), pa.table({"id": ["x"]}), mode="append", commit_properties=properties)

    def path(self, text: str):
        return Warehouse(self.bench.settings.warehouse).location(self.bench.graph.spec(TableName.parse(text)))

    def position(self, name: TableName):
        return position_of(self.path(str(name)), DeltaTable(self.path(str(name))).version())

    def ticks(self, seconds: float = 65) -> None:
        """Ticks of the supervisor, during which nothing is refreshed and everything is checked."""
        for _ in range(int(seconds / 5)):
            self.bench.check(*self.seqs)
            self.bench.supervise(5)

    def unsynced(self) -> dict[str, str]:
        """Dagster's own answer: each unsynced table, with the first reason."""
        graph = self.bench.loaded.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(self.bench.instance, graph, LoadingContextForTest(self.bench.instance))
        causes = {str(name): resolver.get_stale_causes(AssetKey(str(name))) for name in self.bench.graph.kept}
        return {name: found[0].reason for name, found in causes.items() if found}

    def counted(self) -> int:
        """The materializations that Dagster has of what the engine keeps."""
        return sum(len(self.bench.instance.fetch_materializations(AssetKey(name), 10_000).records) for name in ENGINE)


@pytest.fixture
def tables(bench) -> Tables:
    tables = Tables(bench)
    tables.refresh("event", "live", "hourly", "second", "slow", "looked_up")
    bench.supervise(0)
    return tables


def test_tables_that_are_refreshed_all_the_time_are_never_unsynced(tables):
    """The input is always a version ahead of its reader, as in a stream that does not end."""
    said: dict[str, str] = {}
    for second in range(130):
        tables.bench.now += timedelta(seconds=1)
        tables.refresh("event")
        if second % 3 == 2:
            tables.refresh("live", "second", "looked_up")
        if second % 60 == 59:
            tables.refresh("slow")
        if second % 10 == 9:
            tables.bench.supervise(0)
            said |= tables.unsynced()

    # A batch table has what there was at its last refresh.
    assert said.keys() == {"hourly"}
    told = tables.bench.instance.get_latest_materialization_event(AssetKey("event"))
    assert told is not None
    assert told.asset_materialization is not None
    assert int(told.asset_materialization.tags["dagster/data_version"]) > 50
    # Each once a minute, and once more where it is not reported together with its inputs.
    assert tables.counted() <= 5 * len(ENGINE)


def test_a_table_that_is_left_behind_is_unsynced_until_it_has_what_was_reported(tables):
    tables.ticks()
    assert tables.unsynced() == {}

    tables.bench.suspend("live")
    tables.bench.now += timedelta(seconds=30)
    tables.refresh("event", "slow", "looked_up")
    tables.ticks()

    assert tables.unsynced() == {"live": "has a new dependency data version"}

    tables.bench.control.intentions.change(remove_suspensions=[TableName.parse("live")])
    tables.refresh("live", "second", "hourly")
    tables.ticks()
    assert tables.unsynced() == {}


def test_maintenance_is_no_news(tables):
    tables.ticks()
    before = tables.unsynced()
    for name in ("event", "live", "hourly"):
        tables.maintain(name)
    tables.ticks(130)

    assert before == tables.unsynced() == {}


def test_another_declaration_is_reported_until_rows_follow_it(tables):
    tables.ticks()
    live = TableName.parse("live")
    path = tables.path("live")
    receipt = receipt_at(path, DeltaTable(path).version())
    assert receipt is not None
    tables._write("live", replace(receipt, fingerprint="of another declaration", seq=tables.seqs["live"] + 1))
    tables.ticks()

    assert tables.unsynced()[str(live)] == "has a new code version"


def test_a_log_that_cannot_be_read_keeps_no_other_table_from_being_reported(tables):
    tables.ticks()
    for name in ("live", "slow"):
        for file in (tables.path(name) / "_delta_log").glob("*.json"):
            file.write_text("{ this is no log")
        del tables.seqs[name]  # nor can it be checked
    before = tables.counted()
    tables.bench.now += timedelta(seconds=30)
    tables.refresh("event", "looked_up")
    tables.bench.supervise(60)

    assert tables.counted() > before
    assert "looked_up" not in tables.unsynced()


@pytest.mark.parametrize("later", [False, True])
def test_a_run_names_what_the_refresh_has_used_and_not_what_dagster_learned_last(tables, later):
    """A batch table reads an input of which Dagster knows an older version; then the newest one is reported."""
    bench = tables.bench
    tables.refresh("event", "live")
    tables.refresh("hourly")
    if later:
        tables.refresh("event", "live")
    name = TableName.parse("hourly")
    inputs = inputs_of(bench.graph, name, bench.keys, Warehouse(bench.settings.warehouse))
    asked = Materialization(
        bench.graph.spec(name), bench.keys[name], Warehouse(bench.settings.warehouse), inputs=inputs
    )
    outcome = {"version": 1, "mode": "batch", "data_timestamp": bench.now.isoformat()}
    materialize_as_a_run(bench.instance, asked, used_inputs(asked, bench.instance, outcome))
    tables.refresh("second")
    tables.ticks()

    assert ("hourly" in tables.unsynced()) is later


def materialize_as_a_run(instance: DagsterInstance, asked: Materialization, tags: dict[str, str]) -> None:
    tags = {**tags, "dagster/code_version": asked.spec.fingerprint, "dagster/data_version": "1"}
    instance.report_runless_asset_event(AssetMaterialization(asset_key=asked.key, tags=tags))

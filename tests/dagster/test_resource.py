"""An asset of one's own that asks the engine, which answers from a list."""

from __future__ import annotations

from decimal import Decimal

import pytest
from dagster import MaterializeResult, asset, materialize

from freshline.dagster import FreshlineResource
from freshline.engine.client import EngineClient
from freshline.errors import RequestError
from tests.dagster.test_materialize import DONE, Engine, outcome

ROWS = {"type": "rows", "columns": [["n", "decimal(3,1)"]], "rows": ['{"n": 1.5}'], "truncated": True}
VERIFIED = {
    "table": "sales.orders", "partitions": [], "equal": True, "missing": 0, "extra": 0, "unverified": 0, "version": 3,
    "seconds": 0.5, "samples": [], "error": None, "detail": "",
}  # fmt: skip


@pytest.fixture
def answer(monkeypatch, tmp_path):
    """An engine that answers with these events, and the resource that asks it."""
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n[tool.freshline.environments.production]\n")
    connected = []

    def with_events(*events):
        engine = Engine(*events)

        def connect(settings, **options):
            connected.append(settings)
            return engine

        monkeypatch.setattr(EngineClient, "connect", connect)
        return engine, FreshlineResource(project=str(tmp_path), environment="production"), connected

    return with_events


def test_an_asset_refreshes_tables_and_reads_the_results(answer):
    engine, resource, connected = answer(
        outcome(table="sales.orders", at="2026-11-01T12:00:00+00:00", error=None), DONE
    )

    @asset
    def board(freshline: FreshlineResource) -> MaterializeResult[None]:
        [found] = freshline.refresh("sales.orders", full=True)
        assert found.ok
        return MaterializeResult(metadata={"rows": found.rows_out, "strategy": found.strategy})

    result = materialize([board], resources={"freshline": resource})

    [event] = result.get_asset_materialization_events()
    assert {key: value.value for key, value in event.materialization.metadata.items()} == {
        "rows": 3,
        "strategy": "append",
    }
    assert engine.asked == [("refresh", {"tables": ["sales.orders"], "full": True})]
    assert connected[0].environment == "production"


def test_a_table_is_verified_by_partition(answer):
    engine, resource, _ = answer({"type": "verification", "verification": VERIFIED}, DONE)

    [found] = resource.verify("sales.orders", partitions=[{"ds": "2026-11-01"}])

    assert (found.table, found.equal, found.version) == ("sales.orders", True, 3)
    assert engine.asked == [("verify", {"tables": ["sales.orders"], "partitions": [[["ds", "2026-11-01"]]]})]


def test_rows_come_as_values_by_column(answer):
    engine, resource, _ = answer(ROWS, DONE)

    found = resource.sql("SELECT n FROM sales.orders", limit=1)

    assert found.columns == (("n", "decimal(3,1)"),)
    assert found.rows == ({"n": Decimal("1.5")},)
    assert found.truncated
    assert engine.asked == [("sql", {"statement": "SELECT n FROM sales.orders", "limit": 1})]


def test_a_statement_without_rows_is_refused(answer):
    _, resource, _ = answer(DONE)

    with pytest.raises(RequestError, match="sql takes a SELECT"):
        resource.sql("SUSPEND spend")


def test_a_request_that_failed_raises_its_error(answer):
    error = {"code": RequestError.code, "message": "there is no table x", "where": None}
    _, resource, _ = answer({"type": "done", "state": "FAILED", "error": error})

    with pytest.raises(RequestError, match="there is no table x"):
        resource.refresh("x")

"""A project for one benchmark, and what several benchmarks do with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from freshline.commit.control_store import ControlStore
from freshline.declare.names import TableName
from freshline.declare.project import read_project, read_settings
from freshline.plan.request import RefreshRequest
from freshline.plan.result import RefreshResult
from freshline.refresh.cancellation import Cancellation
from freshline.run import Runtime, open_runtime, refresh_table


class Project:
    """A project in a temporary folder, with an engine's runtime in this process."""

    def __init__(self, folder: Path, declarations: Mapping[str, str]) -> None:
        self.folder = folder
        (folder / "assets").mkdir(parents=True)
        (folder / "pyproject.toml").write_text("[tool.freshline]\n")
        for name, text in declarations.items():
            (folder / "assets" / f"{name}.sql").write_text(text)
        self.settings = read_settings(folder, {})

    def open(self, spark: SparkSession) -> Runtime:
        self.settings.state.mkdir(parents=True, exist_ok=True)
        control = ControlStore.open(self.settings.control_store)
        return open_runtime(self.settings, read_project(self.settings), spark, control)


def refresh(runtime: Runtime, name: str, *, strategy: str | None = None) -> RefreshResult:
    outcome = refresh_table(
        runtime,
        TableName.parse(name),
        RefreshRequest(strategy=strategy),
        cancellation=Cancellation(),
        progress=lambda message: None,
    )
    if outcome.state != "SUCCEEDED":
        raise SystemExit(f"{name}: {outcome.error or outcome.reason}")
    return outcome


def same(left: DataFrame, right: DataFrame) -> None:
    """Results are compared before a time counts."""
    if left.exceptAll(right).limit(1).count() or right.exceptAll(left).limit(1).count():
        raise SystemExit("the two ways gave different rows")

"""A project for one benchmark, and what several benchmarks do with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.control_store import ControlStore
from freshline.compute.cancellation import Cancellation
from freshline.declare.project import read_project, read_settings
from freshline.plan.request import RefreshRequest
from freshline.run import Runtime, open_runtime, refresh_table
from freshline.values.names import TableName
from freshline.values.result import RefreshResult


class Project:
    """A project in a temporary folder, with an engine's runtime in this process.

    Declarations are SQL by the name of their table, or Python by the name of its file.
    """

    def __init__(self, folder: Path, declarations: Mapping[str, str]) -> None:
        self.folder = folder
        (folder / "assets").mkdir(parents=True)
        (folder / "pyproject.toml").write_text("[tool.freshline]\n")
        for name, text in declarations.items():
            (folder / "assets" / (name if name.endswith(".py") else f"{name}.sql")).write_text(text)
        self.settings = read_settings(folder, {})

    def open(self, spark: SparkSession) -> Runtime:
        self.settings.state.mkdir(parents=True, exist_ok=True)
        control = ControlStore.open(self.settings.control_store)
        return open_runtime(self.settings, read_project(self.settings), spark, control)


def refresh(runtime: Runtime, name: str, *, strategy: str | None = None) -> RefreshResult:
    outcome = refresh_table(
        runtime,
        TableName.parse(name),
        # By the strategy alone, a table that is up to date would be left as it is.
        RefreshRequest(full=True) if strategy == "full" else RefreshRequest(strategy=strategy),
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


def same_by_hash(left: DataFrame, right: DataFrame) -> None:
    """As `same`, in one pass over each of two large results: by the number of rows and the sum of their hashes."""
    hashed = F.sum(F.xxhash64(*[F.col(name) for name in left.columns]).cast("decimal(20,0)"))
    if left.agg(F.count("*"), hashed).collect() != right.select(*left.columns).agg(F.count("*"), hashed).collect():
        raise SystemExit("the two ways gave different rows")

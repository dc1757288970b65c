"""The peers: where each has its environment, how its tables are read, and which of its files a user writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import compute

from benchmarks.tpch_tables.shapes import Shape

HERE = Path(__file__).parent
WAYS = HERE / "ways"
REQUIREMENTS = HERE / "requirements"
# The harness: the loop that asks the peer, which no user would write.
_HARNESS = frozenset({"drive.py"})
_COMMENTS = ("#", "--", '"""', "{#")


@dataclass(frozen=True)
class Peer:
    """One way to keep the tables of a workload.

    `environment` is the name of its folder below `.venv-peers` and of its requirements, None if it runs with
    freshline's own Python. `on_spark` says whether its session needs Delta's jars and `spark-defaults.conf`. `read`
    gives all rows of a table: it gets the peer's folder and the name of the table.
    `folder` is that of its program below `ways`, its own name if none is given, and `arguments` are what its program
    gets besides the two folders. `commit` is that of an earlier freshline. A peer that
    `recomputes` keeps nothing from step to step, and one that `goes_on` does so in a new process.
    """

    name: str
    title: str
    read: Callable[[Path, str], pa.Table]
    environment: str | None = None
    on_spark: bool = False
    folder: str | None = None
    arguments: tuple[str, ...] = ()
    commit: str | None = None
    recomputes: bool = False
    goes_on: bool = False

    @property
    def way(self) -> Path:
        """The folder with its program and what a user writes."""
        return WAYS / (self.folder or self.name)

    @property
    def lines(self) -> int:
        """Lines that a user writes: not blank, no comment, and no harness."""
        files = [file for file in self.way.rglob("*") if file.is_file() and file.name not in _HARNESS]
        return sum(_is_code(line) for file in files for line in _lines(file))


def _lines(file: Path) -> list[str]:
    return [] if "__pycache__" in file.parts else file.read_text().splitlines()


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith(_COMMENTS)


def _delta(*below: str) -> Callable[[Path, str], pa.Table]:
    return lambda folder, table: DeltaTable(str(folder.joinpath(*below, table))).to_pyarrow_table()


def _parquet(folder: Path, table: str) -> pa.Table:
    return pq.read_table(folder / "tables" / f"{table}.parquet")


def _sqlmesh(folder: Path, table: str) -> pa.Table:
    """The name of a table has a hash of its definition behind it."""
    (found,) = (folder / "spark-warehouse" / "sqlmesh__shop.db").glob(f"shop__{table}__*")
    return DeltaTable(str(found)).to_pyarrow_table()


def _with_state(read: Callable[[Path, str], pa.Table]) -> Callable[[Path, str], pa.Table]:
    """Where `customer` is a view of a state that keeps deleted customers too: its rows, as the view says."""

    def read_view(folder: Path, table: str) -> pa.Table:
        if table != "customer":
            return read(folder, table)
        rows = read(folder, "customer_state")
        return rows.filter(compute.not_equal(rows["op"], "d"))

    return read_view


FRESHLINE = Peer("freshline", "freshline, engine warm", _delta(".freshline", "local", "warehouse"), goes_on=True)
PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "again",
            "everything again, one warm Spark session, Delta overwrite",
            _delta("tables"),
            on_spark=True,
            recomputes=True,
            goes_on=True,
        ),
        Peer(
            "merge", "foreachBatch and MERGE by hand, warm", _with_state(_delta("tables")), on_spark=True, goes_on=True
        ),
        Peer(
            "dbt",
            "dbt-spark, incremental models, session kept",
            _with_state(_delta("spark-warehouse", "shop.db")),
            "dbt",
            on_spark=True,
        ),
        Peer(
            "pipelines",
            "Spark Declarative Pipelines, server of Spark Connect kept",
            _delta("spark-warehouse"),
            "pipelines",
            on_spark=True,
        ),
        Peer(
            "sqlmesh",
            "SQLMesh on Spark, incremental models, session kept",
            _with_state(_sqlmesh),
            "sqlmesh",
            on_spark=True,
        ),
        Peer("duckdb", "DuckDB, everything again, a process a run", _parquet, "duckdb", recomputes=True, goes_on=True),
        Peer("polars", "Polars, everything again, a process a run", _parquet, "polars", recomputes=True, goes_on=True),
    )
}
# Of the peers, those that keep a table over TPC-H too: at its sizes these are the two that a user would compare.
TPCH_PEERS = ("again",)


def tpch_peer(peer: Peer, shape: Shape) -> Peer:
    """The same way for one table over TPC-H."""
    return replace(peer, folder=f"tpch_{peer.name}", arguments=(shape.name,))


EARLIER = "earlier"


def earlier_peer(peer: Peer, commit: str) -> Peer:
    """freshline as it was at a commit, which does the same as it does now."""
    return replace(peer, name=EARLIER, title=f"freshline at {commit}", folder=peer.folder or peer.name, commit=commit)

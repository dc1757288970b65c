"""The Spark session that Labs share: starting one takes seconds, and a process can have only one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from freshline.engine.own_session import own_session
from freshline.values.freshness import Freshness
from freshline.values.settings import Settings

_LOCK = threading.Lock()
# Of a few rows, planning and compiling cost more than running: these halve what a refresh of them takes.
SMALL_TABLES = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Each test makes its own tables, of which Delta would keep the state in memory for an hour.
    "spark.databricks.delta.delta.log.cacheRetentionMinutes": "5",
}
_root: Path | None = None


def shared_session() -> SparkSession:
    """The session of this process, or a new one that ends with it.

    Raises EngineError for a session that knows nothing of Delta.
    """
    global _root
    with _LOCK:
        if _root is None:
            _root = Path(tempfile.mkdtemp(prefix="freshline-spark-"))
            # The function that is registered first runs last: the session has ended by then.
            atexit.register(shutil.rmtree, _root, ignore_errors=True)
    return own_session(lab_settings(_root), app_name="freshline.testing")


def lab_settings(root: Path) -> Settings:
    """Settings of a project in a temporary folder, with the defaults of a real one."""
    state = root / ".freshline" / "lab"
    return Settings(
        root=root,
        environment="lab",
        declarations=root / "assets",
        state=state,
        warehouse=state / "warehouse",
        control_store=f"sqlite:///{state / 'control.db'}",
        default_freshness=Freshness(86_400),
        continuous_below=Freshness(60),
        incremental_below=Freshness(1_800),
        driver_memory="1g",
        spark_confs=SMALL_TABLES,
    )

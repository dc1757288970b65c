"""The Spark session that Labs share: starting one takes seconds, and a process can have only one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from pathlib import Path

from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from freshline.declare.freshness import Freshness
from freshline.declare.settings import Settings
from freshline.engine.spark import build_session, stop_session
from freshline.errors import EngineError

_LOCK = threading.Lock()
# Of a few rows, planning and compiling cost more than running: these halve what a refresh of them takes.
SMALL_TABLES = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.skipping": "false",
    # Each test makes its own tables, of which Delta would keep the state in memory for an hour.
    "spark.databricks.delta.delta.log.cacheRetentionMinutes": "5",
}
DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def shared_session() -> SparkSession:
    """The session of this process, or a new one that ends with it.

    Raises EngineError for a session that knows nothing of Delta.
    """
    with _LOCK:
        context = SparkContext._active_spark_context
        if context is None:
            return _new_session()
        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        if DELTA not in str(session.conf.get("spark.sql.extensions", "")):
            raise EngineError(
                "the Spark session of this process was started without Delta. Let the Lab start one, or start yours "
                f"with spark.sql.extensions = {DELTA} and Delta's catalog."
            )
        return session


def _new_session() -> SparkSession:
    root = Path(tempfile.mkdtemp(prefix="freshline-spark-"))
    session = build_session(lab_settings(root), app_name="freshline.testing", quick_start=True)

    def end() -> None:
        stop_session(session)
        shutil.rmtree(root, ignore_errors=True)

    atexit.register(end)
    return session


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

"""The Spark session that a process has or gets for itself, beside the engine: a process can have only one."""

from __future__ import annotations

import atexit
import threading

from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from freshline.engine.spark import build_session, stop_session
from freshline.errors import EngineError
from freshline.values.settings import Settings

_LOCK = threading.Lock()
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"


def own_session(settings: Settings, *, app_name: str) -> SparkSession:
    """The session of this process, or a new one with these settings that ends with the process.

    Raises EngineError for a session that knows nothing of Delta, and what `build_session` raises.
    """
    with _LOCK:
        if SparkContext._active_spark_context is None:
            session = build_session(settings, app_name=app_name, quick_start=True)
            atexit.register(stop_session, session)
            return session
        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        if _DELTA not in str(session.conf.get("spark.sql.extensions", "")):
            raise EngineError(
                "the Spark session of this process was started without Delta. Let freshline start one, or start yours "
                f"with spark.sql.extensions = {_DELTA} and Delta's catalog."
            )
        return session

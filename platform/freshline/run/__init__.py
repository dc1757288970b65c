"""The sentence, run: declare, plan, refresh, commit, report, for one table at a time.

Every door calls these functions and no other: the engine's loops, a Dagster run, the command line, a test.
"""

from freshline.refresh.runtime import Clock, PythonTables, Runtime, open_runtime, utc_now
from freshline.run.comparison import Verification
from freshline.run.maintenance import Maintained, maintain_table
from freshline.run.order import refresh_order
from freshline.run.refresh import refresh_table
from freshline.run.savepoint import (
    Restored,
    create_savepoint,
    drop_savepoint,
    finish_restore,
    is_restoring,
    list_savepoints,
    restore_savepoint,
)
from freshline.run.verify import verify_table

__all__ = [
    "Clock",
    "Maintained",
    "PythonTables",
    "Restored",
    "Runtime",
    "Verification",
    "create_savepoint",
    "drop_savepoint",
    "finish_restore",
    "is_restoring",
    "list_savepoints",
    "maintain_table",
    "open_runtime",
    "refresh_order",
    "refresh_table",
    "restore_savepoint",
    "utc_now",
    "verify_table",
]

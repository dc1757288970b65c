"""Materialized tables for Dagster, on Spark and Delta Lake.

Declare a table: a query, and how fresh it must be. The names here are those with which declarations are written in
Python, those that refresh and compare tables (`refresh_tables`, `verify_tables`) and declare them by statements
(`create_table`, `alter_query`, `drop_table`), those that change what tables promise (`set_freshness`,
`reset_freshness`, `suspend`, `resume`), savepoints
(`create_savepoint`, `restore_savepoint`, `drop_savepoint`, `savepoints`), and those that read tables (`read_rows`,
`read_changes`, `read_snapshot`, `open_reader`, and `read_union`, which reads a table with what has not arrived in it
yet) and keep changes for who has yet to read them (`register_consumer`, `drop_consumer`, `consumers`). They load what
they need when they are first used, so that `import freshline` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freshline.declare.python_table import lookup as lookup
    from freshline.declare.python_table import process as process
    from freshline.declare.python_table import read as read
    from freshline.declare.python_table import sink as sink
    from freshline.declare.python_table import source as source
    from freshline.declare.python_table import table as table
    from freshline.engine.reading import consumers as consumers
    from freshline.engine.reading import drop_consumer as drop_consumer
    from freshline.engine.reading import open_reader as open_reader
    from freshline.engine.reading import read_changes as read_changes
    from freshline.engine.reading import read_rows as read_rows
    from freshline.engine.reading import read_snapshot as read_snapshot
    from freshline.engine.reading import register_consumer as register_consumer
    from freshline.engine.savepoints import create_savepoint as create_savepoint
    from freshline.engine.savepoints import drop_savepoint as drop_savepoint
    from freshline.engine.savepoints import restore_savepoint as restore_savepoint
    from freshline.engine.savepoints import savepoints as savepoints
    from freshline.engine.tables import alter_query as alter_query
    from freshline.engine.tables import create_table as create_table
    from freshline.engine.tables import drop_table as drop_table
    from freshline.engine.tables import refresh_tables as refresh_tables
    from freshline.engine.tables import verify_tables as verify_tables
    from freshline.engine.union import read_union as read_union
    from freshline.manage.freshness import reset_freshness as reset_freshness
    from freshline.manage.freshness import set_freshness as set_freshness
    from freshline.manage.suspension import resume as resume
    from freshline.manage.suspension import suspend as suspend
    from freshline.version import __version__ as __version__


_MODULES = {
    "__version__": "freshline.version",
    "alter_query": "freshline.engine.tables",
    "consumers": "freshline.engine.reading",
    "create_savepoint": "freshline.engine.savepoints",
    "create_table": "freshline.engine.tables",
    "drop_consumer": "freshline.engine.reading",
    "drop_savepoint": "freshline.engine.savepoints",
    "drop_table": "freshline.engine.tables",
    "lookup": "freshline.declare.python_table",
    "open_reader": "freshline.engine.reading",
    "process": "freshline.declare.python_table",
    "read": "freshline.declare.python_table",
    "read_changes": "freshline.engine.reading",
    "read_rows": "freshline.engine.reading",
    "read_snapshot": "freshline.engine.reading",
    "read_union": "freshline.engine.union",
    "refresh_tables": "freshline.engine.tables",
    "register_consumer": "freshline.engine.reading",
    "reset_freshness": "freshline.manage.freshness",
    "restore_savepoint": "freshline.engine.savepoints",
    "resume": "freshline.manage.suspension",
    "savepoints": "freshline.engine.savepoints",
    "set_freshness": "freshline.manage.freshness",
    "sink": "freshline.declare.python_table",
    "source": "freshline.declare.python_table",
    "suspend": "freshline.manage.suspension",
    "table": "freshline.declare.python_table",
    "verify_tables": "freshline.engine.tables",
}
__all__ = [
    "__version__",
    "alter_query",
    "consumers",
    "create_savepoint",
    "create_table",
    "drop_consumer",
    "drop_savepoint",
    "drop_table",
    "lookup",
    "open_reader",
    "process",
    "read",
    "read_changes",
    "read_rows",
    "read_snapshot",
    "read_union",
    "refresh_tables",
    "register_consumer",
    "reset_freshness",
    "restore_savepoint",
    "resume",
    "savepoints",
    "set_freshness",
    "sink",
    "source",
    "suspend",
    "table",
    "verify_tables",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'freshline' has no attribute {name!r}")

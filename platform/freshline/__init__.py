"""Materialized tables for Dagster, on Spark and Delta Lake.

Declare a table: a query, and how fresh it must be. The names here are those with which declarations are written in
Python, those that change what tables promise (`set_freshness`, `reset_freshness`, `suspend`, `resume`), and
`read_union`, which reads a table with what has not arrived in it yet. They load what they need when they are first
used, so that `import freshline` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freshline.declare.python_table import lookup as lookup
    from freshline.declare.python_table import read as read
    from freshline.declare.python_table import source as source
    from freshline.declare.python_table import table as table
    from freshline.engine.union import read_union as read_union
    from freshline.manage.freshness import reset_freshness as reset_freshness
    from freshline.manage.freshness import set_freshness as set_freshness
    from freshline.manage.suspension import resume as resume
    from freshline.manage.suspension import suspend as suspend

__version__ = "0.1.0"

_MODULES = {
    "lookup": "freshline.declare.python_table",
    "read": "freshline.declare.python_table",
    "read_union": "freshline.engine.union",
    "reset_freshness": "freshline.manage.freshness",
    "resume": "freshline.manage.suspension",
    "set_freshness": "freshline.manage.freshness",
    "source": "freshline.declare.python_table",
    "suspend": "freshline.manage.suspension",
    "table": "freshline.declare.python_table",
}
__all__ = [
    "__version__",
    "lookup",
    "read",
    "read_union",
    "reset_freshness",
    "resume",
    "set_freshness",
    "source",
    "suspend",
    "table",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'freshline' has no attribute {name!r}")

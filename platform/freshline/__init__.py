"""Materialized tables for Dagster, on Spark and Delta Lake.

Declare a table: a query, and how fresh it must be. The names here are those with which declarations are written in
Python; they load what they need when they are first used, so that `import freshline` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freshline.declare.python_table import lookup as lookup
    from freshline.declare.python_table import read as read
    from freshline.declare.python_table import source as source
    from freshline.declare.python_table import table as table

__version__ = "0.1.0"
__all__ = ["__version__", "lookup", "read", "source", "table"]

_DECLARATIONS = ("lookup", "read", "source", "table")


def __getattr__(name: str) -> Any:
    if name in _DECLARATIONS:
        from freshline.declare import python_table

        return getattr(python_table, name)
    raise AttributeError(f"module 'freshline' has no attribute {name!r}")

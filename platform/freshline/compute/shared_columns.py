"""Columns that are built once for all refreshes.

Each part of a column is a call into the JVM, and one that judges a value has fifty. A column names others and belongs
to no session, so one that is built of the same arguments again is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from pyspark import SparkContext

# As many as the columns of a few hundred declarations.
MOST = 10_000
Build = TypeVar("Build", bound=Callable[..., Any])


def shared_column(build: Build) -> Build:
    """A function whose columns are kept for its arguments, which are compared as keys of a dictionary are.

    It may read nothing but its arguments, and none of them may be a column. Another JVM has columns of its own.
    """

    @lru_cache(maxsize=MOST)
    def built(_jvm: Hashable, *arguments: Hashable) -> Any:
        return build(*arguments)

    @wraps(build)
    def found(*arguments: Hashable) -> Any:
        return built(SparkContext._gateway, *arguments)

    return found  # type: ignore[return-value]

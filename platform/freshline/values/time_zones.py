"""The names of time zones that both Python and Java know."""

from __future__ import annotations

from functools import lru_cache

# Python knows these zones, and Java does not.
_NOT_OF_JAVA = frozenset(("Factory", "ROC", "localtime"))


@lru_cache(maxsize=1)
def known_time_zones() -> frozenset[str]:
    """Names such as `Europe/Berlin` and `UTC`, whose calendar Spark and this process agree on."""
    from zoneinfo import available_timezones  # opens some hundred files

    return frozenset(available_timezones()) - _NOT_OF_JAVA

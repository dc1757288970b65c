"""The shipped merges once more, slowly and in plain Python: a fold of the rows of one key, in no order.

Nothing here is shared with the library. A row is a dict of values as Python has them: None, numbers, Decimal, texts,
lists, and dicts for maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def rank(value: Any) -> Any:
    """A sort key by which two values are equal only where they are the same; None is the least, NaN the greatest."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    if isinstance(value, Mapping):
        return (1, sorted((rank(key), rank(of)) for key, of in value.items()))
    if isinstance(value, list | tuple):
        return (1, [rank(each) for each in value])
    return (1, value)


def ranks(values: Iterable[Any]) -> list[Any]:
    """The same of several values, the first of which counts most."""
    return [rank(value) for value in values]


def by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of each key that has no None."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if None not in key:
            found.setdefault(key, []).append(row)
    return found


def fold(
    rows: Iterable[Row], keys: Sequence[str], fold_key: Callable[[list[Row]], dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their keys. `fold_key` returns None for a key that is not there."""
    made = ((key, fold_key(of_key)) for key, of_key in by_key(rows, keys).items())
    found = [{**dict(zip(keys, key, strict=True)), **row} for key, row in made if row is not None]
    return sorted(found, key=lambda row: ranks(row[name] for name in keys))


def versioned(
    version: str, columns: Sequence[str], is_delete: Callable[[Row], bool] | None, rows: list[Row]
) -> dict[str, Any] | None:
    """The row with the greatest version, of these the greatest; None where it deletes, or none has a version."""
    known = [row for row in rows if row[version] is not None]
    if not known:
        return None

    def place(row: Row) -> Any:
        return (rank(row[version]), ranks(row[name] for name in columns), is_delete is not None and is_delete(row))

    best = max(known, key=place)
    return None if is_delete is not None and is_delete(best) else {name: best[name] for name in columns}


def plain(value: Any) -> Any:
    """A value that equals another one only where both are the same: NaN is one value, and the zeros are two."""
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, Mapping):
        return sorted((plain(key), plain(of)) for key, of in value.items())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value

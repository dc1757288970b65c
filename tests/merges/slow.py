"""The shipped merges once more, slowly and in plain Python: a fold of the rows of one key, in no order.

Nothing here is shared with the library. A row is a dict of values as Python has them: None, numbers, Decimal, texts,
lists, and dicts for maps.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
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


def positive(value: Any) -> Any:
    """The value with positive zeros, also in maps and lists."""
    if isinstance(value, float):
        return 0.0 if value == 0 else value
    if isinstance(value, Mapping):
        return {key: positive(of) for key, of in value.items()}
    return [positive(each) for each in value] if isinstance(value, list | tuple) else value


def aggregate(
    functions: Mapping[str, tuple[str, str]], order: Callable[[Row], Sequence[Any]], rows: list[Row]
) -> dict[str, Any]:
    """The columns of a key's row, each by its function and separator.

    `order` is the sequence of a row and what breaks ties. Where that does not decide, the columns do.
    """
    in_order = sorted(rows, key=lambda row: (ranks(order(row)), ranks(row[column] for column in functions)))
    without = [row for row in in_order if order(row)[0] is None]
    first_come = [*in_order[len(without) :], *without]
    return {
        column: function_of(
            function, separator, [positive(row[column]) for row in in_order], [positive(r[column]) for r in first_come]
        )
        for column, (function, separator) in functions.items()
    }


def function_of(function: str, separator: str, values: Sequence[Any], first_come: Sequence[Any]) -> Any:
    """One function of values in the order of their rows; in `first_come` those without a sequence are the last."""
    known = sorted((value for value in values if value is not None), key=rank)
    match function:
        case "count":
            return len(known)
        case "collect":
            return known
        case "collect_distinct":
            return [value for at, value in enumerate(known) if at == 0 or rank(value) != rank(known[at - 1])]
        case "first_value" | "first_non_null":
            return next((value for value in first_come if value is not None or function == "first_value"), None)
        case "last_value" | "last_non_null":
            return next((value for value in reversed(values) if value is not None or function == "last_value"), None)
    return of_some(function, separator, known, values) if known else None


def of_some(function: str, separator: str, known: Sequence[Any], values: Sequence[Any]) -> Any:
    """The functions that need a value; `known` are sorted by themselves."""
    match function:
        case "sum":
            # Not `sum`, which newer versions of Python round otherwise.
            return reduce(operator.add, known, type(known[0])(0))
        case "product":
            return math.prod(known)
        case "min" | "bool_and":
            return known[0]
        case "max" | "bool_or":
            return known[-1]
        case "listagg":
            return separator.join(value for value in values if value is not None)
        case "merge_map":
            return {key: of for value in values if value is not None for key, of in value.items()}
    raise AssertionError(function)


def partial_update(
    groups: Mapping[str, tuple[Mapping[str, str], Sequence[str]]],
    others: Sequence[str],
    sequence: str,
    ties: Sequence[str],
    deletes: tuple[str, Callable[[Row], bool]] | None,
    rows: list[Row],
) -> dict[str, Any] | None:
    """The row of a key whose columns come in groups; None where the last row of the group of `deletes` is a delete.

    A group has columns with a function each, empty for the value of the last row, and the sequences that it follows.
    """
    made: dict[str, Any] = {}
    for name, (columns, by) in groups.items():
        in_order = sorted(
            (row for row in rows if all(row[each] is not None for each in by)),
            key=lambda row: (
                ranks(row[each] for each in (*by, *ties, *columns)),
                deletes is not None and deletes[1](row),
            ),
        )
        if deletes is not None and name == deletes[0] and in_order and deletes[1](in_order[-1]):
            return None
        for column, function in columns.items():
            values = [positive(row[column]) for row in in_order]
            made[column] = function_of(function or "last_value", ",", values, values)
    for column in others:
        known = [row for row in rows if row[column] is not None]
        newest = max(known, key=lambda row: ranks(row[each] for each in (sequence, *ties, column)), default=None)
        made[column] = None if newest is None else positive(newest[column])
    return made


def plain(value: Any) -> Any:
    """A value that equals another one only where both are the same: NaN is one value, and the zeros are two."""
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, Mapping):
        return sorted((plain(key), plain(of)) for key, of in value.items())
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value

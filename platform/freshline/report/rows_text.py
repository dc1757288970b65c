"""The rows of a query as they are printed.

The engine writes each row as the text of a JSON object, with every digit of a decimal. Here the text is only cut into
cells: a number is never read and written again, so the text shows exactly the value in the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from freshline.report.table_text import table_text

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "byte", "short", "integer", "long")


def rows_json(rows: Sequence[str]) -> str:
    """A JSON list of the rows, each as the engine wrote it: a number is not read and written again.

    >>> rows_json(['{"a":1.10}'])
    '[{"a":1.10}]'
    """
    return "[" + ",\n ".join(map(_escaped, rows)) + "]"


def _escaped(row: str) -> str:
    """The same JSON with escapes for what a terminal may obey: such characters are in texts alone."""
    if row.isprintable():
        return row
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in row)


def rows_text(columns: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """The rows as a table and their number.

    >>> print(rows_text([("a", "decimal(4,2)"), ("b", "string")], ['{"a":1.10,"b":null}', '{"a":22.50,"b":"x"}']))
        a  b
     1.10  NULL
    22.50  x
    (2 rows)
    """
    names = [name for name, _ in columns]
    cells = [_cells(names, row) for row in rows]
    right = [index for index, (_, kind) in enumerate(columns) if kind.lower().split("(")[0] in NUMBERS]
    count = "(1 row)" if len(rows) == 1 else f"({len(rows):,} rows)"
    return f"{table_text(names, cells, right=right)}\n{count}" if names else count


def _cells(names: Sequence[str], row: str) -> list[str | None]:
    # Pairs, not a dict: a query may give two columns one name. Numbers stay as they are written.
    pairs = json.loads(row, parse_float=_Number, parse_int=_Number, object_pairs_hook=_Pairs)
    assert isinstance(pairs, _Pairs)
    if [name for name, _ in pairs] == list(names):
        return [_cell(value) for _, value in pairs]
    values = dict(pairs)
    return [_cell(values.get(name)) for name in names]


class _Number(str):
    """A number as the engine wrote it."""


class _Pairs(list[tuple[str, object]]):
    """A JSON object in its order."""


def _cell(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    return _nested(value)


def _nested(value: object) -> str:
    if isinstance(value, _Pairs):
        return "{" + ", ".join(f"{json.dumps(name)}: {_nested(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_nested(inner) for inner in value) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)

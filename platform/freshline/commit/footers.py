"""The footers of a table's files. A log's statistics in Delta leave texts out, the footers do not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq


def have_no_null(path: Path, files: Sequence[str], columns: Collection[str]) -> bool:
    """Whether the footers surely say that no row of some files, as the log names them, has NULL in one of `columns`."""
    wanted = {column.lower() for column in columns}
    return all(wanted <= _without_null(path / unquote(file)) for file in files)


def _without_null(file: Path) -> set[str]:
    """The columns, in lower case, of which every row group counts no NULL."""
    try:
        footer = pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        # Whoever reads the rows says what is wrong.
        return set()
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    # A field of a struct has a path with the struct's name, and so might a column that is named like one.
    found = {name.lower() for name in names if "." not in name and names.count(name) == 1}
    for group in range(footer.num_row_groups):
        for number, name in enumerate(names):
            statistics = footer.row_group(group).column(number).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                found.discard(name.lower())
    return found

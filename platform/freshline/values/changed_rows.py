"""Rows as they were and as they are: both images of a change, for sinks that send them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ChangedRows:
    """Rows before and after their changes, side by side.

    `had` says where there was a row before, `has` where there is one after. The columns of PRIMARY KEY are those of
    `after` in any case. Where there is no row, its other columns have no meaning.
    """

    before: pa.RecordBatch
    after: pa.RecordBatch
    had: pa.BooleanArray
    has: pa.BooleanArray

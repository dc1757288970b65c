"""Parquet and ORC: files of rows, whose values have types of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.values.format import Decoded, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


class RowsInFiles(Format):
    """Records are the rows of files; of their columns those with the names of declared ones are read."""

    of_files: ClassVar[bool] = True
    has_text: ClassVar[bool] = False

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.typed import decode_typed

        return decode_typed(records)


@dataclass(frozen=True)
class Parquet(RowsInFiles):
    """The rows of Parquet files."""

    name: ClassVar[str] = "parquet"
    rejections: ClassVar[Mapping[str, str]] = {"NOT_PARQUET": "the file is no Parquet file"}

    def container(self, spec: SourceSpec) -> Any:
        from freshline.sources.formats.parquet_files import ParquetRows
        from freshline.sources.formats.typed import wanted

        return ParquetRows(wanted(spec))

    def encode(self, rows: Sequence[Mapping[str, object]]) -> bytes:
        from freshline.sources.formats.parquet_files import encode

        return encode(rows)


@dataclass(frozen=True)
class Orc(RowsInFiles):
    """The rows of ORC files."""

    name: ClassVar[str] = "orc"
    rejections: ClassVar[Mapping[str, str]] = {"NOT_ORC": "the file is no ORC file"}

    def container(self, spec: SourceSpec) -> Any:
        from freshline.sources.formats.orc_files import OrcRows
        from freshline.sources.formats.typed import wanted

        return OrcRows(wanted(spec))

    def encode(self, rows: Sequence[Mapping[str, object]]) -> bytes:
        from freshline.sources.formats.orc_files import encode

        return encode(rows)

"""CSV as RFC 4180 has it: quotes are doubled inside quotes, and a record is one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from freshline.declare.format import Decoded, Format
from freshline.declare.options import Kind, Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.declare.spec import SourceSpec


@dataclass(frozen=True)
class Csv(Format):
    """Records are lines of fields. With `header` the first line of a file names them, else they are as declared."""

    header: bool = True
    null_value: str | None = None

    name: ClassVar[str] = "csv"
    options: ClassVar[tuple[Option, ...]] = (
        Option("header", "whether the first line of a file names its columns", Kind.BOOLEAN),
        Option("null-value", "the text that stands for NULL", Kind.RAW),
    )
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_CSV": "the line does not have the declared number of columns, or a value is not of its declared type",
    }
    of_files: ClassVar[bool] = True
    lines: ClassVar[str] = "csv"

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.header, self.null_value)

    @property
    def has_header(self) -> bool:
        return self.header

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.decode import decode_csv

        return decode_csv(records, spec, columns, self.null_value)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str:
        lines: list[list[object]] = [list(rows[0])] if rows and self.header else []
        lines += [list(row.values()) for row in rows]
        return "".join(",".join(_cell(value) for value in line) + "\n" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r') else text

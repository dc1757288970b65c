"""CSV as RFC 4180 has it: quotes are doubled inside quotes, and a record is one line unless it may have several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.declare.column_types import is_nested
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
    multi_line: bool = False

    name: ClassVar[str] = "csv"
    options: ClassVar[tuple[Option, ...]] = (
        Option("header", "whether the first line of a file names its columns", Kind.BOOLEAN),
        Option("null-value", "the text that stands for NULL", Kind.RAW),
        Option("multi-line", "whether line breaks inside quotes are part of a value", Kind.BOOLEAN),
    )
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_CSV": "the line does not have the declared number of columns, or a value is not of its declared type",
    }
    of_files: ClassVar[bool] = True
    lines: ClassVar[str] = "csv"

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        if not is_nested(kind):
            return None
        return "a field has no values within. Declare STRING, and read the text in a query, as from_json does"

    @property
    def meaning(self) -> tuple[object, ...]:
        # A log of before the option has the fingerprint that it had.
        return (self.header, self.null_value, *([True] if self.multi_line else []))

    @property
    def has_header(self) -> bool:
        return self.header

    def container(self, spec: SourceSpec) -> Any:
        if not self.multi_line:
            return None
        # Loads Spark.
        from freshline.sources.formats.csv_files import QuotedRecords
        from freshline.sources.formats.decode import MOST_FIELDS

        return QuotedRecords(spec.max_record_bytes, MOST_FIELDS)

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
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text

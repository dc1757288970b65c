"""CSV as RFC 4180 has it: quotes are doubled inside quotes, and a record is one line unless it may have several.

With an escape, as Spark's writer has it, a quote inside quotes has that before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.sources.formats.csv_fields import Dialect
from freshline.values.column_types import is_nested
from freshline.values.format import Decoded, Format
from freshline.values.options import Kind, Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class Csv(Format):
    """Records are lines of fields. With `header` the first line of a file names them, else they are as declared.

    Without `escape` a quote inside quotes stands twice.
    """

    header: bool = True
    null_value: str | None = None
    multi_line: bool = False
    separator: str = ","
    escape: str | None = None

    name: ClassVar[str] = "csv"
    options: ClassVar[tuple[Option, ...]] = (
        Option("header", "whether the first line of a file names its columns", Kind.BOOLEAN),
        Option("null-value", "the text that stands for NULL", Kind.RAW),
        Option("multi-line", "whether line breaks inside quotes are part of a value", Kind.BOOLEAN),
        Option("separator", "the character between two fields", Kind.RAW),
        Option("escape", "the character before a quote, or itself, inside quotes", Kind.RAW),
    )
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_CSV": "the line does not have the columns of the header, or the declared ones, or quotes are not as RFC "
        "4180 has them, or a value is not of its declared type",
    }
    of_files: ClassVar[bool] = True
    lines: ClassVar[str] = "csv"

    @classmethod
    def declare(cls, options: Options) -> Self:
        declared = super().declare(options)
        separator = {"\\t": "\t", "tab": "\t"}.get(declared.separator, declared.separator)
        if not _is_sign(separator):
            options.reject(
                "separator", "one character of ASCII that is no letter, digit, quote or line break, or 'tab'"
            )
            return replace(declared, separator=",")
        if declared.escape is not None and (not _is_sign(declared.escape) or declared.escape == separator):
            options.reject(
                "escape", "one character of ASCII that is no letter, digit, quote or line break, nor the separator"
            )
            return replace(declared, escape=None)
        return replace(declared, separator=separator)

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        if not is_nested(kind):
            return None
        return "a field has no values within. Declare STRING, and read the text in a query, as from_json does"

    @property
    def dialect(self) -> Dialect:
        """The separator and the escape of fields."""
        return Dialect(self.separator, self.escape)

    @property
    def meaning(self) -> tuple[object, ...]:
        # A log of before an option has the fingerprint that it had.
        others = [("separator", self.separator, ","), ("escape", self.escape, None)]
        given = [(name, value) for name, value, default in others if value != default]
        return (self.header, self.null_value, *([True] if self.multi_line else []), *given)

    @property
    def has_header(self) -> bool:
        return self.header

    def container(self, spec: SourceSpec) -> Any:
        if not self.multi_line:
            return None
        # Loads Spark.
        from freshline.sources.formats.csv_files import QuotedRecords

        return QuotedRecords(spec.max_record_bytes, self.separator, self.escape)

    def names_in(self, line: str) -> tuple[str, ...] | None:
        fields = self.dialect.split(line)
        return None if fields is None else tuple(self.dialect.value(field).strip() for field in fields)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.decode import decode_csv

        return decode_csv(records, spec, columns, self.dialect, self.null_value)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str:
        lines: list[list[object]] = [list(rows[0])] if rows and self.header else []
        lines += [list(row.values()) for row in rows]
        return "".join(self.separator.join(self._cell(value) for value in line) + "\n" for line in lines)

    def _cell(self, value: object) -> str:
        if value is None:
            return ""
        text = str(value)
        if text and not set(text) & {self.separator, '"', "\r", "\n"}:
            return text
        signs = '"' if self.escape is None else f'"{self.escape}'
        inner = "".join(f"{self.escape or sign}{sign}" if sign in signs else sign for sign in text)
        return f'"{inner}"'


def _is_sign(text: str) -> bool:
    return len(text) == 1 and text.isascii() and not text.isalnum() and text not in '"\r\n\0'

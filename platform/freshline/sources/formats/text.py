"""Text: a line, or a whole file, is the value of the one declared column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.values.format import Decoded, Format
from freshline.values.options import Kind, Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class Text(Format):
    """Records are texts. With `whole_file` a file is one record, else each of its lines is one, empty ones too."""

    whole_file: bool = False

    name: ClassVar[str] = "text"
    options: ClassVar[tuple[Option, ...]] = (
        Option("whole-file", "whether a file is one record, and not each of its lines", Kind.BOOLEAN),
    )
    rejections: ClassVar[Mapping[str, str]] = {"NOT_UTF8": "the text is not valid UTF-8"}
    lines: ClassVar[str] = "every"
    of_keys: ClassVar[bool] = True

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.whole_file,)

    @classmethod
    def find_problems(cls, columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        if len(columns) == 1 and columns[0][1] == "STRING":
            return ()
        return (
            "option 'format' = 'text' needs one column of the record, a STRING. Declare that, and METADATA beside it.",
        )

    def container(self, spec: SourceSpec) -> Any:
        if not self.whole_file:
            return None
        from freshline.sources.formats.text_files import WholeFile

        return WholeFile(spec.max_record_bytes)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.decode import decode_text

        return decode_text(records, spec)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str:
        return "".join(f"{next(iter(row.values()))}\n" for row in rows)

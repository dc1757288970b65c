"""XML: each element of a name is a record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.values.column_types import refuses_keys
from freshline.values.format import Decoded, Format
from freshline.values.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec

# A name of XML, but for letters beyond those of words.
_NAME = re.compile(r"[^\W\d][\w.:-]*")


@dataclass(frozen=True)
class Xml(Format):
    """Records are the elements `row_tag`; columns are the elements and attributes in them."""

    row_tag: str = ""

    name: ClassVar[str] = "xml"
    options: ClassVar[tuple[Option, ...]] = (Option("row-tag", "the name of the elements that are records"),)
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_XML": "the element is no XML, or has a value that is not of its declared type",
    }
    of_files: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_keys(kind)

    @classmethod
    def declare(cls, options: Options) -> Self:
        declared = super().declare(options)
        if "row-tag" not in options:
            options.problems.add(
                "OPTION_NEEDS",
                "a source of xml needs the option 'row-tag': the name of the elements that are records.",
                options.at("format"),
            )
        elif declared.row_tag and not _NAME.fullmatch(declared.row_tag):
            options.reject("row-tag", "the name of an element, such as order")
        return declared

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.row_tag,)

    def container(self, spec: SourceSpec) -> Any:
        # Loads Spark.
        from freshline.sources.formats.typed import wanted
        from freshline.sources.formats.xml_files import Elements

        return Elements(wanted(spec), self.row_tag)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        from freshline.sources.formats.decode import decode_xml

        return decode_xml(records, spec)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str:
        from freshline.sources.formats.xml_files import encode

        return encode(rows, self.row_tag)

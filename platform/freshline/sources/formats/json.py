"""JSON: one object on a line, or one that is a record's whole value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from freshline.values.column_types import refuses_keys
from freshline.values.format import Decoded, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class Json(Format):
    """Records are JSON objects; of their fields those with the names of declared columns are read."""

    name: ClassVar[str] = "json"
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_JSON": "the line is not one JSON object with values of the declared types",
    }
    lines: ClassVar[str] = "json"
    of_keys: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_keys(kind)

    @property
    def meaning(self) -> tuple[object, ...]:
        # The header and the null value of a format that has none.
        return (True, None)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.decode import decode_json

        return decode_json(records, spec)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str:
        return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)

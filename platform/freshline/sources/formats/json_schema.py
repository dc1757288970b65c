"""JSON with the frame of a schema registry before it, as serializers of JSON Schema write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from freshline.sources.formats.registry import SCHEMA_METADATA
from freshline.values.column_types import refuses_keys
from freshline.values.connector import Metadata
from freshline.values.format import Decoded, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class JsonSchema(Format):
    """Records are framed JSON objects, read as those of `json`. The registry is not asked: JSON names its fields."""

    name: ClassVar[str] = "json-schema"
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_JSON": "the record is not one JSON object with values of the declared types, behind the frame of a schema "
        "registry where the format has one",
    }
    metadata: ClassVar[Mapping[str, Metadata]] = SCHEMA_METADATA
    has_text: ClassVar[bool] = False
    of_topics: ClassVar[bool] = True
    of_keys: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_keys(kind)

    @property
    def has_bytes(self) -> bool:
        return True

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.decode import decode_framed_json

        return decode_framed_json(records, spec)

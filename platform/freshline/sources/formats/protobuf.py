"""Protobuf: records of topics, whose files a schema registry has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from freshline.sources.formats.registry import REGISTRY_OPTIONS, SCHEMA_METADATA, Registry, RegistryFormat
from freshline.values.column_types import is_nested, map_keys
from freshline.values.connector import Metadata
from freshline.values.format import Decoded
from freshline.values.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class Protobuf(RegistryFormat):
    """Records are messages that name their files; of their fields those with the names of declared columns are read."""

    name: ClassVar[str] = "protobuf"
    options: ClassVar[tuple[Option, ...]] = REGISTRY_OPTIONS
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_PROTOBUF": "the record is no message of the file that it names",
        "UNKNOWN_SCHEMA": "the schema registry does not know the schema that the record names",
    }
    metadata: ClassVar[Mapping[str, Metadata]] = SCHEMA_METADATA
    has_descriptors: ClassVar[bool] = True
    of_topics: ClassVar[bool] = True
    of_keys: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        other = next((key for key in map_keys(kind) if is_nested(key) or key in ("FLOAT", "DOUBLE", "BINARY")), None)
        if other is None:
            return None
        return f"the keys of a map are texts, whole numbers or booleans, and not {other}. Declare such a key"

    @classmethod
    def declare(cls, options: Options) -> Self:
        return cls(registry=Registry.declare(options))

    def undeclared(self, spec: SourceSpec) -> Mapping[str, str]:
        from freshline.sources.formats.framed_rows import undeclared_of_messages

        return undeclared_of_messages(self.schemas, spec)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.framed_rows import decode_framed_protobuf

        return decode_framed_protobuf(records, spec, self)

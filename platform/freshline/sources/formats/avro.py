"""Avro: object container files, whose records have a schema of their own, and records of topics that name theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.sources.formats.registry import REGISTRY_OPTIONS, SCHEMA_METADATA, Registry, RegistryFormat
from freshline.values.column_types import refuses_keys
from freshline.values.connector import Connector, Metadata
from freshline.values.format import Decoded, Format
from freshline.values.options import Kind, Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class Avro(RegistryFormat):
    """Records of Avro; of their fields those with the names of declared columns are read.

    With `schema` records are resolved to that schema first, whose aliases and defaults count. Files have their own
    schemas, and no registry. `is_key` says that it is the format of keys.
    """

    schema: str | None = None
    is_key: bool = False

    name: ClassVar[str] = "avro"
    options: ClassVar[tuple[Option, ...]] = (
        Option("avro.schema", "the schema that records are resolved to, as JSON", Kind.RAW, field="schema"),
        *REGISTRY_OPTIONS,
    )
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_AVRO": "the record, the file or a block of it is no Avro of its schema",
        "UNKNOWN_SCHEMA": "the schema registry does not know the schema that the record names",
    }
    of_keys: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_keys(kind)

    @classmethod
    def declare(cls, options: Options) -> Self:
        schema = options.raw("avro.schema")
        if schema is not None:
            # Loads the parser of schemas, which other declarations do without.
            from freshline.sources.formats.avro_schema import NoSchema, read_schema

            try:
                read_schema(schema)
            except NoSchema as error:
                options.reject("avro.schema", f"the JSON of an Avro record: {error}")
        return cls(schema, registry=Registry.declare(options))

    @classmethod
    def metadata_with(cls, connector: type[Connector]) -> Mapping[str, Metadata]:
        return {} if connector.has_lines else SCHEMA_METADATA

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.schema,)

    def undeclared(self, spec: SourceSpec) -> Mapping[str, str]:
        if not self.schemas:
            return {}
        from freshline.sources.formats.framed_rows import undeclared_fields

        return undeclared_fields(self.schemas, spec, asked=self.schema)

    def of_key(self) -> Format:
        return replace(self, schema=None, is_key=True)

    def container(self, spec: SourceSpec) -> Any:
        # Loads Spark.
        from freshline.sources.formats.avro_files import AvroRecords
        from freshline.sources.formats.typed import wanted

        return AvroRecords(wanted(spec), self.schema)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        if self.registry is not None:
            from freshline.sources.formats.framed_rows import decode_framed_avro

            return decode_framed_avro(records, spec, self)
        from freshline.sources.formats.typed import decode_typed

        return decode_typed(records)

"""Avro: object container files, whose records have a schema of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.declare.format import Decoded, Format
from freshline.declare.options import Kind, Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.declare.spec import SourceSpec


@dataclass(frozen=True)
class Avro(Format):
    """Records are those of object container files; of their fields those with the names of declared columns are read.

    With `schema` records are resolved to that schema first, whose aliases and defaults count.
    """

    schema: str | None = None

    name: ClassVar[str] = "avro"
    options: ClassVar[tuple[Option, ...]] = (
        Option("avro.schema", "the schema that records are resolved to, as JSON", Kind.RAW, field="schema"),
    )
    rejections: ClassVar[Mapping[str, str]] = {"NOT_AVRO": "the file, or a block of it, is no Avro"}
    of_files: ClassVar[bool] = True
    has_text: ClassVar[bool] = False

    @classmethod
    def declare(cls, options: Options) -> Self:
        declared = super().declare(options)
        if declared.schema is not None:
            # Loads the parser of schemas, which other declarations do without.
            from freshline.sources.formats.avro_schema import NoSchema, read_schema

            try:
                read_schema(declared.schema)
            except NoSchema as error:
                options.reject("avro.schema", f"the JSON of an Avro record: {error}")
        return declared

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.schema,)

    def container(self, spec: SourceSpec) -> Any:
        # Loads Spark.
        from freshline.sources.formats.avro_files import AvroRecords
        from freshline.sources.formats.typed import wanted

        return AvroRecords(wanted(spec), self.schema)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        from freshline.sources.formats.typed import decode_typed

        return decode_typed(records)

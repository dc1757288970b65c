"""Debezium's change events as Avro, whose schemas a registry has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.errors import FreshlineError
from freshline.sources.formats.debezium import (
    ORDER_OPTION,
    SOURCE_ORDER,
    TIME_UNIT_OPTION,
    UNAVAILABLE,
    UNAVAILABLE_OPTION,
    DebeziumJson,
    order_meaning,
)
from freshline.sources.formats.registry import QUARANTINE, REGISTRY_OPTIONS, SCHEMA_METADATA, Registry, RegistryFormat
from freshline.values.change import CHANGE_METADATA
from freshline.values.column_types import refuses_keys
from freshline.values.connector import Metadata
from freshline.values.format import Decoded, Format
from freshline.values.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class DebeziumAvro(RegistryFormat):
    """Records are envelopes of Debezium that name their schemas, and give the rows that those of `debezium-json` give.

    `time_unit` is that of numbers for a TIMESTAMP which the schema does not explain. `unavailable` stands for a value
    that was not sent. `order` is that of the changes of a row, `arrival` or `source`.
    """

    time_unit: str | None = None
    unavailable: str = UNAVAILABLE
    order: str = "arrival"

    name: ClassVar[str] = "debezium-avro"
    options: ClassVar[tuple[Option, ...]] = (TIME_UNIT_OPTION, UNAVAILABLE_OPTION, ORDER_OPTION, *REGISTRY_OPTIONS)
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_ENVELOPE": DebeziumJson.rejections["NOT_ENVELOPE"],
        "NOT_AVRO": "the record is no Avro of the schema that it names",
        "UNKNOWN_SCHEMA": "the schema registry does not know the schema that the record names",
        "VALUE_UNKNOWN": DebeziumJson.rejections["VALUE_UNKNOWN"],
    }
    stopping: ClassVar[Mapping[str, Callable[..., FreshlineError]]] = DebeziumJson.stopping
    metadata: ClassVar[Mapping[str, Metadata]] = {**CHANGE_METADATA, **SCHEMA_METADATA}
    is_change_feed: ClassVar[bool] = True
    takes_tombstones: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_keys(kind)

    @classmethod
    def declare(cls, options: Options) -> Self:
        own = options.values((TIME_UNIT_OPTION, UNAVAILABLE_OPTION, ORDER_OPTION))
        return cls(**own, registry=Registry.declare(options))

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.time_unit, self.unavailable, *order_meaning(self.order))

    @property
    def is_in_source_order(self) -> bool:
        return self.order == SOURCE_ORDER

    def prepare(self, records: Sequence[DataFrame], spec: SourceSpec, host: Any) -> Format:
        from freshline.sources.formats.debezium_rows import keys_of_messages
        from freshline.sources.formats.framed_rows import find_schemas

        assert self.registry is not None
        schemas = find_schemas(records, self.registry, spec, host)
        # Keys may be of another converter, whose bytes name no schema.
        of_keys = replace(self.registry, unknown_id=QUARANTINE)
        keys = find_schemas(keys_of_messages(records, spec), of_keys, spec, host)
        return replace(self, schemas={**keys, **schemas})

    def undeclared(self, spec: SourceSpec) -> Mapping[str, str]:
        from freshline.sources.formats.debezium_rows import undeclared_columns

        return undeclared_columns(self.schemas, spec)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.debezium_rows import decode_debezium_avro

        return decode_debezium_avro(records, spec, self)

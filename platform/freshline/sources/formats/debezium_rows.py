"""Debezium's records as columns: each is read once, by Python in the processes of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType, TimestampType

from freshline.sources.formats import envelope as envelope_module
from freshline.sources.formats import envelope_avro as envelope_avro_module
from freshline.sources.formats.avro_schema import AvroRecord, kind_of, resolve
from freshline.sources.formats.envelope import TOMBSTONE, ChangeEvent, EnvelopeFacts, EnvelopeReader, Rejected
from freshline.sources.formats.envelope_avro import AvroEnvelopes
from freshline.sources.formats.framed_rows import (
    AVRO_MODULES,
    BROKEN,
    Schemas,
    avro_schemas,
    decode_in_tasks,
    undeclared_fields,
)
from freshline.sources.formats.framing import schema_id_of
from freshline.sources.formats.registry import SCHEMA_ID
from freshline.sources.records import DROPPED, before_schema, record_schema, with_removed
from freshline.values.change import BEFORE, CHANGED_AT, OP, POSITION, TRANSACTION, UNFIT, UNSENT
from freshline.values.format import PARSED, VALUE, Decoded
from freshline.values.spec import SourceSpec

if TYPE_CHECKING:
    from freshline.sources.formats.debezium import DebeziumJson
    from freshline.sources.formats.debezium_avro import DebeziumAvro


# The facts of a change beside its values.
_FACTS = (
    StructField(OP, StringType()),
    StructField(POSITION, StringType()),
    StructField(CHANGED_AT, TimestampType()),
    StructField(TRANSACTION, StringType()),
    StructField(UNSENT, ArrayType(StringType())),
)
_NOTHING = (None,) * (2 + len(_FACTS))


def _facts(spec: SourceSpec) -> tuple[StructField, ...]:
    return (*_FACTS, StructField(BEFORE, before_schema(spec)))


def decode_debezium(records: DataFrame, spec: SourceSpec, declared: DebeziumJson) -> Decoded:
    """The records with the struct PARSED and the facts of their events."""
    reading = _reading(spec, declared.time_unit, declared.decimals, declared.unavailable)
    dropped, left_out = DROPPED, (None, TOMBSTONE)
    return _decode(
        records,
        spec,
        _facts(spec),
        (envelope_module,),
        lambda: EnvelopeReader(reading),
        lambda record: (),
        lambda code: dropped if code in left_out else code,
    )


def decode_debezium_avro(records: DataFrame, spec: SourceSpec, declared: DebeziumAvro) -> Decoded:
    """The records with the struct PARSED, the facts of their events, and the ids of their schemas."""
    reading = _reading(spec, declared.time_unit, None, declared.unavailable)
    schemas = avro_schemas(declared.schemas)
    return _decode(
        records,
        spec,
        (*_facts(spec), StructField(SCHEMA_ID, IntegerType())),
        (*AVRO_MODULES, envelope_module, envelope_avro_module),
        lambda: AvroEnvelopes(EnvelopeReader(reading), schemas),
        # One that is too large is read too: its key is that of a value which is not known from then on.
        lambda record: (None if record is None else schema_id_of(record),),
        lambda code: code,
    )


def _decode(
    records: DataFrame,
    spec: SourceSpec,
    facts: Sequence[StructField],
    modules: Sequence[ModuleType],
    open_reader: Callable[[], EnvelopeReader | AvroEnvelopes],
    facts_of_record: Callable[[bytes | None], tuple[Any, ...]],
    code_of: Callable[[str | None], str | None],
) -> Decoded:
    """Records as events. `facts_of_record` are those behind the facts of an event.

    `code_of` makes the code of quarantine of that with which a record was rejected, None for a record without a value.
    """
    names = tuple(field.name for field in record_schema(spec).fields)
    made, nothing, unfit = _made(spec, facts), _NOTHING, UNFIT

    def begin() -> Callable[..., list[pa.Array]]:
        reader = open_reader()

        def facts_of(event: ChangeEvent) -> tuple[Any, ...]:
            values = dict(zip(names, event.values, strict=True))
            before = None
            if event.before is not None:
                before = dict(zip(names, event.before, strict=True)) if event.before else {unfit: True}
            return (values, event.op, event.position, event.changed_at, event.transaction, list(event.unsent), before)

        def row(record: bytes | None, key: bytes | None) -> tuple[Any, ...]:
            more = facts_of_record(record)
            if record is None:
                return (*nothing, *more, code_of(None))
            try:
                return (*facts_of(reader.read(record, key)), *more, None)
            except Rejected as rejected:
                known = nothing if rejected.known is None else facts_of(rejected.known)
                return (*known, *more, code_of(str(rejected)))

        def read(records: list[bytes | None], keys: list[bytes | None] | None = None) -> list[pa.Array]:
            columns = zip(*map(row, records, keys or [None] * len(records)), strict=True)
            return [pa.array(values, type=field.type) for values, field in zip(columns, made, strict=True)]

        return read

    decoded = decode_in_tasks(records, spec, facts, begin, modules, message_key_of(records, spec))
    return replace(decoded, rows=with_removed(decoded.rows, spec))


def message_key_of(records: DataFrame, spec: SourceSpec) -> str | None:
    """The column with the keys of messages, which name rows; None where there are none, or they have their format."""
    column = None if spec.key is not None else spec.connection.record_key
    return column if column in records.columns else None


def keys_of_messages(records: Sequence[DataFrame], spec: SourceSpec) -> list[DataFrame]:
    """The keys of messages as records, where there are some."""
    columns = [(rows, message_key_of(rows, spec)) for rows in records]
    return [rows.select(F.col(column).alias(VALUE)) for rows, column in columns if column is not None]


def undeclared_columns(schemas: Schemas, spec: SourceSpec) -> dict[str, str]:
    """The columns of tables whose changes records are, and which are not declared; each with its type in SQL."""
    return undeclared_fields(schemas, spec, _image_of)


def _image_of(envelope: AvroRecord) -> AvroRecord | None:
    """The record of the image within an envelope; None for flattened ones, whose columns stand beside other facts."""
    field = next((each for each in envelope.fields if each["name"] == "after"), None)
    branches = [] if field is None else field["type"] if isinstance(field["type"], list) else [field["type"]]
    images = [found for each in branches if kind_of(found := resolve(each, envelope)) == "record"]
    return replace(envelope, full=images[0]) if len(images) == 1 else None


def _made(spec: SourceSpec, facts: Sequence[StructField]) -> pa.Schema:
    fields = [StructField(PARSED, record_schema(spec)), *facts, StructField(BROKEN, StringType())]
    return to_arrow_schema(StructType(fields), timezone="UTC")


def _reading(spec: SourceSpec, time_unit: str | None, decimals: str | None, unavailable: str) -> EnvelopeFacts:
    columns = tuple((each.name, each.dataType) for each in record_schema(spec).fields)
    return EnvelopeFacts(columns, spec.primary_key, time_unit, decimals, unavailable)

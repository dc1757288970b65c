"""Records with the frame of a schema registry: which schemas they name, and Avro's as columns; loads Spark."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from freshline.errors import RegistryRefusedError, SchemaIdError
from freshline.sources.formats import avro_schema, avro_topics, avro_values, fit, framing, protobuf_topics
from freshline.sources.formats.avro_schema import AvroRecord, NoSchema, read_schema, sql_type
from freshline.sources.formats.avro_topics import FramedAvro, FramedReading, FramedSchema, read_framed_schema
from freshline.sources.formats.avro_values import read_fields
from freshline.sources.formats.framing import FRAME_BYTES
from freshline.sources.formats.protobuf_topics import FramedProtobuf, ProtobufReading, ProtobufSchema
from freshline.sources.formats.registry import FAIL, SCHEMA_ID, Registry
from freshline.sources.formats.registry_client import KnownSchemas, RegisteredSchema
from freshline.sources.formats.typed import wanted
from freshline.sources.records import record_schema
from freshline.values.format import PARSED, VALUE, Decoded
from freshline.values.names import quoted
from freshline.values.spec import SourceSpec

if TYPE_CHECKING:
    from freshline.sources.formats.avro import Avro
    from freshline.sources.formats.protobuf import Protobuf
    from freshline.sources.reader import Host

BROKEN = "_freshline_broken"
_MADE = "_freshline_made"
# One batch names so many schemas at most. A topic that has more is none of a registry's.
MOST_SCHEMAS = 10_000
# The records, and their bytes, that are decoded before they become columns.
_MOST_ROWS, _ROWS_BYTES = 4_096, 4 << 20
# Tasks are sent with the code itself: the machines of a cluster need pyarrow and fastavro, and not freshline.
AVRO_MODULES: tuple[ModuleType, ...] = (fit, framing, avro_schema, avro_values, avro_topics)

Schemas = Mapping[int, RegisteredSchema]


def find_schemas(
    records: Sequence[DataFrame], registry: Registry, spec: SourceSpec, host: Host, *, descriptors: bool = False
) -> Schemas:
    """The schemas that records name, by their ids, files of Protobuf as descriptors if asked; reads the records once.

    Ids that the registry does not know are missing where that is declared, else they are an error. Raises
    SchemaIdError, RegistryError and RegistryRefusedError.
    """
    ids = _named_ids(records)
    if not ids:
        return {}
    where = str(spec.name)
    try:
        address = registry.resolve(host.root, os.environ)
    except ValueError as error:
        raise RegistryRefusedError(str(error), where=where) from error
    if len(ids) > MOST_SCHEMAS:
        raise SchemaIdError(ids, address.url, where=where)
    name = f"{'descriptors' if descriptors else 'schemas'} of {address.url}"
    known = host.shared(name, lambda: KnownSchemas(descriptors))
    found = known.read(address, ids, where=where)
    missing = [each for each in ids if each not in found]
    if missing and registry.unknown_id == FAIL:
        raise SchemaIdError(missing, address.url, where=where)
    return found


def _named_ids(records: Sequence[DataFrame]) -> list[int]:
    frames = []
    for rows in records:
        value = F.col(VALUE).cast("binary")
        begin = F.substring(value, 1, FRAME_BYTES)
        frames.append(rows.where(F.octet_length(value) >= FRAME_BYTES).select(begin.alias("frame")))
    if not frames:
        return []
    # One more than are read, so that it is known that there are more.
    found = reduce(DataFrame.unionByName, frames).distinct().limit(MOST_SCHEMAS + 1).collect()
    ids = {framing.schema_id_of(bytes(row["frame"])) for row in found}
    return sorted(each for each in ids if each is not None)


def avro_schemas(schemas: Schemas) -> dict[int, FramedSchema | None]:
    """The schemas as tasks are sent them; None for one that is none of Avro."""
    return {
        schema_id: FramedSchema(each.text, tuple(text for _, text in each.references)) if each.kind == "AVRO" else None
        for schema_id, each in schemas.items()
    }


def undeclared_fields(
    schemas: Schemas,
    spec: SourceSpec,
    record_of: Callable[[AvroRecord], AvroRecord | None] = lambda record: record,
    asked: str | None = None,
) -> dict[str, str]:
    """The fields of records that no column takes, each with the type to declare it with, empty for none.

    `record_of` is the record in a schema that has the columns, None where there is none. `asked` is the schema that
    records are resolved to, whose fields have the columns then.
    """
    names = [column.name for column in spec.record_columns]
    found: dict[str, str] = {}
    for schema in avro_schemas(schemas).values():
        try:
            record = None if schema is None else record_of(read_framed_schema(schema))
        except NoSchema:
            continue
        if record is not None:
            taken = read_fields(record if asked is None else read_schema(asked), names)
            for each in record.fields:
                if each["name"] not in taken:
                    found.setdefault(each["name"], sql_type(each["type"], record))
    return found


def decode_framed_avro(records: DataFrame, spec: SourceSpec, declared: Avro) -> Decoded:
    """The records with the struct PARSED and the ids of their schemas."""
    reading = FramedReading(avro_schemas(declared.schemas), wanted(spec), declared.schema, declared.is_key)
    return decode_in_tasks(
        records, spec, [StructField(SCHEMA_ID, IntegerType())], _framed_task(FramedAvro, reading), AVRO_MODULES
    )


def protobuf_schemas(schemas: Schemas) -> dict[int, ProtobufSchema | None]:
    """The files as tasks are sent them; None for a schema that is none of Protobuf."""
    return {
        schema_id: ProtobufSchema(
            base64.b64decode(each.text), tuple((name, base64.b64decode(text)) for name, text in each.references)
        )
        if each.kind == "PROTOBUF"
        else None
        for schema_id, each in schemas.items()
    }


def undeclared_of_messages(schemas: Schemas, spec: SourceSpec) -> dict[str, str]:
    """The fields of messages that no column takes, each with the type to declare it with, empty for none."""
    names = [column.name for column in spec.record_columns]
    found: dict[str, str] = {}
    for schema in protobuf_schemas(schemas).values():
        for name, kind in ({} if schema is None else protobuf_topics.undeclared_fields(schema, names)).items():
            found.setdefault(name, kind)
    return found


def decode_framed_protobuf(records: DataFrame, spec: SourceSpec, declared: Protobuf) -> Decoded:
    """The records with the struct PARSED and the ids of their schemas."""
    reading = ProtobufReading(protobuf_schemas(declared.schemas), wanted(spec))
    modules = (*AVRO_MODULES, protobuf_topics)
    ids = [StructField(SCHEMA_ID, IntegerType())]
    return decode_in_tasks(records, spec, ids, _framed_task(FramedProtobuf, reading), modules)


def _framed_task(
    kind: Callable[[Any], FramedAvro | FramedProtobuf], reading: FramedReading | ProtobufReading
) -> Callable[[], Callable[[list[bytes | None]], list[pa.Array]]]:
    def begin() -> Callable[[list[bytes | None]], list[pa.Array]]:
        decoder = kind(reading)

        def read(values: list[bytes | None]) -> list[pa.Array]:
            found = decoder.read(values)
            return [found.parsed, found.ids, found.codes]

        return read

    return begin


def decode_in_tasks(
    records: DataFrame,
    spec: SourceSpec,
    facts: Sequence[StructField],
    begin: Callable[[], Callable[..., list[pa.Array]]],
    modules: Sequence[ModuleType],
    key: str | None = None,
) -> Decoded:
    """Records decoded by Python in the processes of Spark, in parts of bounded size.

    `begin` is called once in each task, and gives what makes arrays of the bytes of records: PARSED, `facts`, and the
    code of quarantine of each. `modules` are those that it needs. With `key`, the column of the keys of messages, it is
    given these too.
    """
    use_own_python(records)
    made = StructType([StructField(PARSED, record_schema(spec)), *facts, StructField(BROKEN, StringType())])
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    # Only the bytes are sent. Where lists are sent too, Spark computes the size of a batch at each record, in a time
    # that grows with the NULLs among them. And what may differ each time is not computed once for each mention of it.
    read = _in_parts(begin, to_arrow_schema(made, timezone="UTC"))
    decode = arrow_udf(read if key is None else _with_keys(read), made).asNondeterministic()  # type: ignore[call-overload]  # by its hints
    # Arrow has texts of UTF-8 only, and a record may be anything.
    bytes_of = [F.col(name).cast("binary") for name in (VALUE, *(() if key is None else (key,)))]
    rows = records.select("*", decode(*bytes_of).alias(_MADE))
    found = [F.col(f"{_MADE}.{field.name}").alias(field.name) for field in made.fields]
    return Decoded(rows.select(*[F.col(quoted(name)) for name in records.columns], *found), F.col(BROKEN))


def use_own_python(rows: DataFrame) -> None:
    """Let tasks run this Python, unless another one is named for them."""
    if "PYSPARK_PYTHON" not in os.environ:
        # Spark would take the first `python3` of the path, which may lack pyarrow.
        rows.sparkSession.sparkContext.pythonExec = sys.executable


def _with_keys(
    read: Callable[[Iterator[Any]], Iterator[pa.Array]],
) -> Callable[[Iterator[tuple[pa.Array, pa.Array]]], Iterator[pa.Array]]:
    def read_both(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return read(batches)

    return read_both


def _in_parts(
    begin: Callable[[], Callable[..., list[pa.Array]]], made: pa.Schema
) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    most_rows, most_bytes = _MOST_ROWS, _ROWS_BYTES

    def read(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decode = begin()
        for batch in batches:
            records, *others = batch if isinstance(batch, tuple) else (batch,)
            sizes = pc.fill_null(pc.binary_length(records), 0).to_numpy()
            start = 0
            while start < len(records):
                grown = sizes[start : start + most_rows].cumsum()
                # The record with which the bound is reached is the last one.
                end = start + min(len(grown), int(grown.searchsorted(most_bytes)) + 1)
                values = [each[start:end].to_pylist() for each in (records, *others)]
                arrays = [array.cast(field.type) for array, field in zip(decode(*values), made, strict=True)]
                yield pa.StructArray.from_arrays(arrays, fields=list(made))
                start = end

    return read

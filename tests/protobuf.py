"""Files of Protobuf without a compiler: descriptors that tests put together, and messages of them."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, message_factory

from freshline.sources.formats.protobuf_topics import ProtobufSchema, read_file

OF = descriptor_pb2.FieldDescriptorProto
KINDS = {name.removeprefix("TYPE_").lower(): value for name, value in OF.Type.items()}


def add_fields(message: Any, **fields: Any) -> None:
    """Fields by their names: a type, or a type with `repeated`, `optional`, or the name of a message or an enum."""
    for number, (name, kind) in enumerate(fields.items(), 1):
        label, _, of = kind.rpartition(" ")
        field = message.field.add(name=name, number=number, label=OF.LABEL_OPTIONAL)
        if label == "repeated":
            field.label = OF.LABEL_REPEATED
        if label == "optional":
            # As protoc writes a field of proto3 with presence: alone in a oneof.
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        if of in KINDS:
            field.type = KINDS[of]
        else:
            field.type, field.type_name = (
                (OF.TYPE_ENUM if of.startswith("enum:") else OF.TYPE_MESSAGE),
                of[5:] if of.startswith("enum:") else of,
            )


def file_of(*imports: str, syntax: str = "proto3", **fields: Any) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="shop", syntax=syntax, dependency=imports)
    add_fields(file.message_type.add(name="Order"), **fields)
    return file


def schema_of(file: Any, **references: Any) -> ProtobufSchema:
    names = {name.replace("_", "/") + ".proto": each for name, each in references.items()}
    return ProtobufSchema(
        file.SerializeToString(), tuple((name, each.SerializeToString()) for name, each in names.items())
    )


def message_of(schema: ProtobufSchema, name: str = "Order") -> Any:
    file = read_file(schema)
    return message_factory.GetMessageClass(file.message_types_by_name[name])


def whole_file() -> Any:
    file = file_of(
        "money.proto", id="int64", price=".shop.Money", e="enum:.shop.Color", m="repeated .shop.Order.MEntry",
        child=".shop.Order", a="string", b="int32",
    )  # fmt: skip
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    order = file.message_type[0]
    entry = order.nested_type.add(name="MEntry")
    add_fields(entry, key="string", value=".shop.Money")
    entry.options.map_entry = True
    order.oneof_decl.add(name="either")
    for field in order.field[-2:]:
        field.oneof_index = 0
    inner = order.nested_type.add(name="Inner")
    add_fields(inner, id="int64")
    file.message_type.add(name="Other").field.add(name="id", number=1, type=OF.TYPE_INT64, label=OF.LABEL_OPTIONAL)
    return file


def money_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="any.proto", package="shop", syntax="proto3")
    add_fields(file.message_type.add(name="Money"), cents="int64")
    return file

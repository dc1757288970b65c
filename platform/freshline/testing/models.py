"""Small models in ONNX's format, written byte by byte: for tests of tables that predict.

An ONNX file is one message of Protocol Buffers. Writing the few fields that a small model needs takes no library.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ELEMENTS = {"FLOAT": 1, "TINYINT": 3, "SMALLINT": 5, "INT": 6, "BIGINT": 7, "STRING": 8, "BOOLEAN": 9, "DOUBLE": 11}
_PACKED = {"FLOAT": "f", "DOUBLE": "d"}
_IR_VERSION, _OPERATORS = 8, 17


@dataclass(frozen=True)
class Node:
    """An operator of ONNX with the names of what it takes and gives; `options` are its attributes, whole numbers."""

    operator: str
    takes: Sequence[str]
    gives: Sequence[str]
    options: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Values:
    """An input, an output, or weights: `element` is Spark's type. A size None is open, which rows are."""

    element: str
    shape: Sequence[int | None]


def linear_model(weights: Sequence[float], constant: float, *, element: str = "FLOAT") -> bytes:
    """A model with one input, a column for each weight: constant + the sum of weight x value."""
    nodes = [Node("MatMul", ["values", "weights"], ["sum"]), Node("Add", ["sum", "constant"], ["prediction"])]
    return onnx_model(
        nodes,
        {"values": Values(element, [None, len(weights)])},
        {"prediction": Values(element, [None, 1])},
        {
            "weights": (Values(element, [len(weights), 1]), list(weights)),
            "constant": (Values(element, [1]), [constant]),
        },
    )


def onnx_model(
    nodes: Sequence[Node],
    inputs: Mapping[str, Values],
    outputs: Mapping[str, Values],
    weights: Mapping[str, tuple[Values, Sequence[float]]] | None = None,
) -> bytes:
    """The file of a model with these operators, in their order."""
    graph = b"".join(_bytes(1, _node(node)) for node in nodes) + _bytes(2, b"model")
    graph += b"".join(_bytes(5, _weights(name, *each)) for name, each in (weights or {}).items())
    graph += b"".join(_bytes(11, _tensor(name, each)) for name, each in inputs.items())
    graph += b"".join(_bytes(12, _tensor(name, each)) for name, each in outputs.items())
    operators = _bytes(1, b"") + _number(2, _OPERATORS)
    return _number(1, _IR_VERSION) + _bytes(2, b"freshline") + _bytes(7, graph) + _bytes(8, operators)


def _node(node: Node) -> bytes:
    names = b"".join(_bytes(1, name.encode()) for name in node.takes)
    names += b"".join(_bytes(2, name.encode()) for name in node.gives)
    # The type 2 is that of whole numbers.
    options = [_bytes(1, k.encode()) + _number(3, v) + _number(20, 2) for k, v in (node.options or {}).items()]
    return names + _bytes(4, node.operator.encode()) + b"".join(_bytes(5, option) for option in options)


def _weights(name: str, values: Values, numbers: Sequence[float]) -> bytes:
    sizes = b"".join(_number(1, size or 0) for size in values.shape)
    packed = struct.pack(f"<{len(numbers)}{_PACKED[values.element]}", *numbers)
    return sizes + _number(2, ELEMENTS[values.element]) + _bytes(8, name.encode()) + _bytes(9, packed)


def _tensor(name: str, values: Values) -> bytes:
    sizes = [_bytes(2, b"rows") if size is None else _number(1, size) for size in values.shape]
    shape = b"".join(_bytes(1, size) for size in sizes)
    kind = _bytes(1, _number(1, ELEMENTS[values.element]) + _bytes(2, shape))
    return _bytes(1, name.encode()) + _bytes(2, kind)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

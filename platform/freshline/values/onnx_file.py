"""The inputs and outputs that the file of a model names, read without ONNX Runtime.

An ONNX file is one message of Protocol Buffers. Only the few fields that a declaration is checked by are read, and
weights are skipped, so that `freshline plan` needs no library and no time. Nothing in the file is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

# Element types of ONNX that a column can have, with Spark's name.
ELEMENTS: Mapping[int, str] = {
    1: "FLOAT",
    3: "TINYINT",
    5: "SMALLINT",
    6: "INT",
    7: "BIGINT",
    8: "STRING",
    9: "BOOLEAN",
    11: "DOUBLE",
}
UNKNOWN = -1
# Numbers of fields in ONNX's messages.
_IR_VERSION, _GRAPH = 1, 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_TENSOR_NAME, _DATA_LOCATION = 8, 14
# Kinds of values of Protocol Buffers.
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Tensor:
    """An input or output: `element` is Spark's type of its values, `shape` its sizes, UNKNOWN where one is open."""

    name: str
    element: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """The values of one row: 1, more, or UNKNOWN."""
        return 1 if len(self.shape) == 1 else self.shape[1]


@dataclass(frozen=True)
class Signature:
    """The tensors that a model takes and gives, in order. The first size of each is the number of rows."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def is_matrix(self) -> bool:
        """Whether all arguments are the columns of one input."""
        return len(self.inputs) == 1 and len(self.inputs[0].shape) == 2

    @property
    def arguments(self) -> int:
        """The number of arguments, UNKNOWN for any number."""
        return self.inputs[0].width if self.is_matrix else len(self.inputs)

    @property
    def rows(self) -> int:
        """The rows that each call has, UNKNOWN for any number."""
        return max(tensor.shape[0] for tensor in self.inputs)

    @property
    def returned(self) -> str:
        """Spark's type of the prediction for one row: a value or array, or a struct of these by the outputs' names."""
        if len(self.outputs) == 1:
            return _returned(self.outputs[0])
        return "STRUCT<" + ", ".join(f"`{each.name}`: {_returned(each)}" for each in self.outputs) + ">"

    @property
    def text(self) -> str:
        """The arguments and what they give, for people."""
        given = [each.element for each in self.inputs]
        if self.is_matrix:
            given = given * self.arguments if self.arguments != UNKNOWN else [*given, ".."]
        return f"({', '.join(given)}) -> {self.returned}"


def _returned(tensor: Tensor) -> str:
    return tensor.element if tensor.width == 1 else f"ARRAY<{tensor.element}>"


def read_signature(file: BinaryIO) -> Signature:
    """The signature of a model. Raises ValueError, with the end of a sentence, for a file that is no such model."""
    start = file.read(4)
    if start[:1] == b"\x80":
        raise ValueError("is a pickle, which runs code when it is loaded")
    if start[:2] == b"PK":
        raise ValueError("is an archive, in which frameworks keep pickles")
    size = file.seek(0, 2)
    try:
        model = _fields(file, 0, size)
        graphs = [value for number, kind, value in model if number == _GRAPH and kind == _BYTES]
        version = [value for number, kind, value in _fields(file, 0, size) if number == _IR_VERSION and kind == _VARINT]
        if len(graphs) != 1 or not version:
            raise _NoModelError
        return _signature(file, graphs[0])
    except (_NoModelError, UnicodeDecodeError) as error:
        raise ValueError("is no ONNX model") from error


class _NoModelError(Exception):
    """The bytes are no such message."""


# A value: a number, or where bytes begin and end.
_Place = tuple[int, int]
_Field = tuple[int, int, "int | _Place"]


def _signature(file: BinaryIO, graph: int | _Place) -> Signature:
    begin, end = _place(graph)
    inputs, outputs, known = [], [], set[str]()
    for number, kind, value in _fields(file, begin, end):
        if kind != _BYTES:
            continue
        if number == _INITIALIZER:
            known.add(_initializer(file, value))
        elif number == _INPUT:
            inputs.append(value)
        elif number == _OUTPUT:
            outputs.append(value)
    # Older files list their weights among the inputs.
    taken = tuple(_tensor(file, value, "input") for value in inputs if _name(file, value) not in known)
    given = tuple(_tensor(file, value, "output") for value in outputs)
    if not taken or not given:
        raise ValueError("has no inputs, or no outputs")
    for tensor in taken:
        if tensor.shape[0] == 0 or (len(taken) > 1 and tensor.width not in (1, UNKNOWN)):
            raise ValueError(f"has several inputs, of which {tensor.name} takes more than one value of a row")
    if len({tensor.shape[0] for tensor in taken if tensor.shape[0] != UNKNOWN}) > 1:
        raise ValueError("has inputs with different numbers of rows")
    names = [tensor.name.lower() for tensor in given]
    if len(set(names)) < len(names) or any("`" in name for name in names):
        raise ValueError("has outputs whose names are no names of fields")
    return Signature(taken, given)


def _initializer(file: BinaryIO, value: int | _Place) -> str:
    name = ""
    for number, kind, inner in _fields(file, *_place(value)):
        if number == _TENSOR_NAME and kind == _BYTES:
            name = _text(file, inner)
        elif number == _DATA_LOCATION and kind == _VARINT and inner == 1:
            raise ValueError("has weights in other files. Save it as one file")
    return name


def _name(file: BinaryIO, value: int | _Place) -> str:
    return next((_text(file, each) for number, _, each in _fields(file, *_place(value)) if number == 1), "")


def _tensor(file: BinaryIO, value: int | _Place, role: str) -> Tensor:
    name = _name(file, value)
    kinds = [each for number, kind, each in _fields(file, *_place(value)) if number == 2 and kind == _BYTES]
    fields = [field for kind in kinds for field in _fields(file, *_place(kind))]
    tensors = [each for number, kind, each in fields if number == 1 and kind == _BYTES]
    if len(tensors) != 1:
        raise ValueError(f"has the {role} {name}, which is no tensor (classifiers: convert without ZipMap)")
    element, shape = 0, None
    for number, kind, each in _fields(file, *_place(tensors[0])):
        if number == 1 and kind == _VARINT:
            assert isinstance(each, int)
            element = each
        elif number == 2 and kind == _BYTES:
            shape = tuple(_size(file, size) for part, _, size in _fields(file, *_place(each)) if part == 1)
    if element not in ELEMENTS:
        raise ValueError(f"has the {role} {name}, whose type (number {element} of ONNX) no column has")
    if shape is None or len(shape) not in (1, 2):
        found = "no shape" if shape is None else f"{len(shape)} dimensions"
        raise ValueError(f"has the {role} {name} with {found}. It takes and gives rows: one dimension, or two")
    return Tensor(name, ELEMENTS[element], shape)


def _size(file: BinaryIO, dimension: int | _Place) -> int:
    found = [each for number, kind, each in _fields(file, *_place(dimension)) if number == 1 and kind == _VARINT]
    size = found[0] if found else UNKNOWN
    assert isinstance(size, int)
    return size if 0 <= size < 2**31 else UNKNOWN


def _place(value: int | _Place) -> _Place:
    if isinstance(value, int):
        raise _NoModelError
    return value


def _text(file: BinaryIO, value: int | _Place) -> str:
    begin, end = _place(value)
    file.seek(begin)
    return file.read(end - begin).decode()


def _fields(file: BinaryIO, begin: int, end: int) -> Iterator[_Field]:
    """The fields of a message: number, kind and value. Raises _NoModelError."""
    at = begin
    while at < end:
        file.seek(at)
        # A tag, and a number or a length.
        head = BytesIO(file.read(min(20, end - at)))
        tag = _varint(head)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise _NoModelError
        if kind == _VARINT:
            value = _varint(head)
            at += head.tell()
            yield number, kind, value
            continue
        length = {_FIXED_64: 8, _FIXED_32: 4}.get(kind, 0)
        if kind == _BYTES:
            length = _varint(head)
        elif not length:
            raise _NoModelError
        first = at + head.tell()
        at = first + length
        if at > end:
            raise _NoModelError
        yield number, kind, (first, at)


def _varint(head: BytesIO) -> int:
    found = 0
    for place in range(10):
        read = head.read(1)
        if not read:
            raise _NoModelError
        found |= (read[0] & 0x7F) << (7 * place)
        if read[0] < 0x80:
            return found
    raise _NoModelError

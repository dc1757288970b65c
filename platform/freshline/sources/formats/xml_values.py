"""One element of XML becomes one object of JSON, whose members are those that the declared types ask for.

So its values follow the rules of JSON's. A parser is made for each element, which knows of no entities but XML's own
five: nothing is fetched, and nothing grows. This module uses nothing of freshline, because the machines of a cluster
may not have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from xml.parsers import expat

import pyarrow as pa

# The member that has the text of an element which has attributes or elements too.
TEXT_MEMBER = "_VALUE"
_NUMBER = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]+)?")
_DIGIT = re.compile(r"[+-]?\.?[0-9]")
_BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}


class NoElement(Exception):
    """The text is no element, or has values of other forms than the declared types."""


class _Node:
    """An element with what is wanted of it; `kind` is None where only the text is."""

    __slots__ = ("attributes", "children", "has_elements", "kind", "text")

    def __init__(self, kind: pa.DataType | None, attributes: dict[str, str]) -> None:
        self.kind = kind
        self.attributes = attributes
        self.children: list[tuple[str, _Node]] = []
        self.text: list[str] = []
        self.has_elements = False


def to_json(element: bytes, schema: pa.Schema) -> str:
    """The members of an element that a record's columns ask for, as JSON. Raises NoElement."""
    kind = pa.struct(list(schema))
    return _members(_parse(element, kind), kind)


def _parse(element: bytes, kind: pa.DataType) -> _Node:
    """The tree of an element, without what nobody asks for."""
    top = _Node(None, {})
    open_nodes = [top]
    passed_over = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal passed_over
        parent = open_nodes[-1]
        if passed_over:
            passed_over += 1
            return
        parent.has_elements = True
        wanted = kind if parent is top else _member_kind(parent.kind, name)
        if wanted is None:
            passed_over = 1
            return
        node = _Node(wanted, attributes)
        parent.children.append((name, node))
        open_nodes.append(node)

    def end(_: str) -> None:
        nonlocal passed_over
        if passed_over:
            passed_over -= 1
        else:
            open_nodes.pop()

    def text(found: str) -> None:
        if not passed_over:
            open_nodes[-1].text.append(found)

    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    try:
        parser.Parse(element, True)
    except expat.ExpatError as error:
        raise NoElement(str(error)) from error
    return top.children[0][1]


def _member_kind(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    if kind is None:
        return None
    if pa.types.is_struct(kind):
        number = kind.get_field_index(name)
        found = None if number < 0 else kind.field(number).type
        return found.value_type if found is not None and pa.types.is_list(found) else found
    return kind.item_type if pa.types.is_map(kind) else None


# -- each of these gives the JSON of what it is asked for


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(members: Iterable[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{_text(name)}: {value}' for name, value in members)}}}"


def _members(node: _Node, kind: pa.StructType) -> str:
    found: dict[str, list[_Node]] = {}
    for name, child in node.children:
        found.setdefault(name, []).append(child)
    members: list[tuple[str, str]] = []
    for field in kind:
        values: list[_Node | str] = [node.attributes[field.name]] if field.name in node.attributes else []
        values += found.get(field.name, ())
        if field.name == TEXT_MEMBER and not values:
            values = ["".join(node.text)]
        if pa.types.is_list(field.type):
            if values:
                elements = ", ".join(_value(value, field.type.value_type) for value in values)
                members.append((field.name, f"[{elements}]"))
        elif len(values) > 1:
            raise NoElement(f"{field.name} is there more than once")
        elif values:
            members.append((field.name, _value(values[0], field.type)))
    return _object(members)


def _value(value: _Node | str, kind: pa.DataType) -> str:
    if isinstance(value, _Node) and _is_nil(value):
        return "null"
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        if isinstance(value, str):
            raise NoElement("an attribute has no members")
        return _members(value, kind) if pa.types.is_struct(kind) else _entries(value, kind)
    if isinstance(value, _Node):
        if value.has_elements:
            raise NoElement("an element has elements where a value is declared")
        value = "".join(value.text)
    return _single(value, kind)


def _is_nil(node: _Node) -> bool:
    return any(name.endswith(":nil") and text in ("true", "1") for name, text in node.attributes.items())


def _entries(node: _Node, kind: pa.MapType) -> str:
    entries: list[tuple[str, _Node | str]] = [*node.attributes.items(), *node.children]
    if len({name for name, _ in entries}) < len(entries):
        raise NoElement("a name is there twice")
    return _object((name, _value(value, kind.item_type)) for name, value in entries)


def _single(text: str, kind: pa.DataType) -> str:
    if pa.types.is_string(kind):
        return _text(text)
    text = text.strip(" \t\r\n")
    if not text:
        return "null"
    if pa.types.is_boolean(kind):
        if text not in _BOOLEANS:
            raise NoElement("a BOOLEAN is true, false, 1 or 0")
        return _BOOLEANS[text]
    if pa.types.is_list(kind):
        raise NoElement("an element is no array of arrays")
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _number(text)
    return _text("".join(text.split()) if pa.types.is_binary(kind) else text)


def _number(text: str) -> str:
    """A number as JSON has it: without a plus, without zeros before it, with digits around its point."""
    found = _NUMBER.fullmatch(text)
    if found is None or not _DIGIT.match(text):
        raise NoElement("a number is expected")
    sign = "-" if found[1] == "-" else ""
    fraction = f".{found[3]}" if found[3] else ""
    return f"{sign}{found[2] or '0'}{fraction}{found[4] or ''}"

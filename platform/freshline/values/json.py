"""Values as JSON, and back: one converter for all that is stored or printed.

Frozen dataclasses become objects with one key for each field. Names of tables are texts, times are ISO 8601 in UTC,
numbers of seconds have three digits. A field that is absent takes its default and an unknown key is ignored, so a value
that an older freshline wrote can be read after a field was added.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from freshline.errors import FreshlineError, error_from_json
from freshline.values.names import TableName
from freshline.values.partition import PartitionSpan, spans_as_json, spans_from_json
from freshline.values.position import Position, position_from_json

if TYPE_CHECKING:
    from cattrs import Converter


def to_json(value: Any) -> Any:
    """A value as an object that `json.dumps` takes, with every field."""
    return _converter(compact=False).unstructure(value)


def to_compact_json(value: Any) -> Any:
    """A value as an object that `json.dumps` takes, without fields that have their default: for what is stored."""
    return _converter(compact=True).unstructure(value)


def from_json(values: Any, kind: Any) -> Any:
    """The value of a class from what the functions above made of it.

    Raises one of UNREADABLE for anything else.
    """
    return _converter(compact=False).structure(values, kind)


@cache
def _converter(*, compact: bool) -> Converter:
    # Loaded with the first value: a command that needs none does without.
    from cattrs.gen import make_dict_unstructure_fn, override
    from cattrs.preconf.json import make_converter

    # One error is enough to say that a value is not what was written.
    converter = make_converter(detailed_validation=False)
    converter.register_unstructure_hook(TableName, str)
    converter.register_structure_hook(TableName, lambda value, _: TableName.parse(value))
    converter.register_unstructure_hook(datetime, lambda value: value.isoformat())
    converter.register_structure_hook(datetime, lambda value, _: _time(value))
    converter.register_unstructure_hook_func(_is_error, lambda error: error.as_json())
    converter.register_structure_hook_func(_is_error, lambda value, _: error_from_json(value))

    converter.register_unstructure_hook_func(_is_position, lambda position: position.as_json())
    converter.register_structure_hook_func(_is_position, lambda value, _: position_from_json(value))
    converter.register_unstructure_hook_func(_are_spans, spans_as_json)
    converter.register_structure_hook_func(_are_spans, lambda value, _: spans_from_json(value))

    def unstructure(kind: type[Any]) -> Any:
        seconds = {one.name: override(unstruct_hook=_rounded) for one in fields(kind) if one.name.endswith("seconds")}
        return make_dict_unstructure_fn(
            kind,
            converter,
            _cattrs_omit_if_default=compact,
            **seconds,  # type: ignore[arg-type]
        )

    converter.register_unstructure_hook_factory(_is_plain, unstructure)
    return converter


def _is_plain(kind: Any) -> bool:
    """Whether a value is an object with its fields as keys."""
    return is_dataclass(kind) and kind is not TableName and not _is_position(kind)


def _is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, FreshlineError)


def _is_position(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Position)


def _are_spans(kind: Any) -> bool:
    # Many of them share a declaration and positions, which are written once.
    return bool(kind == tuple[PartitionSpan, ...])


def _time(value: str | datetime) -> datetime:
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)

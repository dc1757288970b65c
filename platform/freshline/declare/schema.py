"""JSON schemas of settings and of tables in YAML, for editors that complete and check them while a person types.

They are made of the values that the readers of both use, so that an option cannot be in one and not in the other. A
schema knows less than a reader: it refuses nothing that is right, and lets some pass that the reader refuses, such as a
query. One exception is letter case: names and words are in the case in which the documentation has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from freshline.declare import project_settings as settings
from freshline.declare.yaml_table import (
    COMPONENT,
    CONSTRAINT_FIELDS,
    FIELDS,
    REQUIRED_FIELDS,
    REQUIRED_SINK_FIELDS,
    SINK_FIELDS,
    WATERMARK_FIELDS,
)
from freshline.values.alert_settings import ALERT_KEYS, CHANNEL_CLASS, CHANNEL_NAME, CHANNEL_OPTIONS, ENCRYPTIONS
from freshline.values.catalog_settings import CATALOG_NAME
from freshline.values.destination_settings import OPENLINEAGE_KEYS, OTEL_KEYS
from freshline.values.names import PART
from freshline.values.options import TABLE_OPTIONS, Kind, Option
from freshline.values.registry import MERGES, REGISTRARS, find_registrar, merge_options
from freshline.values.secret import REFERENCE
from freshline.values.sink import SINK_OPTIONS
from freshline.values.spec import Downstream, Mode, OnViolation

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string", "minLength": 1}
_FLAG: Schema = {"type": "boolean"}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}


def settings_schema() -> Schema:
    """The schema of a pyproject.toml, of which it knows `[tool.freshline]` alone."""
    own = _own_settings()
    environments = {
        "type": "object",
        "patternProperties": {_pattern(settings.ENVIRONMENT): {"$ref": "#/$defs/settings"}},
        "additionalProperties": False,
    }
    return {
        "$schema": _DIALECT,
        "title": "pyproject.toml of a freshline project",
        "type": "object",
        "properties": {
            "tool": {
                "type": "object",
                "properties": {"freshline": _table({**own, "environments": environments})},
            }
        },
        "$defs": {"settings": _table(own)},
    }


def yaml_schema() -> Schema:
    """The schema of a `defs.yaml` of Dagster's `dg`, of which it knows the tables of a FreshlineProjectComponent.

    Its other attributes are for Dagster to check, as are files of other components.
    """
    return {
        "$schema": _DIALECT,
        "title": "defs.yaml with tables of freshline",
        "type": "object",
        "properties": {"type": _TEXT, "attributes": {"type": "object"}},
        "if": {"properties": {"type": {"const": COMPONENT}}, "required": ["type"]},
        "then": {
            "properties": {
                "attributes": {
                    "properties": {
                        "tables": {"type": "array", "items": _yaml_table()},
                        "sinks": {"type": "array", "items": _yaml_sink()},
                    }
                }
            },
        },
    }


# -- settings


def _own_settings() -> dict[str, Schema]:
    """The settings that an environment may have too, by key."""
    reference = _matching(REFERENCE)
    values: dict[str, Schema] = {
        **dict.fromkeys((*settings.PATHS, *settings.FRESHNESSES, *settings.TEXTS), _TEXT),
        **{key: _whole(least, greatest) for key, (least, greatest) in settings.WHOLES.items()},
        "dagster-url": _matching(settings.WEB_ADDRESS),
        "dagster-hosts": _list(_TEXT),
        "dagster-token": reference,
        "dagster-read-only": _FLAG,
        "metrics-token": reference,
        "changes-token": reference,
        "masked-columns": _list(_matching(settings.COLUMN)),
        "declaration-link": {"anyOf": [{"const": "none"}, _matching(settings.LINK)]},
        "openlineage": _table(_destination(OPENLINEAGE_KEYS)),
        "otel": _table(_destination(OTEL_KEYS), required=("url",)),
        "catalogs": _catalogs(),
        "spark-confs": {"type": "object", "additionalProperties": _SCALAR},
        "idle-seconds": {"type": "number", "exclusiveMinimum": 0},
        "python-time-limit": _TEXT,
        "python-memory": _matching(settings.MEMORY),
        "umask": _matching(settings.UMASK),
        "log-format": {"enum": list(settings.LOG_FORMATS)},
        "alerts": _alerts(),
    }
    return {key: values[key] for key in settings.KEYS}


def _destination(keys: Iterable[str]) -> dict[str, Schema]:
    values = {"private-addresses": _FLAG, "token": _matching(REFERENCE)}
    return {key: values.get(key, _TEXT) for key in keys}


def _catalogs() -> Schema:
    """The catalogs; one of another package has options of its own."""
    kinds = {name: find_registrar(name).options for name in REGISTRARS}
    catalog: Schema = {
        "type": "object",
        "properties": {"type": {"anyOf": [{"enum": list(kinds)}, _TEXT]}},
        "additionalProperties": {"type": ["string", "integer", "boolean"]},
        "required": ["type"],
        "allOf": [
            {
                "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
                "then": _table(
                    {"type": {}, **{option.name: _catalog_option(option) for option in options}},
                    required=tuple(option.name for option in options if option.required),
                ),
            }
            for kind, options in kinds.items()
        ],
    }
    return {
        "type": "object",
        "patternProperties": {_pattern(CATALOG_NAME): catalog},
        "additionalProperties": False,
    }


def _catalog_option(option: Option) -> Schema:
    """The values of TOML that an option of a catalog accepts."""
    match option.kind:
        case Kind.BOOLEAN:
            return {"enum": [True, False, "true", "false"]}
        case Kind.WHOLE:
            return {"anyOf": [_whole(option.least, option.greatest), _TEXT]}
        case Kind.CHOICE:
            return {"enum": list(option.choices)}
        case Kind.TEXT | Kind.RAW | Kind.SECONDS:
            return _matching(REFERENCE) if option.secret else _TEXT


def _alerts() -> Schema:
    values: dict[str, Schema] = {
        "remind-after": _TEXT,
        "quarantine-share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "quarantine-rows": _whole(1, 10**9),
        "channels": {
            "type": "object",
            "patternProperties": {_pattern(CHANNEL_NAME): _channel()},
            "additionalProperties": False,
        },
    }
    return _table({key: values[key] for key in ALERT_KEYS})


def _channel() -> Schema:
    """One channel; one of a class in Python has options of its own."""
    values: dict[str, Schema] = {
        **dict.fromkeys(("url", "host", "username", "from"), _TEXT),
        **dict.fromkeys(("secret", "password"), _matching(REFERENCE)),
        "private-addresses": _FLAG,
        "port": _whole(1, 65_535),
        "encryption": {"enum": list(ENCRYPTIONS)},
        "to": {**_list(_TEXT), "minItems": 1},
    }
    return {
        "type": "object",
        "properties": {"type": {"anyOf": [{"enum": list(CHANNEL_OPTIONS)}, _matching(CHANNEL_CLASS)]}},
        "required": ["type"],
        "allOf": [
            {
                "if": {"properties": {"type": {"const": kind}}},
                "then": _table({"type": {}, **{option: values[option] for option in options}}),
            }
            for kind, options in CHANNEL_OPTIONS.items()
        ],
    }


# -- tables in YAML


def _yaml_table() -> Schema:
    names = {"anyOf": [_TEXT, {**_list(_TEXT), "minItems": 1}]}
    violations = {"enum": [violation.value for violation in OnViolation]}
    constraint = {"expect": _TEXT, "on_violation": violations}
    watermark = {"column": _TEXT, "delay": _TEXT}
    values: dict[str, Schema] = {
        "name": _table_name(),
        "query": _TEXT,
        "freshness": {**_TEXT, "examples": ["30 seconds", "5 minutes", "6 hours", Downstream.DOWNSTREAM.value]},
        "mode": {"enum": ["auto", *(mode.value for mode in Mode)]},
        "primary_key": names,
        "partitioned_by": names,
        "cluster_by": names,
        "watermark": _table({field: watermark[field] for field in WATERMARK_FIELDS}, required=("column",)),
        "constraints": {
            "type": "object",
            "propertyNames": {"pattern": _pattern(PART)},
            "additionalProperties": {
                "anyOf": [
                    _TEXT,
                    _table({field: constraint[field] for field in CONSTRAINT_FIELDS}, required=("expect",)),
                ]
            },
        },
        "comment": _TEXT,
        "options": _table_options(),
    }
    return _table({field: values[field] for field in FIELDS}, required=REQUIRED_FIELDS)


def _table_name() -> Schema:
    part = _pattern(PART).removesuffix("$").removeprefix("^")
    return {"type": "string", "pattern": rf"^{part}(\.{part})?$"}


def _yaml_sink() -> Schema:
    """A sink; the options of its kind are for that to know."""
    options = {
        "type": "object",
        "properties": {option.name: _option(option) for option in SINK_OPTIONS},
        "required": ["connector"],
    }
    values: dict[str, Schema] = {
        "name": _table_name(),
        "table": _table_name(),
        "freshness": {**_TEXT, "examples": ["30 seconds", "5 minutes", "6 hours"]},
        "comment": _TEXT,
        "options": options,
    }
    return _table({field: values[field] for field in SINK_FIELDS}, required=REQUIRED_SINK_FIELDS)


def _table_options() -> Schema:
    """The options in WITH; those of a merge of another package are for that package to know."""
    own = [option for option in merge_options() if not option.is_beginning]
    beginnings = [option for option in merge_options() if option.is_beginning]
    shipped: Schema = {
        "properties": {**dict.fromkeys(TABLE_OPTIONS, _SCALAR), **{option.name: _option(option) for option in own}},
        "patternProperties": {f"^{re.escape(option.name)}": _option(option) for option in beginnings},
        "additionalProperties": False,
    }
    is_shipped = {"properties": {"merge": {"enum": list(MERGES)}}}
    return {"type": "object", "if": is_shipped, "then": shipped}


def _option(option: Option) -> Schema:
    described = {"description": f"{option.help[:1].upper()}{option.help[1:]}."}
    return {**described, **({"enum": list(option.choices)} if option.choices else _SCALAR)}


# -- parts


def _table(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """An object with these properties and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _whole(least: int, greatest: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": greatest}


def _matching(pattern: re.Pattern[str]) -> Schema:
    return {"type": "string", "pattern": _pattern(pattern)}


def _pattern(pattern: re.Pattern[str]) -> str:
    """The pattern in the language of JSON schemas, which searches, and has no `\\Z`."""
    return f"^{pattern.pattern.removesuffix(chr(92) + 'Z')}$"

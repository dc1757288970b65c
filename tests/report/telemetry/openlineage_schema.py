"""Whether an event is one of OpenLineage's schema.

The library has no JSON schema in it, but classes that the project of OpenLineage makes from the published one: fields,
their types, which of them are required, and the form of a time and an id. `uv.lock` has the library's checksum, and
its licence is that of the schema. An event is read into them strictly, and must come out as it went in.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any
from urllib.parse import urlsplit

import attr
from cattrs import Converter
from openlineage.client import generated
from openlineage.client.generated.base import BaseFacet, EventType, InputDataset, Job, OutputDataset, Run, RunEvent

_CONVERTER = Converter(forbid_extra_keys=True, detailed_validation=False, prefer_attrib_converters=True)
_FACETS = {
    found._get_schema(): found
    for module in pkgutil.iter_modules(generated.__path__)
    for found in vars(importlib.import_module(f"{generated.__name__}.{module.name}")).values()
    if isinstance(found, type) and issubclass(found, BaseFacet)
}
# These may have any further fields, by the schema.
_OPEN = {"RunFacet", "JobFacet", "DatasetFacet"}
_KINDS = {"inputs": InputDataset, "outputs": OutputDataset, "run": Run, "job": Job}


def check_event(line: str) -> dict[str, Any]:
    """The event; fails where it is not valid."""
    event: dict[str, Any] = json.loads(line)
    assert set(event) <= {field.name for field in attr.fields(RunEvent)}
    assert event["schemaURL"] == RunEvent._get_schema()
    _check_uri(event["producer"])
    _check_uri(event["schemaURL"])
    run, job = (_plain(event[name], kind, ("facets",)) for name, kind in (("run", Run), ("job", Job)))
    RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=run,
        job=job,
        eventType=EventType(event["eventType"]),
        inputs=[_plain(each, InputDataset, ("facets", "inputFacets")) for each in event["inputs"]],
        outputs=[_plain(each, OutputDataset, ("facets", "outputFacets")) for each in event["outputs"]],
    )
    return event


def _plain(value: dict[str, Any], kind: Any, facets: tuple[str, ...]) -> Any:
    """An object with facets, each checked by the schema that it names."""
    for name in facets:
        for facet in value.get(name, {}).values():
            _check_facet(facet)
    own = {key: each for key, each in value.items() if key not in facets}
    assert all(isinstance(each, str) and each for each in own.values()), own
    return kind(**own)


def _check_facet(facet: dict[str, Any]) -> None:
    _check_uri(facet["_producer"])
    _check_uri(facet["_schemaURL"])
    kind = _FACETS[facet["_schemaURL"]]
    own = {key: value for key, value in facet.items() if not key.startswith("_")}
    if kind.__name__ not in _OPEN:
        # A list of nothing may be left out.
        assert _without_empty(_CONVERTER.unstructure(_CONVERTER.structure(own, kind))) == _without_empty(own)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(each) for key, each in value.items() if not key.startswith("_")}
        return {key: each for key, each in kept.items() if each not in (None, [])}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


def _check_uri(text: str) -> None:
    assert urlsplit(text).scheme, text

"""The description of a table or source: its columns, and with EXTENDED its promise and its state."""

from __future__ import annotations

from typing import Any

from freshline.cli.status import open_status
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.plan.models import models_text
from freshline.report.intention_text import intention_lines
from freshline.report.table_text import duration_text, freshness_text, table_text
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, TableSpec

UNKNOWN_TYPE = "known after the first refresh"


def describe(settings: Settings, graph: Graph, name: TableName, *, extended: bool) -> tuple[dict[str, Any], str]:
    """The description as a JSON object and as a text. Reads the newest entry of the table's log; starts nothing."""
    spec = graph.spec(name)
    columns = _columns(settings, graph, name)
    key = {column.lower() for column in spec.primary_key}
    partitioned = spec.partitioned_by if isinstance(spec, TableSpec) else ()
    parts = {column.lower() for column in partitioned}
    listed = [
        {"column": column, "type": kind, "primary_key": column.lower() in key, "partition": column.lower() in parts}
        for column, kind in columns.items()
    ]
    value: dict[str, Any] = {"table": str(spec.name), "columns": listed}
    roles = [
        " ".join(word for word, has in (("key", each["primary_key"]), ("partition", each["partition"])) if has)
        for each in listed
    ]
    rows = [[str(each["column"]), str(each["type"]), role] for each, role in zip(listed, roles, strict=True)]
    text = table_text(["column", "type", ""], rows) if rows else "its columns are known after the first refresh"
    if not extended:
        return value, text
    with open_status(settings, graph) as read:
        status = next(each for each in read()[0] if each.table == name)
    location = str(Warehouse(settings.warehouse).location(spec))
    value |= {
        **status.as_json(),
        "primary_key": list(spec.primary_key),
        "partitioned_by": list(partitioned),
        "constraints": [constraint.clause for constraint in spec.constraints],
        "reads": [str(each) for each in graph.reads(name)],
        "read_by": [str(each) for each in graph.consumers(name)],
        "written_at": str(spec.written_at),
        "location": location,
        "comment": spec.comment,
        "fingerprint": spec.fingerprint,
        "models": models_text(spec) if isinstance(spec, TableSpec) else "",
        "sink": {} if not isinstance(spec, TableSpec) or spec.sink is None else dict(spec.sink.shown),
    }
    facts = {
        "kind": status.kind,
        "comment": spec.comment,
        "mode": f"{status.mode}: {status.mode_reason}",
        "freshness": freshness_text(status.freshness_seconds),
        "lag": duration_text(status.lag_seconds),
        "state": status.state,
        "version": None if status.version is None else str(status.version),
        "primary key": ", ".join(spec.primary_key),
        "partitioned by": ", ".join(partitioned),
        "constraints": "; ".join(value["constraints"]),
        "reads": ", ".join(value["reads"]),
        "read by": ", ".join(value["read_by"]),
        "models": value["models"],
        "sends to": ", ".join(f"{fact} {said}" for fact, said in value["sink"].items()),
        "declared in": value["written_at"],
        "location": location,
    }
    shown = table_text(["", ""], [[fact, said] for fact, said in facts.items() if said])
    return value, "\n".join([text, shown, *intention_lines(status)])


def _columns(settings: Settings, graph: Graph, name: TableName) -> dict[str, str]:
    spec = graph.spec(name)
    if isinstance(spec, SourceSpec):
        return {column.name: column.type for column in spec.columns}
    path = Warehouse(settings.warehouse).path(name)
    if (path / "_delta_log").is_dir():
        # delta-rs is imported when it is used, like all that is heavy.
        from freshline.commit.columns import column_types

        return column_types(path)
    return dict.fromkeys(spec.columns or (), UNKNOWN_TYPE)

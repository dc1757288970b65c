"""One table or source as Dagster sees it: key, lineage, and everything that its page shows.

Values in, values out: nothing here asks the engine. A name of a declaration is never taken as a name of Dagster's,
which forbids some (`config`, `type`, Python's keywords) and joins parts in ways in which two can become one.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from dagster import (
    AssetSpec,
    BetaWarning,
    CodeReferencesMetadataValue,
    FreshnessPolicy,
    LocalFileCodeReference,
    MetadataValue,
)

from freshline.commit.warehouse import Warehouse
from freshline.dagster.columns import KnownColumns, column_schema
from freshline.dagster.keys import AssetKeys
from freshline.dagster.partitions import dependency, partitions_definition
from freshline.dagster.translator import FreshlineTranslator, group_name, table_of
from freshline.declare.graph import Graph
from freshline.declare.yaml_table import declared_text
from freshline.errors import SourceError
from freshline.plan.models import models_text
from freshline.report.notices import silence_seconds
from freshline.report.table_text import duration_text
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, Spec, TableSpec

# The names that Dagster forbids for a step, an input or an output, beside Python's keywords.
FORBIDDEN = frozenset(
    {"context", "conf", "config", "meta", "arg_dict", "dict", "input_arg_dict", "output_arg_dict"}
    | {"int", "str", "float", "bool", "input", "output", "type"}
)


def step_name(name: TableName) -> str:
    """The name of the step that materializes a table: one name, one step, and none that Dagster forbids.

    >>> step_name(TableName("sales", "orders"))
    'sales__orders'
    >>> step_name(TableName(None, "sales__orders"))
    'sales__orders__06b985'
    """
    joined = "__".join(name.parts)
    unmistakable = all("__" not in part and part == part.strip("_") for part in name.parts)
    if unmistakable and joined not in FORBIDDEN and not keyword.iskeyword(joined):
        return joined
    return f"{joined}__{sha256(str(name).encode()).hexdigest()[:6]}"


def asset_spec(
    graph: Graph,
    name: TableName,
    settings: Settings,
    keys: AssetKeys,
    translator: FreshlineTranslator,
    known: KnownColumns | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> AssetSpec:
    """Everything that Dagster knows of a table or source before its first materialization.

    Reads the declaring file, and the newest entry of the table's Delta log for its columns where that is not `known`.
    `descriptions` are those of its columns, by their names in lower case. Raises DeclarationError where the declaration
    asks for something that Dagster cannot have.
    """
    spec, table = graph.spec(name), table_of(graph, name)
    return AssetSpec(
        key=keys[name],
        deps=[
            dependency(spec, upstream, keys[upstream.name])
            for upstream in (graph.spec(read) for read in graph.reads(name))
        ],
        partitions_def=partitions_definition(graph, spec),
        description=translator.get_description(table),
        metadata={**_metadata(graph, spec, settings, known, descriptions), **translator.get_metadata(table)},
        group_name=group_name(translator, table),
        owners=list(translator.get_owners(table)) or None,
        kinds=translator.get_kinds(table),
        tags=translator.get_tags(table),
        code_version=spec.fingerprint,
        freshness_policy=freshness_policy(graph, spec.name),
    )


def freshness_policy(graph: Graph, name: TableName) -> FreshnessPolicy | None:
    """FAIL when nothing was reported for the freshness and two turns of reports; None where nothing is promised.

    Dagster checks the age of the newest materialization. Those are reported also when nothing was new, so the policy
    fails when a table is not kept any more, and neither on a quiet table nor on a fast one.
    """
    spec = graph.spec(name)
    if spec.is_read_in_place:
        return None
    return FreshnessPolicy.time_window(fail_window=timedelta(seconds=_window_seconds(graph, name)))


def policy_text(graph: Graph, name: TableName) -> str | None:
    """How the window of the policy follows from the promise that the check `freshness` judges; None without one."""
    policy = freshness_policy(graph, name)
    if policy is None:
        return None
    promise, window = graph.freshness(name).seconds, _window_seconds(graph, name)
    return (
        f"The promise is {duration_text(promise)}, and the check `freshness` compares the lag of the data with it. "
        f"Dagster's policy knows only the age of the newest event. The engine reports every "
        f"{duration_text((window - promise) / 2)}, so the policy fails after the promise and two reports: "
        f"{duration_text(window)} without an event."
    )


def _window_seconds(graph: Graph, name: TableName) -> float:
    return silence_seconds(graph.freshness(name).seconds, len(graph.kept))


def declaration_markdown(spec: Spec, root: Path) -> str:
    """The declaration as it was written, and where."""
    code = declaration_text(root / spec.written_at.path, spec.written_at.line)
    language = {".py": "python", ".yaml": "yaml"}.get(Path(spec.written_at.path).suffix, "sql")
    # The fence must be longer than any in the declaration itself.
    fence = "`" * max(3, 1 + max((len(ticks) for ticks in re.findall("`+", code)), default=0))
    return f"{fence}{language}\n{code}\n{fence}\n\nDeclared in `{spec.written_at}`."


def declaration_text(file: Path, line: int) -> str:
    """The text of a declaration: an SQL file as a whole, the statement or entry at `line` of a Python or YAML file."""
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".yaml":
        return declared_text(text, line) or text.strip()
    if file.suffix != ".py":
        return text.strip()
    lines = text.split("\n")
    for node in ast.parse(text).body:
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        last = node.end_lineno or first
        if first <= line <= last:
            return "\n".join(lines[first - 1 : last])
    return text.strip()


def _metadata(
    graph: Graph,
    spec: Spec,
    settings: Settings,
    known: KnownColumns | None,
    descriptions: Mapping[str, str] | None,
) -> Mapping[str, Any]:
    location = Warehouse(settings.warehouse).location(spec)
    metadata: dict[str, Any] = {
        "dagster/table_name": str(spec.name),
        **_storage(spec, location),
        "dagster/code_references": _code_references(spec, settings.root),
        **_columns(spec, location, known, descriptions),
        "declaration": MetadataValue.md(declaration_markdown(spec, settings.root)),
        "mode": graph.mode(spec.name).value,
        "mode_reason": graph.mode_reason(spec.name),
        "freshness_seconds": graph.freshness(spec.name).seconds,
        "freshness_policy": policy_text(graph, spec.name),
        "primary_key": ", ".join(spec.primary_key) or None,
        **(_source_metadata(spec) if isinstance(spec, SourceSpec) else _table_metadata(spec)),
    }
    return {key: value for key, value in metadata.items() if value is not None}


def _storage(spec: Spec, location: Path) -> Mapping[str, Any]:
    """The place of the rows: a Delta table, or the system of a sink."""
    if isinstance(spec, TableSpec) and spec.sink is not None:
        return {"dagster/storage_kind": spec.sink.name, "delivery": spec.sink.delivery, **spec.sink.shown}
    return {"dagster/storage_kind": "deltalake", "dagster/uri": location.as_uri()}


def _columns(
    spec: Spec, location: Path, known: KnownColumns | None, descriptions: Mapping[str, str] | None
) -> Mapping[str, Any]:
    """A log that cannot be read is shown at its table: it must not take the other tables out of the graph."""
    try:
        return {"dagster/column_schema": column_schema(spec, location, known=known, descriptions=descriptions)}
    except SourceError as error:
        return {"columns_problem": str(error)}


def _source_metadata(spec: SourceSpec) -> Mapping[str, Any]:
    shown: dict[str, Any] = dict(spec.connection.shown)
    if "path" in shown:
        shown["path"] = MetadataValue.path(shown["path"])
    return {"connector": spec.connector, "format": None if spec.format is None else spec.format.name, **shown}


def _table_metadata(spec: TableSpec) -> Mapping[str, Any]:
    return {
        "partitioned_by": ", ".join(spec.partitioned_by) or None,
        "merge": None if spec.merge is None else spec.merge.name,
        "lookups": ", ".join(str(name) for name in sorted(spec.lookups)) or None,
        "models": models_text(spec) or None,
    }


def _code_references(spec: Spec, root: Path) -> CodeReferencesMetadataValue:
    # Beta in the pinned Dagster, and the only way to show a file and line: its warning would be ours at every load.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)
        return CodeReferencesMetadataValue(
            code_references=[
                LocalFileCodeReference(
                    file_path=str(root / spec.written_at.path),
                    line_number=spec.written_at.line,
                    label=str(spec.written_at),
                )
            ]
        )

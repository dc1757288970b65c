"""A project as a component of `dg`: a `defs.yaml` in place of Python.

```yaml
type: freshline.dagster.FreshlineProjectComponent
attributes:
  select: sales.*
  translation:
    key_prefix: lake
    group_name: "layer_{{ table.namespace }}"
```

Without `from __future__ import annotations`: Dagster reads the fields and their resolvers from the annotations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dagster import AssetKey, AssetSpec, Definitions
from dagster.components import (
    Component,
    ComponentLoadContext,
    ComponentTypeSpec,
    Model,
    Resolvable,
    Resolver,
    Scaffolder,
    ScaffoldRequest,
    scaffold_component,
    scaffold_with,
)
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import any_schema

from freshline.dagster.definitions import build_definitions
from freshline.dagster.project import FreshlineProject
from freshline.dagster.translator import FreshlineTable, FreshlineTranslator
from freshline.declare.project import COMPONENT_FILE, COMPONENTS
from freshline.errors import SettingsError

_KIND = "dagster/kind/"


class ConstraintAttributes(Model):
    """A condition, and what becomes of a row that does not meet it."""

    expect: str
    on_violation: str | None = None


class WatermarkAttributes(Model):
    """A column, and how much older than the newest a row may be."""

    column: str
    delay: str | None = None


class TableAttributes(Model):
    """A table in YAML. Its fields are the clauses of CREATE MATERIALIZED TABLE; see `declare/yaml_table.py`."""

    name: str
    query: str
    freshness: str | None = None
    mode: str | None = None
    primary_key: str | Sequence[str] | None = None
    partitioned_by: str | Sequence[str] | None = None
    cluster_by: str | Sequence[str] | None = None
    watermark: WatermarkAttributes | None = None
    constraints: Mapping[str, str | ConstraintAttributes] | None = None
    comment: str | None = None
    options: Mapping[str, str | int | float | bool] | None = None


class SinkAttributes(Model):
    """A sink in YAML. Its fields are the clauses of CREATE SINK; see `declare/yaml_table.py`."""

    name: str
    table: str
    freshness: str | None = None
    comment: str | None = None
    options: Mapping[str, str | int | float | bool] | None = None


class WrittenTable:
    """A table as it is written. The schema, for editors and `dg check`, is that of TableAttributes.

    Nothing is refused when the component is loaded: the project judges the file, and a mistake costs its table only.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return any_schema()

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(TableAttributes.__pydantic_core_schema__)


class WrittenSink(WrittenTable):
    """A sink as it is written. The schema is that of SinkAttributes."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(SinkAttributes.__pydantic_core_schema__)


class ProjectScaffoldParams(BaseModel):
    """Options of `dg scaffold defs freshline.dagster.FreshlineProjectComponent`."""

    project: str | None = Field(None, description="Folder of the freshline project, from the root of the dg project.")
    environment: str | None = Field(None, description="Environment of the freshline project.")
    select: str | None = Field(None, description="Tables and sources to load, such as sales.*")


class ProjectScaffolder(Scaffolder[ProjectScaffoldParams]):
    """Writes a `defs.yaml` with the attributes that were given."""

    @classmethod
    def get_scaffold_params(cls) -> type[ProjectScaffoldParams]:
        return ProjectScaffoldParams

    def scaffold(self, request: ScaffoldRequest[ProjectScaffoldParams]) -> None:
        """Write the file. A component in Python has its arguments in Python, so they are left out there."""
        scaffold_component(request, request.params.model_dump(exclude_none=True))


@scaffold_with(ProjectScaffolder)
@dataclass
class FreshlineProjectComponent(Component, Resolvable):
    """Tables and sources of a freshline project as assets, with their checks and sensors."""

    project: Annotated[
        str | None,
        Resolver.default(
            description="The folder of the freshline project, from the root of the dg project. Default: that root.",
            examples=["../lake"],
        ),
    ] = None
    environment: Annotated[
        str | None,
        Resolver.default(description="An environment of the project. Default: the one of FRESHLINE_ENV, then local."),
    ] = None
    select: Annotated[
        str | Sequence[str],
        Resolver.default(
            description="The tables and sources to load: names, wildcards, methods such as mode:batch, + for what they "
            "read or what reads them.",
            examples=["sales.*", ["+sales.revenue", "mode:batch"]],
        ),
    ] = "*"
    exclude: Annotated[
        str | Sequence[str],
        Resolver.default(description="Tables and sources to leave out, in the same syntax.", examples=["mode:batch"]),
    ] = ()
    checks: Annotated[bool, Resolver.default(description="Whether to load the checks of the tables.")] = True
    sensors: Annotated[
        bool,
        Resolver.default(
            description="Whether to load the sensors and the job; one component of a code location may have them."
        ),
    ] = True
    tables: Annotated[
        Sequence[Any],
        Resolver(
            # As they are written: the project reads them from the file, and renders no template.
            lambda _, tables: tables,
            model_field_type=Sequence[WrittenTable],
            description="Tables that are declared here, in place of SQL files.",
            inject_before_resolve=False,
        ),
    ] = ()
    sinks: Annotated[
        Sequence[Any],
        Resolver(
            lambda _, sinks: sinks,
            model_field_type=Sequence[WrittenSink],
            description="Sinks that are declared here, in place of SQL files.",
            inject_before_resolve=False,
        ),
    ] = ()
    translation: Annotated[
        TranslationFn[FreshlineTable] | None,
        TranslationFnResolver[FreshlineTable](lambda table: {"table": table}),
    ] = None

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        return ComponentTypeSpec(
            description="Tables and sources of a freshline project as assets, with their checks and sensors.",
            tags=["spark", "delta-lake"],
            produces=["asset", "asset_check", "sensor", "job"],
        )

    def get_translator(self) -> FreshlineTranslator:
        """The translator of the attribute `translation`. A subclass may return another."""
        return FreshlineTranslator() if self.translation is None else SpecTranslator(self.translation)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        """The definitions. A mistake in a table costs that table only, as in `build_definitions`."""
        project = FreshlineProject(context.project_root / (self.project or "."), self.environment)
        _require_read(project, [*self.tables, *self.sinks])
        return build_definitions(
            project,
            select=self.select,
            exclude=self.exclude,
            translator=self.get_translator(),
            checks=self.checks,
            sensors=self.sensors,
        )


def _require_read(project: FreshlineProject, tables: Sequence[Any]) -> None:
    """Raise SettingsError for tables of a component whose file the project does not read: no engine would know them."""
    standing = project.standing
    mistaken = [each for each in standing.mistaken if each.file.name == COMPONENT_FILE]
    if any(each.name is None for each in mistaken):
        # Which tables the file has is not known, and its asset says why.
        return
    declared = {str(each.name).lower() for each in mistaken}
    declared |= {
        str(spec.name).lower() for spec in standing.graph.tables if spec.written_at.path.endswith(COMPONENT_FILE)
    }
    names = [table["name"] for table in tables if isinstance(table, Mapping) and isinstance(table.get("name"), str)]
    unknown = [name for name in names if name.strip().lower() not in declared]
    if unknown:
        folder = project.settings.declarations / COMPONENTS
        raise SettingsError(
            f"{', '.join(unknown)}: tables in YAML are read from {COMPONENT_FILE} files below {folder}, and this "
            "component is elsewhere. Move it there, or declare the tables in SQL."
        )


class SpecTranslator(FreshlineTranslator):
    """A translator that applies a function on asset specs, which is the form of `translation` in YAML, to its own."""

    def __init__(self, translate: Callable[[AssetSpec, FreshlineTable], AssetSpec]) -> None:
        self._translate = translate
        self._known: dict[FreshlineTable, AssetSpec] = {}

    def _spec(self, table: FreshlineTable) -> AssetSpec:
        found = self._known.get(table)
        if found is None:
            base = AssetSpec(
                key=super().get_asset_key(table),
                description=super().get_description(table),
                group_name=super().get_group_name(table),
                tags=super().get_tags(table),
                owners=list(super().get_owners(table)),
                kinds=super().get_kinds(table),
                metadata=super().get_metadata(table),
            )
            found = self._known[table] = self._translate(base, table)
        return found

    def get_asset_key(self, table: FreshlineTable) -> AssetKey:
        return self._spec(table).key

    def get_description(self, table: FreshlineTable) -> str | None:
        return self._spec(table).description

    def get_group_name(self, table: FreshlineTable) -> str:
        return self._spec(table).group_name or super().get_group_name(table)

    def get_tags(self, table: FreshlineTable) -> Mapping[str, str]:
        # Dagster keeps kinds among the tags.
        return {key: value for key, value in self._spec(table).tags.items() if not key.startswith(_KIND)}

    def get_owners(self, table: FreshlineTable) -> Sequence[str]:
        return self._spec(table).owners

    def get_kinds(self, table: FreshlineTable) -> set[str]:
        return self._spec(table).kinds

    def get_metadata(self, table: FreshlineTable) -> Mapping[str, Any]:
        return self._spec(table).metadata

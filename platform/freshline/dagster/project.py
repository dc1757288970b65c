"""A freshline project for Dagster: its folder and environment, read once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from dagster import AssetKey, AssetSelection

from freshline.dagster.inspection import opened
from freshline.dagster.keys import AssetKeys
from freshline.dagster.lineage import read_lineages
from freshline.dagster.selection import ALL, Selection, select_tables
from freshline.dagster.translator import FreshlineTranslator
from freshline.declare.graph import Graph
from freshline.declare.project import find_project, read_settings
from freshline.engine.client import EngineClient
from freshline.errors import FreshlineError, SettingsError
from freshline.freshness.intentions import apply_overrides
from freshline.plan.project import open_project
from freshline.plan.valid_project import ValidProject, open_valid_project
from freshline.query.resolved import ColumnLineage
from freshline.values.names import TableName
from freshline.values.rules import nearest
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FreshlineProject:
    """A project: the folder with its pyproject.toml, and one of its environments.

    `path` is that folder or one below it (default: the working directory). `environment` is the name of an environment
    (default: FRESHLINE_ENV, then `local`). Declarations are read when they are first needed, and only once: make
    another value to see what changed. Reading starts nothing, writes nothing but a cache, and needs no Spark.
    """

    path: Path | str | None = None
    environment: str | None = None

    @cached_property
    def settings(self) -> Settings:
        """The settings of the environment. Raises SettingsError where there is no project."""
        environ = os.environ if self.environment is None else {**os.environ, "FRESHLINE_ENV": self.environment}
        return read_settings(find_project(None if self.path is None else Path(self.path)), environ)

    @cached_property
    def declared_graph(self) -> Graph:
        """All declarations. Raises DeclarationErrors with every mistake, each with file and line."""
        return open_project(self.settings)

    @cached_property
    def standing(self) -> ValidProject:
        """The declarations without those that have mistakes or read such, and which these are."""
        return open_valid_project(self.settings)

    @cached_property
    def graph(self) -> Graph:
        """The declarations without mistakes, with the overrides of this moment.

        So assets show the freshness and mode that are effective.
        """
        settings, declared = self.settings, self.standing.graph
        if not settings.has_control_store:
            return declared
        try:
            with opened(settings) as control:
                return apply_overrides(declared, control.intentions.read().at(datetime.now(UTC)))
        except FreshlineError as error:
            # The declarations are shown then: a database that is down must not take the assets out of the UI.
            LOG.warning("overrides are not shown: %s", error)
            return declared

    @cached_property
    def lineages(self) -> Mapping[TableName, ColumnLineage]:
        """From which columns of other tables each column is computed, as far as that is known."""
        return read_lineages(self.graph, self.settings)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of all tables and sources, every table behind what it reads."""
        return tuple(str(name) for name in self.graph.order)

    def connect(self, progress: Callable[[str], None] = lambda message: None) -> EngineClient:
        """The engine of the project, started if none runs."""
        return EngineClient.connect(self.settings, start=True, progress=progress)

    def keys(
        self,
        translator: FreshlineTranslator | None = None,
        select: Selection = ALL,
        exclude: Selection = (),
    ) -> AssetKeys:
        """The asset keys of all tables, and which tables are selected."""
        return AssetKeys.of(self.graph, translator, select_tables(self.graph, select, exclude))


def asset_key_for(
    table: str, project: FreshlineProject | None = None, translator: FreshlineTranslator | None = None
) -> AssetKey:
    """The asset key of a table or source, for assets of your own that read it or are read by it.

    With a `project` a name that is not declared raises SettingsError, and the key is spelled as it is declared there.
    A `translator` that `build_assets` was given must be given here too, and needs the project.

    >>> asset_key_for("sales.revenue")
    AssetKey(['sales', 'revenue'])
    """
    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if project is None:
        if translator is not None:
            raise SettingsError("a translator needs the project: asset_key_for(table, project, translator).")
        return AssetKey(list(name.parts))
    keys = project.keys(translator)
    if name not in keys.selected:
        raise SettingsError(f"there is no table or source {name}.{nearest(str(name), project.tables)}")
    return keys[name]


def build_asset_selection(
    project: FreshlineProject,
    select: Selection = ALL,
    exclude: Selection = (),
    translator: FreshlineTranslator | None = None,
) -> AssetSelection:
    """A selection of Dagster's, for jobs and schedules of your own, by the syntax of `build_assets`.

    It has the tables that are selected when the code location is loaded. Sources that are read in place are left out,
    because nothing materializes them.
    """
    keys = project.keys(translator, select, exclude)
    return AssetSelection.assets(*(keys[name] for name in keys.only(project.graph.kept)))

"""The asset keys of a project's tables, and which of the tables a code location has as assets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dagster import AssetCheckKey, AssetKey

from freshline.dagster.translator import FreshlineTranslator, table_of
from freshline.declare.graph import Graph
from freshline.errors import DeclarationError
from freshline.values.names import TableName


@dataclass(frozen=True)
class AssetKeys:
    """The key of every table and source of a project, also of those that are not `selected`.

    A table that is not selected has no asset here. Another code location may have it, under the same key.
    """

    keys: Mapping[TableName, AssetKey]
    selected: frozenset[TableName]

    @classmethod
    def of(
        cls,
        graph: Graph,
        translator: FreshlineTranslator | None = None,
        selected: Collection[TableName] | None = None,
    ) -> AssetKeys:
        """The keys that a translator gives; all tables are selected unless said otherwise.

        Raises DeclarationError where two tables have one key: their materializations would be those of one asset.
        """
        chosen = translator or FreshlineTranslator()
        # As the declarations spell the names: names are equal in any letter case, asset keys are not.
        keys = {name: chosen.get_asset_key(table_of(graph, name)) for name in graph.order}
        first: dict[AssetKey, TableName] = {}
        for name, key in keys.items():
            other = first.setdefault(key, name)
            if other != name:
                raise DeclarationError(
                    "NAME",
                    f"the translator gives {other} and {name} the same asset key, {key.to_user_string()}. Give each "
                    "table a key of its own.",
                    where=str(graph.spec(name).written_at),
                )
        return cls(keys, frozenset(graph.order if selected is None else selected))

    def __getitem__(self, name: TableName) -> AssetKey:
        return self.keys[name]

    def only(self, names: Iterable[TableName]) -> tuple[TableName, ...]:
        """The names among these that are assets here, in their order."""
        return tuple(name for name in names if name in self.selected)

    def check(self, name: TableName, check: str) -> AssetCheckKey:
        """The key of a check of a table."""
        return AssetCheckKey(self[name], check)

    def name_of(self, key: AssetKey) -> TableName | None:
        """The table of a key, None for an asset of somebody else."""
        return self._names.get(key)

    @cached_property
    def _names(self) -> Mapping[AssetKey, TableName]:
        return {key: name for name, key in self.keys.items()}

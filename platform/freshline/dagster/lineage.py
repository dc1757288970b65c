"""Column lineage as Dagster shows it: from which columns of other assets a column is computed.

Reading it takes milliseconds a query, which a thousand tables would feel at every load, so it is kept by the
fingerprint of each declaration.
"""

from __future__ import annotations

from collections.abc import Mapping

from dagster import TableColumnDep, TableColumnLineage

from freshline.dagster.keys import AssetKeys
from freshline.declare.cache import DeclarationCache
from freshline.declare.graph import Graph
from freshline.query.resolved import ColumnLineage, find_lineage
from freshline.values.names import TableName
from freshline.values.settings import Settings

METADATA_KEY = "dagster/column_lineage"
# Changes with the way in which lineage is found.
FORMAT = "1"


def read_lineages(graph: Graph, settings: Settings) -> dict[TableName, ColumnLineage]:
    """The lineage of each table whose columns' origins are known."""
    cache: DeclarationCache[ColumnLineage] = DeclarationCache(settings.state / "cache" / "lineage", ColumnLineage)
    found = {}
    for spec in graph.tables:
        columns = {name: known for name in spec.reads if (known := graph.columns(name)) is not None}
        key = cache.key(FORMAT, spec.fingerprint, repr(sorted((str(name), known) for name, known in columns.items())))
        lineage = cache.get(key)
        if lineage is None:
            lineage = find_lineage(spec, columns)
            cache.put(key, lineage)
        if lineage:
            found[spec.name] = lineage
    cache.save()
    return found


def shown_lineages(lineages: Mapping[TableName, ColumnLineage], keys: AssetKeys) -> dict[TableName, TableColumnLineage]:
    """The lineages of the tables that are assets, in Dagster's form."""
    return {name: _shown(keys, lineages[name]) for name in keys.only(lineages)}


def lineage_metadata(
    lineages: Mapping[TableName, TableColumnLineage], name: TableName
) -> dict[str, TableColumnLineage]:
    """The entry of one table, for its definition and for each of its materializations: the UI reads the newest."""
    return {METADATA_KEY: lineages[name]} if name in lineages else {}


def _shown(keys: AssetKeys, lineage: ColumnLineage) -> TableColumnLineage:
    return TableColumnLineage(
        deps_by_column={
            column: [TableColumnDep(keys[name], read) for name, read in columns] for column, columns in lineage.items()
        }
    )

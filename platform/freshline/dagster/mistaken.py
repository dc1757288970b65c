"""Assets of declarations with mistakes: they are in the graph, show the mistake, and nothing materializes them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from dagster import AssetKey, AssetSpec

from freshline.dagster.markdown import code_list
from freshline.dagster.translator import FreshlineTable, FreshlineTranslator, group_name
from freshline.plan.valid_project import Mistaken
from freshline.values.names import TableName

LOG = logging.getLogger("dagster")

# The node in the graph shows this, and is found by it: `kind:mistake`, `tag:freshline/kind=mistake`.
MISTAKE = "mistake"


def mistaken_specs(
    mistaken: Iterable[Mistaken],
    taken: Collection[AssetKey],
    keys: Mapping[TableName, AssetKey],
    translator: FreshlineTranslator,
) -> list[AssetSpec]:
    """The assets of declarations that are left out, without those whose key is `taken`.

    Key and group are those that the translator gives a table of which the name is known, and the group if its text has
    one. Where it cannot, they are the name and the namespace. A file that no table can be named like is shown by its
    own name.
    """
    found: dict[AssetKey, AssetSpec] = {}
    for each in mistaken:
        for error in each.errors:
            LOG.error("%s", error)
        key = AssetKey([each.file.name]) if each.name is None else _key(each.name, keys, translator)
        if key in taken or key in found:
            continue
        found[key] = AssetSpec(
            key,
            deps=[_key(read, keys, translator) for read in each.reads],
            description=description(each),
            group_name=None if each.name is None else _group(each.name, each.group, translator),
            kinds={MISTAKE},
            tags={"freshline/kind": MISTAKE},
            metadata={"mistakes": len(each.errors)},
        )
    return list(found.values())


def _key(name: TableName, keys: Mapping[TableName, AssetKey], translator: FreshlineTranslator) -> AssetKey:
    found = keys.get(name)
    if found is not None:
        return found
    try:
        return translator.get_asset_key(_table(name))
    except Exception as error:  # noqa: BLE001 - a translator of somebody else may raise anything for what is unknown
        LOG.warning("the translator gives %s no key while its declaration has a mistake: %r", name, error)
        return AssetKey(list(name.parts))


def _group(name: TableName, group: str | None, translator: FreshlineTranslator) -> str | None:
    try:
        return group_name(translator, _table(name, group))
    except Exception as error:  # noqa: BLE001 - as above
        LOG.warning("the translator gives %s no group while its declaration has a mistake: %r", name, error)
        return name.namespace


def _table(name: TableName, group: str | None = None) -> FreshlineTable:
    """As much as is known of a table whose declaration has a mistake."""
    return FreshlineTable(
        name=name.name,
        namespace=name.namespace,
        kind="table",
        mode="incremental",
        mode_reason="its declaration has a mistake",
        freshness_seconds=0,
        group=group,
        owner=None,
        comment=None,
        primary_key=(),
        reads=(),
        kinds=frozenset({MISTAKE}),
        declared_in=str(name),
    )


def description(mistaken: Mistaken) -> str:
    """Why there is no table, in Markdown."""
    if mistaken.errors:
        return (
            "The declaration has a mistake. An engine that runs keeps the table by the declaration before it.\n\n"
            + code_list(map(str, mistaken.errors))
        )
    reads = code_list(f"{read}" for read in mistaken.reads)
    return f"The declaration reads tables whose declarations have mistakes:\n\n{reads}"

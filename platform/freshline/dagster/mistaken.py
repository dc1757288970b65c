"""Assets of declarations with mistakes: they are in the graph, show the mistake, and nothing materializes them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from dagster import AssetKey, AssetSpec

from freshline.dagster.markdown import code_list
from freshline.declare.names import TableName
from freshline.plan.standing import Mistaken

LOG = logging.getLogger("dagster")

# What the node in the graph shows, and what it is found by: `kind:mistake`, `tag:freshline/kind=mistake`.
MISTAKE = "mistake"


def mistaken_specs(
    mistaken: Iterable[Mistaken], taken: Collection[AssetKey], keys: Mapping[TableName, AssetKey]
) -> list[AssetSpec]:
    """The assets of declarations that are left out, without those whose key is `taken`.

    A key is that of `keys`, or else the name: without a declaration there is nothing to translate. A file that no table
    can be named like is shown by its own name. The group is the namespace.
    """
    found: dict[AssetKey, AssetSpec] = {}
    for each in mistaken:
        for error in each.errors:
            LOG.error("%s", error)
        key = AssetKey([each.file.name]) if each.name is None else _key(each.name, keys)
        if key in taken or key in found:
            continue
        found[key] = AssetSpec(
            key,
            deps=[_key(read, keys) for read in each.reads],
            description=description(each),
            group_name=None if each.name is None else each.name.namespace,
            kinds={MISTAKE},
            tags={"freshline/kind": MISTAKE},
            metadata={"mistakes": len(each.errors)},
        )
    return list(found.values())


def _key(name: TableName, keys: Mapping[TableName, AssetKey]) -> AssetKey:
    return keys.get(name) or AssetKey(list(name.parts))


def description(mistaken: Mistaken) -> str:
    """Why there is no table, in Markdown."""
    if mistaken.errors:
        return (
            "The declaration has a mistake. An engine that runs keeps the table by the declaration before it.\n\n"
            + code_list(map(str, mistaken.errors))
        )
    reads = code_list(f"{read}" for read in mistaken.reads)
    return f"The declaration reads tables whose declarations have mistakes:\n\n{reads}"

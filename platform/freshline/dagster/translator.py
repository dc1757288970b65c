"""How a table or source of a project is shown in Dagster: its key, group, tags, owners, kinds and description.

Subclass `FreshlineTranslator` to change any of these, and hand an instance to `build_definitions` or to each of the
`build_` functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey

from freshline.declare.graph import Graph
from freshline.errors import DeclarationError
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.result import kind_of
from freshline.values.spec import SourceSpec, Spec

EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
GROUP = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")


@dataclass(frozen=True)
class FreshlineTable:
    """A table or source as a translator sees it.

    `kind` is `table`, `log` (a source whose rows arrive in a log table) or `source` (one that is read in place).
    `mode` is `continuous`, `incremental` or `batch`, with the reason in `mode_reason`. `freshness_seconds` is the
    promise that is effective now. `group`, `owner` and `comment` are as declared, None where they are not.
    `declared_in` is file and line.
    """

    name: str
    namespace: str | None
    kind: str
    mode: str
    mode_reason: str
    freshness_seconds: int
    group: str | None
    owner: str | None
    comment: str | None
    primary_key: tuple[str, ...]
    reads: tuple[str, ...]
    kinds: frozenset[str]
    declared_in: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The name with the namespace before it, where there is one."""
        return (self.namespace, self.name) if self.namespace else (self.name,)

    def __str__(self) -> str:
        return ".".join(self.parts)


class FreshlineTranslator:
    """The translation of a project into assets. Each method may be overridden alone.

    >>> class Prefixed(FreshlineTranslator):
    ...     def get_asset_key(self, table: FreshlineTable) -> AssetKey:
    ...         return super().get_asset_key(table).with_prefix("lake")
    """

    def get_asset_key(self, table: FreshlineTable) -> AssetKey:
        """`[name]` or `[namespace, name]`. Two tables must not have one key."""
        return AssetKey(list(table.parts))

    def get_group_name(self, table: FreshlineTable) -> str:
        """The declared group, else the namespace, else `default`.

        Sources have no group of their own: Dagster draws several groups closed, and the lineage would be out of sight.
        """
        return table.group or table.namespace or "default"

    def get_description(self, table: FreshlineTable) -> str | None:
        """The comment. The declaration as it was written is in the metadata in any case."""
        return table.comment

    def get_tags(self, table: FreshlineTable) -> Mapping[str, str]:
        """The kind of the table and its mode."""
        return {"freshline/kind": table.kind, "freshline/mode": table.mode}

    def get_owners(self, table: FreshlineTable) -> Sequence[str]:
        """The declared owner: an e-mail address, or `team:name` for any other text, because Dagster takes no third."""
        return [owner(table.owner)] if table.owner else []

    def get_kinds(self, table: FreshlineTable) -> set[str]:
        """At most three, because a node of the graph has room for no more."""
        return set(table.kinds)

    def get_metadata(self, table: FreshlineTable) -> Mapping[str, Any]:
        """Metadata beside those that freshline shows itself; an entry of the same name takes the place of its own."""
        return {}


def table_of(graph: Graph, name: TableName) -> FreshlineTable:
    """A table or source of a graph for a translator."""
    spec = graph.spec(name)
    return FreshlineTable(
        name=spec.name.name,
        namespace=spec.name.namespace,
        kind=kind_of(spec).value,
        mode=graph.mode(name).value,
        mode_reason=graph.mode_reason(name),
        freshness_seconds=graph.freshness(name).seconds,
        group=spec.group,
        owner=spec.owner,
        comment=spec.comment,
        primary_key=spec.primary_key,
        reads=tuple(str(read) for read in graph.reads(name)),
        kinds=frozenset(kinds(spec)),
        declared_in=str(spec.written_at),
    )


def kinds(spec: Spec) -> set[str]:
    """At most three, because a node of the graph has room for no more."""
    if isinstance(spec, SourceSpec):
        if spec.format is None:
            return {"deltalake"} | ({spec.connection.kind} if spec.is_lookup and spec.connection.kind else set())
        return {"spark", "deltalake", spec.connection.kind or spec.format.name}
    if spec.sink is not None:
        return {"spark", spec.sink.name}
    return {"spark", "deltalake", "python" if isinstance(spec.query, PythonQuery) else "sql"}


def group_name(translator: FreshlineTranslator, table: FreshlineTable) -> str:
    """The group of a table. Raises DeclarationError for one that Dagster does not take."""
    group = translator.get_group_name(table)
    if not GROUP.fullmatch(group):
        raise DeclarationError(
            "OPTION_VALUE",
            f"'group' = '{group}' cannot be a group in Dagster. Use letters, digits and underscores, "
            "with / between the levels.",
            where=table.declared_in,
        )
    return group


def owner(text: str) -> str:
    """An e-mail address or `team:name`, which is all that Dagster takes: another text is the name of a team."""
    return text if text.startswith("team:") or EMAIL.fullmatch(text) else f"team:{text}"

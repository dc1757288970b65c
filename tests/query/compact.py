"""Key queries as a person reads them: `o+` is the new rows, `o-` the old, `o*` the changed rows of a relation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.keys import Affected, find_affected
from freshline.values.reason import Reason

SCHEMA: Mapping[str, Sequence[str]] = {
    "o": ("id", "k", "v", "day", "arr"),
    "c": ("id", "k", "name"),
    "d": ("name", "w"),
}
_TOUCHED = re.compile(r"\(SELECT \*, TRUE AS freshline_touched FROM `freshline_changed_(\w+)`\)")
_EMPTY = re.compile(r"\(SELECT \* FROM `freshline_new_(\w+)` WHERE FALSE\)")
_VIEW = re.compile(r"`freshline_(new|old|changed)_(\w+)`")
_SIGNS = {"new": "+", "old": "-", "changed": "*"}


def compact(text: str) -> str:
    """One query: aliases and views are short, marks and quotes that say nothing are left out.

    >>> compact("SELECT `freshline_a0`.`id` AS `id` FROM `freshline_new_o` AS `freshline_a0`")
    'SELECT a0.id AS id FROM o+ a0'
    """
    text = _TOUCHED.sub(r"\1*", text)
    text = _EMPTY.sub(r"\1(none)", text)
    text = _VIEW.sub(lambda found: found[2] + _SIGNS[found[1]], text)
    text = re.sub(r" AS `freshline_a(\d+)`", r" a\1", text)
    text = text.replace("freshline_", "").replace("`", "")
    text = re.sub(r" WHERE \(a\d+\.touched\)(?: AND |(?=\)| GROUP|$))", " WHERE ", text)
    text = re.sub(r" WHERE (?=\)| GROUP|$)", "", text)
    return re.sub(r"(\w+[+*-]) AS \d+_stage", r"\1", text).strip()


def affected(query: str, *changed: str, primary_key: Sequence[str] = ()) -> Affected:
    """The analysis of a query when these inputs changed."""
    found = find_affected(ResolvedQuery.of(query, SCHEMA), frozenset(changed), primary_key=tuple(primary_key))
    assert not isinstance(found, Reason), str(found)
    return found


def shown(found: Affected) -> tuple[str, ...]:
    """Everything that is asked for: stages, guards and keys, in that order."""
    lines = []
    for stage in found.stages:
        lines.append(f"{stage.relation}+ = {compact(stage.new)}")
        lines += [f"{stage.relation}* = {compact(query)}" for query in stage.changed]
        lines += [f"{stage.relation}*({', '.join(stage.key_columns)}) = {compact(query)}" for query in stage.keys]
    lines += [f"unless {compact(query)}" for query, _ in found.guards]
    lines += [compact(query) for query in found.queries]
    return tuple(lines)


def check_keys(query: str, changed: str, columns: str, *asked: str) -> None:
    """Check the columns that the analysis chooses when inputs changed, and everything that is asked for.

    A query with `o±` stands for two: one of the new rows, and one of the old.
    """
    found = affected(query, *changed.split())
    signs = ((each, "+-" if "±" in each else "+") for each in asked)

    assert " ".join(found.columns) == columns
    assert shown(found) == tuple(each.replace("±", sign) for each, both in signs for sign in both)


def reason(query: str, *changed: str, schema: Mapping[str, Sequence[str]] = SCHEMA) -> str:
    """The code of the refusal, and what it is about."""
    found = find_affected(ResolvedQuery.of(query, schema), frozenset(changed))
    assert isinstance(found, Reason), found
    return f"{found.code}({found.about})" if found.about else found.code

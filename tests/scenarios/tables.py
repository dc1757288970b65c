"""The steps of most stories of one table: a source with rows, a table over it, and changes that it follows."""

from __future__ import annotations

from typing import Any

from freshline.testing import Lab
from freshline.values.result import RefreshResult

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


def fill(lab: Lab, name: str, columns: str, rows: str, **options: Any) -> None:
    """A source with rows, which are written as those of VALUES, or selected; `options` are those of `Lab.source`."""
    lab.source(name, columns, **options)
    lab.sql(f"INSERT INTO {name} {rows}" if rows.startswith("SELECT ") else f"INSERT INTO {name} VALUES {rows}")


def declare(lab: Lab, query: str, header: str = "", *, name: str = "t") -> None:
    """A table of this query; `header` is what stands between its name and its freshness."""
    lab.declare(f"CREATE MATERIALIZED TABLE {name} {header} {HOURLY} AS {query}")


def declare_merge(
    lab: Lab, query: str, key: str, merge: str, *others: str, name: str = "t", header: str = "", **options: str
) -> None:
    """A table with a key that folds its rows.

    `options` are those of the merge, with `_` for `-`, and `others` are written as in WITH.
    """
    texts = {option.replace("_", "-"): text.replace("'", "''") for option, text in options.items()}
    given = [f"'merge' = '{merge}'", *(f"'merge.{option}' = '{text}'" for option, text in texts.items()), *others]
    declare(lab, query, f"(PRIMARY KEY ({key})) {header} WITH ({', '.join(given)})", name=name)


def follow(lab: Lab, *changes: str, name: str = "t", by: str | tuple[str, ...] = (), **asked: Any) -> RefreshResult:
    """Make changes and refresh: the table is equal to its query then, and was brought there by one of these strategies.

    `asked` are arguments of `Lab.refresh`.
    """
    for change in changes:
        lab.sql(change)
    outcome = lab.refresh(name, **asked)
    assert outcome.error is None, (name, changes, outcome.error)
    wanted = (by,) if isinstance(by, str) else by
    assert not wanted or outcome.strategy in wanted, (name, changes, outcome.strategy, outcome.reason)
    assert lab.diff(name) == [], (name, changes)
    return outcome

"""Whether tables that follow the shop's database have, at each of their commits, the rows that the database had.

Nothing of freshline is used: the receipts are read as JSON from the logs of the tables, the rows with delta-rs, and
what they must be follows from the transactions that the writer made.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from resources.shop_writer import COLUMNS, CUSTOMER, ORDER, Key, Rows, Transaction, Values, rows_after

FEEDS = {CUSTOMER: "customer_feed", ORDER: "order_feed"}
REVENUE = "city_revenue"


@dataclass(frozen=True)
class Commit:
    """A commit of a refresh: its version, and the places in the database's log that its rows are of, by table.

    `unread` is an input that it read at a version into which nothing was read yet, and then no place is known.
    """

    table: str
    version: int
    places: Mapping[str, int]
    unread: str | None = None


@dataclass(frozen=True)
class Compared:
    """How many commits of each table were compared, and a sentence for each that has other rows than it must."""

    commits: Mapping[str, int]
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether no commit differs; a table without a commit was not compared."""
        return not self.differences and all(self.commits.values())


def compare_commits(warehouse: Path, transactions: Sequence[Transaction]) -> Compared:
    """Compare every commit of the three tables."""
    commits = [commit for table in (*FEEDS, REVENUE) for commit in read_commits(warehouse, table)]
    befores = [transaction.before for transaction in transactions]
    # A place is behind all transactions whose commits begin before it.
    numbers = {place: bisect_left(befores, place) for commit in commits for place in commit.places.values()}
    wanted = set(numbers.values())
    states = {number: rows for number, rows in enumerate(rows_after(transactions)) if number in wanted}
    differences = []
    for commit in commits:
        if commit.unread is not None:
            differences.append(
                f"version {commit.version} of {commit.table} reads {commit.unread} at a version that no refresh made"
            )
            continue
        rows = {table: states[numbers[place]][table] for table, place in commit.places.items()}
        expected = revenue(rows) if commit.table == REVENUE else rows[commit.table]
        stored = read_rows(warehouse, commit.table, commit.version)
        # As lists, so that a row that is there twice differs.
        if stored != sorted(expected.items()):
            differences.append(_difference(commit, stored, expected))
    counts = {table: sum(commit.table == table for commit in commits) for table in (*FEEDS, REVENUE)}
    return Compared(counts, tuple(differences))


def read_commits(warehouse: Path, table: str) -> list[Commit]:
    """The commits of a table whose receipts move rows, in their order."""
    names = tuple(FEEDS) if table == REVENUE else (table,)
    logs = {name: _receipts(warehouse / name) for each in names for name in (each, FEEDS[each])}
    found = []
    for version, receipt in _receipts(warehouse / table).items():
        if not receipt.get("maintenance"):
            found.append(_commit(table, version, receipt, names, logs))
    return found


def _commit(
    table: str,
    version: int,
    receipt: Mapping[str, Any],
    names: Sequence[str],
    logs: Mapping[str, Mapping[int, dict[str, Any]]],
) -> Commit:
    places = {}
    for each in names:
        read = receipt if each == table else _at(logs[each], receipt, each)
        fed = None if read is None else _at(logs[FEEDS[each]], read, FEEDS[each])
        if fed is None:
            return Commit(table, version, {}, each if read is None else FEEDS[each])
        places[each] = _place(fed)
    return Commit(table, version, places)


def newest_place(warehouse: Path, table: str) -> int:
    """The place in the database's log that a table of `FEEDS` has come to, 0 before its first commit."""
    return max((commit.places.get(table, 0) for commit in read_commits(warehouse, table)), default=0)


def read_rows(warehouse: Path, table: str, version: int | None = None) -> list[tuple[Any, Values]]:
    """The rows of a version, or of the newest one, as pairs of key and values, in the order of the keys."""
    columns = COLUMNS.get(table, ("city", "orders", "amount"))
    found = DeltaTable(str(warehouse / table), version=version).to_pyarrow_table(columns=list(columns))
    rows = zip(*(found.column(name).to_pylist() for name in columns), strict=True)
    return sorted((row[0], tuple(row[1:])) for row in rows)


def revenue(rows: Rows) -> dict[str, Values]:
    """The rows of city_revenue by its query: number and amount of paid orders by the city of their customer."""
    found: dict[str, tuple[int, Decimal]] = {}
    for customer, amount, state in rows[ORDER].values():
        if state == "paid" and customer in rows[CUSTOMER]:
            city = rows[CUSTOMER][customer][1]
            number, total = found.get(city, (0, Decimal(0)))
            found[city] = (number + 1, total + amount)
    return dict(found)


def _receipts(folder: Path) -> dict[int, dict[str, Any]]:
    """The receipts in the log of a table, by version."""
    found = {}
    for file in sorted((folder / "_delta_log").glob("[0-9]*.json")):
        for line in file.read_text(encoding="utf-8").splitlines():
            said = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if said:
                found[int(file.stem)] = json.loads(said)
    return found


def _at(log: Mapping[int, dict[str, Any]], receipt: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The receipt of an input that was the newest one at the version that was read, None where there was none yet."""
    before = [version for version in log if version <= receipt["positions"][name]["version"]]
    return log[max(before)] if before else None


def _place(receipt: Mapping[str, Any]) -> int:
    """How far the log table of a feed has read the log of the database."""
    (position,) = receipt["positions"].values()
    high, low = position["lsn"].split("/")
    return int(high, 16) << 32 | int(low, 16)


def _difference(commit: Commit, stored: Sequence[tuple[Any, Values]], expected: Mapping[Any, Values]) -> str:
    found: dict[Key, list[Values]] = {}
    for key, values in stored:
        found.setdefault(key, []).append(values)
    wrong = [
        f"{key}: {found.get(key, [])} instead of {[expected[key]] if key in expected else []}"
        for key in sorted({*found, *expected})
        if found.get(key, []) != ([expected[key]] if key in expected else [])
    ]
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"version {commit.version} of {commit.table} has {wrong[0]}{more}"

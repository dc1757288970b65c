"""The gallery of the documentation: its declarations are those of the example, and give the rows that the page shows.

The page is read as its readers do: a section has one table with its sources, the records of each file, the rows,
and the strategy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from freshline.testing import Lab
from tests.lanes import long_but

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "platform" / "examples" / "gallery"
PAGE = ROOT / "platform" / "docs" / "gallery.md"

SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECORDS = re.compile(r"^`landing/(\w+)/(\d)\.csv`.*?\n\n```csv\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DECLARED = re.compile(r"CREATE (SOURCE|MATERIALIZED TABLE) (\w+)")
STRATEGY = re.compile(r"^The strategy is `(\w+)`", re.MULTILINE)
# The entry with time partitions shows no days that had not begun, so it has the time of its page.
SHOWN_AT = datetime(2026, 11, 3, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    """One section: the declarations by their names, sources first, the records of each source by portion, the rows."""

    title: str
    declarations: dict[str, str]
    records: dict[tuple[int, str], str]
    table: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    strategy: str


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip("|").split("|"))


def read_entry(title: str, text: str) -> Entry:
    declarations, tables = {}, []
    for code in SQL.findall(text):
        named = DECLARED.match(code)
        assert named, code
        declarations[named[2]] = code
        tables += [named[2]] if named[1] != "SOURCE" else []
    header, _, *rows = [cells(line) for line in text.splitlines() if line.startswith("|")]
    records = {(int(portion), source): content for source, portion, content in RECORDS.findall(text)}
    (table,), (strategy,) = tables, STRATEGY.findall(text)
    return Entry(title, declarations, records, table, header, rows, strategy)


def read_page() -> list[Entry]:
    _, *parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [read_entry(title, text) for title, text in zip(parts[::2], parts[1::2], strict=True)]


ENTRIES = read_page()


def shown(value: object) -> str:
    """A value as the page has it."""
    match value:
        case None:
            return "NULL"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case _:
            return str(value)


def as_shown(rows: Sequence[dict[str, object]], columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    return sorted(tuple(shown(row[column]) for column in columns) for row in rows)


def new_lab(spark: SparkSession, entry: Entry) -> Lab:
    return Lab(spark, start=SHOWN_AT if "partition.unit" in entry.declarations[entry.table] else None)


def land(lab: Lab, entry: Entry, portion: int) -> None:
    for (number, source), content in entry.records.items():
        if number == portion:
            lab.land(source, f"{portion}.csv", content)
    if "partition.unit" not in entry.declarations[entry.table]:
        # Files are complete when they have not changed for some seconds, by times that the system notes. On a busy
        # machine these may be many minutes after the clock.
        lab.clock.advance(days=1)


def test_there_are_ten() -> None:
    assert len(ENTRIES) == 10


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.title)
def test_an_entry_shows_ten_records_with_late_repeated_and_empty_ones(entry: Entry) -> None:
    records = dict.fromkeys((1, 2), "")
    for (portion, _), content in entry.records.items():
        records[portion] += "".join(content.splitlines(keepends=True)[1:])
    first, second = (text.splitlines() for text in records.values())
    everything = "\n".join([*first, *second])

    assert len(first) + len(second) == 10
    assert first
    assert second
    assert re.search(r",,|,$|^,", everything, re.MULTILINE), "no field is empty"
    assert {line.split(",")[0] for line in first} & {line.split(",")[0] for line in second}, "no record is repeated"


def test_the_page_has_exactly_the_files_of_the_example() -> None:
    of_page = {f"assets/{name}.sql": code for entry in ENTRIES for name, code in entry.declarations.items()}
    of_page |= {
        f"landing/{source}/{portion}.csv": content
        for entry in ENTRIES
        for (portion, source), content in entry.records.items()
    }
    of_example = {
        str(file.relative_to(GALLERY)): file.read_text(encoding="utf-8")
        for folder in ("assets", "landing")
        for file in (GALLERY / folder).rglob("*")
        if file.is_file()
    }

    assert of_page == of_example


@pytest.mark.parametrize(
    "entry", long_but([ENTRIES[0], ENTRIES[5], ENTRIES[9]], ENTRIES), ids=lambda entry: entry.title
)
def test_the_rows_and_the_strategy_are_those_of_the_page(spark: SparkSession, entry: Entry) -> None:
    with new_lab(spark, entry) as lab:
        for code in entry.declarations.values():
            lab.declare(code)
        land(lab, entry, 1)
        first = lab.refresh(entry.table)
        land(lab, entry, 2)
        second = lab.refresh(entry.table)

        assert (first.state, second.state) == ("SUCCEEDED", "SUCCEEDED")
        assert (first.strategy, second.strategy) == ("full", entry.strategy)
        found = lab.rows(entry.table)
        assert tuple(found[0]) == entry.columns
        assert as_shown(found, entry.columns) == sorted(entry.rows)
        assert lab.diff(entry.table) == []

        again = lab.refresh(entry.table, full=True)
        assert again.strategy == "full"
        assert lab.rows(entry.table) == found


def test_the_rejected_rows_are_those_of_the_page(spark: SparkSession) -> None:
    with Lab(spark) as lab:
        for entry in ENTRIES:
            if entry.table in ("single_click", "good_reading"):
                for code in entry.declarations.values():
                    lab.declare(code)
                land(lab, entry, 1)
                land(lab, entry, 2)
        clicks, readings = lab.refresh("single_click"), lab.refresh("good_reading")

        assert [row["error"] for row in lab.quarantine("click")] == ["NULL_KEY(single_click)"]
        refused = {reading for row in lab.quarantine("good_reading") for reading in re.findall(r"r-\d", row["raw"])}
        assert refused == {"r-2", "r-6"}
        counted = {name: violation.rows for name, violation in readings.violations.items()}
        assert counted == {"has_value": 2, "plausible": 2, "known_meter": 2}
        assert clicks.rejected == 1

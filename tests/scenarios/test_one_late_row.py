"""The page "Event time" follows one late row, and its tables are those that the page shows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "platform" / "docs" / "event_time.md"
TABLES = ("landings_so_far", "landings_per_hour", "close_landings")
BATCHES = (
    {"LH1": "12:05", "LH2": "12:40"},
    {"LH3": "13:20"},
    {"LH9": "12:50"},
)


def declared(name: str) -> str:
    found = re.search(
        rf"```sql\n(CREATE (?:SOURCE|MATERIALIZED TABLE) {name}\b.*?);?\n```", PAGE.read_text(), re.DOTALL
    )
    assert found is not None, name
    return found[1]


def shown(lab) -> dict[str, list[tuple[object, ...]]]:
    def text(value: object) -> object:
        return f"{value.astimezone(UTC):%H:%M}" if isinstance(value, datetime) else value

    return {
        name: [tuple(text(value) for key, value in row.items() if key != "window_end") for row in lab.rows(name)]
        for name in TABLES
    }


@pytest.mark.long
def test_the_tables_are_those_of_the_page(lab) -> None:
    columns = re.search(r"CREATE SOURCE landing \((.*)\)\nWITH", declared("landing"), re.DOTALL)
    assert columns is not None
    lab.files("landing", columns[1])
    for name in TABLES:
        lab.declare(declared(name))
    found = []
    for number, batch in enumerate(BATCHES, 1):
        lab.land(
            "landing", f"{number}.json", [{"flight": k, "landed_at": f"2026-03-01T{v}:00Z"} for k, v in batch.items()]
        )
        log = lab.refresh("landing")
        assert all(lab.refresh(name).error is None for name in TABLES)
        found.append((f"{lab.watermark('landing'):%H:%M}", shown(lab)))
    first, second, third = found
    assert first == ("12:35", {"landings_so_far": [("12:00", 2)], "landings_per_hour": [], "close_landings": []})
    so_far = [("12:00", 2), ("13:00", 1)]
    assert second == (
        "13:15", {"landings_so_far": so_far, "landings_per_hour": [("12:00", 2)], "close_landings": []}
    )  # fmt: skip
    assert third == (
        "13:15",
        {
            "landings_so_far": [("12:00", 3), ("13:00", 1)],
            "landings_per_hour": [("12:00", 2)],
            "close_landings": [("LH2", "LH9")],
        },
    )
    assert (log.late_rows, log.late_by_seconds) == (1, 1500.0)
    [late] = lab.late("landings_per_hour")
    assert (late["flight"], late["late_by"], late["position"]) == ("LH9", Decimal(300), 3)
    status = {str(each.table): each for each in lab.status()}
    # Hours that have begun by 13:20 and are not closed: that of 13:00.
    assert status["landings_per_hour"].open_windows == 1
    for name in TABLES:
        assert lab.refresh(name, full=True).error is None
        assert lab.verify(name).equal
    assert shown(lab) == third[1]

"""Odd records by the thousand, in each format: each is a row or in quarantine, none is both or neither."""

from __future__ import annotations

import random
from typing import Any

import pytest

from freshline.sources.records import REJECTIONS
from tests.lanes import long_but
from tests.security.conftest import COVERED
from tests.security.fuzz import ODD_TEXTS, documented, mutated

pytestmark = [pytest.mark.security, pytest.mark.spark]

COLUMNS = (
    "a INT, b STRING, c DECIMAL(10,2), d TIMESTAMP, e ARRAY<STRUCT<x: INT, y: STRING>>, f MAP<STRING, DOUBLE>, g BINARY"
)
FLAT = "a INT, b STRING, c DECIMAL(10,2), d TIMESTAMP, e DOUBLE, f DATE, g BOOLEAN"
JSON_PARTS = (
    *("{", '"a"', ":", "1", ",", '"b"', ":", '"x"', ",", '"c"', ":", "1.50", ",", '"d"', ":", '"2026-01-01T00:00:00Z"'),
    *(",", '"e"', ":", "[", '{"x": 1, "y": "z"}', "]", ",", '"f"', ":", '{"k": 1.5}', ",", '"g"', ":", '"YWI="', "}"),
)
CSV_PARTS = ("1", ",", "x", ",", "1.50", ",", "2026-01-01T00:00:00Z", ",", "1.5", ",", "2026-01-01", ",", "true")
CSV_POOL = (
    *CSV_PARTS,
    '"',
    '""',
    '"a,b"',
    '"a""b"',
    ",",
    ",,,",
    "NULL",
    "\\",
    "'",
    "1e5",
    " 1",
    "+1",
    "1.",
    ".5",
    "\t",
)


def record(chance: random.Random, parts: tuple[str, ...], pool: tuple[str, ...]) -> bytes:
    """One line: without a line end within, so that the number of records is known."""
    text = "".join(parts) if chance.random() < 0.2 else mutated(chance, parts, (*pool, *ODD_TEXTS))
    data = text.replace("\n", "").replace("\r", "").encode("utf-8", "surrogatepass")[:20_000]
    if chance.random() < 0.1:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + bytes([chance.choice((0, 0x80, 0xC0, 0xFF, 0xED, 0xA0, 0xF4, 0x1A))]) + data[at:]
    # A blank line is no record; a byte order mark at the beginning of a line is none of it.
    return data if data.strip(b" \t\xef\xbb\xbf\x00\x0b\x0c") else b"x"


@pytest.mark.parametrize("keyed", long_but([True], [False, True]))
@pytest.mark.parametrize("name", ["json", "csv"])
def test_each_record_is_a_row_or_in_quarantine(
    lab: Any, name: str, keyed: bool, inputs: int, seed: int, record_property: Any
) -> None:
    count = max(500, inputs // 12)
    chance = random.Random(f"{name} {keyed} {seed}")
    parts, pool = (JSON_PARTS, JSON_PARTS) if name == "json" else (CSV_PARTS, CSV_POOL)
    records = [record(chance, parts, pool) for _ in range(count)]
    options = {"header": "false"} if name == "csv" else {}
    lab.files("s", COLUMNS if name == "json" else FLAT, format=name, primary_key=["a"] if keyed else (), **options)
    lab.land("s", f"a.{name}", b"\n".join(records) + b"\n")
    result = lab.refresh("s")

    rejected = lab.quarantine("s")
    kept = lab.rows("s")
    codes = {str(row["error"]).partition("(")[0] for row in rejected}
    record_property(COVERED, f"{count:,} records, {len(kept):,} rows, {len(rejected):,} in quarantine: {sorted(codes)}")
    assert codes <= documented(), codes - documented()
    assert codes & set(REJECTIONS) or len(codes) >= 2
    if keyed:
        # A record that came before, with the same values, is no other record.
        assert len(kept) == len({row["a"] for row in kept})
        assert len(kept) + len(rejected) <= count
    else:
        assert len(kept) + len(rejected) == count, f"FRESHLINE_SEED={seed}"
    assert result.rejected == len(rejected)
    raw = {row["line"]: bytes(row["raw"]) for row in rejected}
    assert len(raw) == len(rejected), "two records of one line"
    # A rejected record is kept as it was sent.
    wrong = [line for line, found in raw.items() if found != records[line - 1].removeprefix(b"\xef\xbb\xbf")]
    assert wrong == [], f"FRESHLINE_SEED={seed}, lines {wrong[:5]}"
    # The same files again are no new records.
    assert lab.refresh("s").rows_out in (0, None)
    assert len(lab.rows("s")) == len(kept)

"""Characters at which Python's `splitlines` cuts and JSON does not, in every text that reaches a table's log."""

from __future__ import annotations

import json

import pytest

from tests.scenarios.tables import HOURLY, declare, follow

# Vertical tab, form feed, the four separators of ASCII, next line, line separator, paragraph separator.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"
# Delta does not accept control characters of ASCII in the names of columns; it accepts these.
NAME = "v\u2028w\u2029x\x85y"


def land(lab, number):
    rows = [
        {"id": f"{number}{mark}", "region": f"r{mark}", NAME: f"a{mark}b" if mark else None, "n": number}
        for mark in ["", *SEPARATORS]
    ]
    lab.land("s", f"{number}.json", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


@pytest.mark.parametrize(
    "key", [pytest.param((), id="without a key", marks=pytest.mark.long), pytest.param(("id",), id="with a key")]
)
def test_one_character_does_not_break_a_table_for_good(lab, key):
    lab.files("s", f"id STRING, region STRING, `{NAME}` STRING, n INT", primary_key=key)
    lab.declare(
        f"CREATE MATERIALIZED TABLE kept (PRIMARY KEY (id), CONSTRAINT small EXPECT (`{NAME}` IS NULL)) "
        f"COMMENT 'a{SEPARATORS}b' {HOURLY} AS SELECT id, region, `{NAME}`, n FROM s"
    )
    declare(lab, "SELECT region, id, n FROM s", "PARTITIONED BY (region)", name="parted")
    declare(lab, "SELECT region, count(*) AS n FROM s GROUP BY region", name="counted")
    lab.declare(
        "CREATE MATERIALIZED TABLE merged (PRIMARY KEY (region)) WITH ('merge' = 'last_row', 'merge.sequence' = 'n', "
        f"'merge.tie-breaker' = 'id') {HOURLY} AS SELECT region, id, n, `{NAME}` FROM s"
    )

    for number in range(2):
        land(lab, number)
        assert [outcome.error for outcome in lab.refresh_all()] == [None] * 5

    for name in ("kept", "parted", "counted", "merged"):
        assert lab.diff(name) == [], name
    assert len(lab.rows("s")) == 2 * (len(SEPARATORS) + 1)
    assert {row["region"] for row in lab.rows("merged")} == {"r", *(f"r{mark}" for mark in SEPARATORS)}
    follow(lab, name="parted", by="partition", partitions={"region": "r\u2028"})

"""Odd texts as keys, values of partitions, comments and names: stored as they are, and never a path or a statement."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from freshline.errors import FreshlineError
from freshline.reads.sql import query
from freshline.values.names import quoted
from tests.security.conftest import COVERED

pytestmark = [pytest.mark.security, pytest.mark.spark]

ODD = (
    *("'", '"', "`", "''", "\\'", "\\", "';--", "' OR '1'='1", "); DROP TABLE t;", "$(touch x)", "`touch x`"),
    *("../", "../../../../tmp/escaped", "/etc/passwd", "..", ".", "a/b", "%2e%2e%2f", "%00", "~", "file:/etc/passwd"),
    *("a\nb", "a\rb", "\r\n", "\t", "\u2028", "\x85", "\x01", "\x1b[2J", "\x7f", "\ufeff"),
    *("\u202e", "\u202eabc\u202c", "\u2066a\u2069", "\u200f", "\u0430", "é", "e\u0301", "日本", "\U0001f600"),
    *(
        "=",
        "a=b",
        "k=1/j=2",
        "{}",
        "[a]",
        "*",
        "?",
        "#",
        "a b",
        " a",
        "a ",
        "NULL",
        "null",
        "__HIVE_DEFAULT_PARTITION__",
    ),
    *("${env:HOME}", "${file:/etc/passwd}", "{{7*7}}", "<script>alert(1)</script>", "%s%n", "_freshline", "x" * 200),
)
LONG = "y" * 10_240
# A refresh takes a second, so a run of the usual size has a sample of these.
ALL_FROM = 1_000_000


def sample(inputs: int, seed: int) -> list[str]:
    """Some of the odd texts, or all of them; one that leads upward and a long one are always there."""
    chosen = list(ODD) if inputs >= ALL_FROM else random.Random(seed).sample(ODD, 5)
    return [*dict.fromkeys(chosen), "../../../../tmp/escaped", LONG]


def rows_of(lab: Any, statement: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in query(lab.runtime, statement).rows]


def literal(text: str) -> str:
    escaped = "".join(f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}" for sign in text)
    return f"'{escaped}'"


def test_odd_keys_and_partition_values_are_stored_as_they_are(
    lab: Any, inputs: int, seed: int, record_property: Any
) -> None:
    lab.source("s", "id STRING, day STRING, n INT", primary_key=["id"])
    values = ", ".join(f"({literal(text)}, {literal(text)}, {number})" for number, text in enumerate(ODD))
    lab.sql(f"INSERT INTO s VALUES {values}, ({literal(LONG)}, 'long', 1000)")
    declared = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' HOUR AS SELECT id, day, n FROM s"
    lab.declare(declared.format("kept (PRIMARY KEY (id))"))
    lab.declare(declared.format("cut PARTITIONED BY (day)"))
    before = {path for path in Path("/tmp").iterdir() if path.name == "escaped"}
    for table in ("kept", "cut"):
        lab.refresh(table)
        stored = {row["id"]: row["n"] for row in rows_of(lab, f"SELECT id, n FROM {table}")}
        assert stored == {**{text: number for number, text in enumerate(ODD)}, LONG: 1000}
        assert not lab.diff(table)
    # Each is found by itself, and one that changes changes alone.
    for text in set(sample(inputs, seed)) - {LONG}:
        found = rows_of(lab, f"SELECT n FROM cut WHERE day = {literal(text)}")
        assert found == [{"n": ODD.index(text)}], repr(text)
    lab.sql(f"UPDATE s SET n = n + 1 WHERE n < {len(ODD)}")
    for table in ("kept", "cut"):
        lab.refresh(table)
        stored = {row["id"]: row["n"] for row in rows_of(lab, f"SELECT id, n FROM {table}")}
        assert stored == {**{text: number + 1 for number, text in enumerate(ODD)}, LONG: 1000}
    assert {path for path in Path("/tmp").iterdir() if path.name == "escaped"} == before
    record_property(COVERED, f"{len(ODD) + 1} odd texts as keys and partitions")


def test_an_odd_value_of_a_named_partition_names_that_partition_or_none(lab: Any, inputs: int, seed: int) -> None:
    lab.source("s", "id STRING, day STRING", primary_key=["id"])
    lab.sql("INSERT INTO s VALUES ('a', 'fine'), ('b', 'other')")
    lab.declare(
        "CREATE MATERIALIZED TABLE cut PARTITIONED BY (day) FRESHNESS = INTERVAL '1' HOUR AS SELECT id, day FROM s"
    )
    lab.refresh("cut")
    for text in sample(inputs, seed):
        with suppress(FreshlineError):
            lab.refresh("cut", partitions=[{"day": text}])
        assert [row["id"] for row in rows_of(lab, "SELECT id FROM cut ORDER BY id")] == ["a", "b"], repr(text)


def test_odd_comments_and_columns_are_kept_or_refused(lab: Any, inputs: int, seed: int, record_property: Any) -> None:
    lab.source("s", "id STRING, n INT")
    lab.sql("INSERT INTO s VALUES ('a', 1)")
    texts, refused = sample(inputs, seed), []
    for number, text in enumerate(texts):
        name = f"t{number}"
        comment = "'" + text.replace("'", "''") + "'"
        try:
            lab.declare(
                f"CREATE MATERIALIZED TABLE {name} COMMENT {comment} FRESHNESS = INTERVAL '1' HOUR "
                f"AS SELECT id AS {quoted(text[:200])} FROM s"
            )
        except FreshlineError:
            refused.append(text)
            continue
        if lab.refresh(name).committed:
            assert rows_of(lab, f"SELECT * FROM {name}") == [{text[:200]: "a"}]
        else:
            refused.append(text)
    record_property(COVERED, f"{len(texts)} odd comments and columns, refused {[text[:20] for text in refused]}")
    assert len(refused) < len(texts)


@pytest.mark.parametrize("text", [text for text in (*ODD, LONG) if not text.strip().isidentifier() or len(text) > 128])
def test_an_odd_name_of_a_table_is_refused_before_it_is_a_path(shared_lab: Any, text: str) -> None:
    with pytest.raises(FreshlineError):
        shared_lab.declare(
            f"CREATE MATERIALIZED TABLE `{text.replace('`', '``')}` FRESHNESS = INTERVAL '1' HOUR AS SELECT 1 AS a"
        )

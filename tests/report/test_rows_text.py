"""Rows are shown with every digit that the engine wrote."""

from __future__ import annotations

import json

import pytest

from freshline.report.rows_text import rows_json, rows_text


def test_rows_are_printed_as_the_engine_wrote_them() -> None:
    rows = ['{"a":1.10,"b":12345678901234567890.123456789}', '{"a":null}']

    assert rows_json(rows) == f"[{rows[0]},\n {rows[1]}]"
    assert rows_json([]) == "[]"


@pytest.mark.security
def test_rows_as_json_have_nothing_that_a_terminal_obeys() -> None:
    value = "\x9b31m\u202e\u2028\x7f\U000e0001 \u00e9\U0001f600"
    row = json.dumps({"a": value}, ensure_ascii=False)
    text = rows_json([row])

    assert text.isprintable()
    assert json.loads(text) == [{"a": value}]
    assert "\u00e9\U0001f600" in text


def test_a_table_keeps_every_digit_and_shows_null() -> None:
    rows = ['{"a":1.10,"b":{"c":[1.0,null]}}', '{"a":null,"b":null}']

    assert rows_text([("a", "decimal(4,2)"), ("b", "struct<c:array<double>>")], rows).splitlines() == [
        "   a  b",
        '1.10  {"c": [1.0, null]}',
        "NULL  NULL",
        "(2 rows)",
    ]


def test_two_columns_of_one_name_are_both_shown() -> None:
    assert rows_text([("a", "int"), ("a", "string")], ['{"a":1,"a":"x"}']).splitlines() == ["a  a", "1  x", "(1 row)"]


def test_a_column_that_the_row_leaves_out_is_null() -> None:
    assert "NULL" in rows_text([("a", "int"), ("b", "int")], ['{"b":1}'])

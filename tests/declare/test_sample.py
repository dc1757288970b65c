"""The columns that a sample of records has: the narrowest types that take every value as it is."""

from __future__ import annotations

import json

import pytest

from freshline.declare.sample import RECORDS, csv_columns, json_columns
from freshline.sql.drafts import SourceDraft
from freshline.sql.statement import read_columns
from freshline.sql.tokens import Text
from freshline.values.names import TableName
from freshline.values.spec import Column


def of_json(*values: object) -> str:
    """The type of one column with these values."""
    ((column),) = json_columns([json.dumps({"a": value}) for value in values])
    return column.type


def of_csv(*fields: str) -> str:
    _, column = csv_columns(["k,a\n", *(f"1,{field}\n" for field in fields)])
    return column.type


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None], "BOOLEAN"),
        ([0, -(2**63)], "BIGINT"),
        ([1, 2**63], "DECIMAL(38,0)"),
        ([10**38], "STRING"),
        ([2**63, 0.5], "DOUBLE"),
        (["2026-02-28"], "DATE"),
        (["2026-02-28", "2026-02-28T10:00:00.5+01:00"], "TIMESTAMP"),
        (["2026-02-28 10:00", "2026-02-30"], "STRING"),
        (["0000-01-01"], "STRING"),
        (["12"], "STRING"),
        ([1, "1"], "STRING"),
        ([True, 1], "STRING"),
        ([None], "STRING"),
        ([[1, None], [2.5]], "ARRAY<DOUBLE>"),
        ([[]], "ARRAY<STRING>"),
        ([[[]], [["2026-01-01"]]], "ARRAY<ARRAY<DATE>>"),
        ([{"b": 1}, {"c-d": "x", "b": None}], "STRUCT<b: BIGINT, `c-d`: STRING>"),
        ([{}], "MAP<STRING, STRING>"),
        ([{}, {"b": True}], "STRUCT<b: BOOLEAN>"),
        ([[1], {"b": 1}], "STRING"),
    ],
)
def test_a_json_column_has_the_narrowest_type_of_all_values(values: list[object], expected: str) -> None:
    assert of_json(*values) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["1", "", "-7"], "BIGINT"),
        (["01234"], "STRING"),
        (["1" * 5000], "STRING"),
        (["9223372036854775808"], "DECIMAL(38,0)"),
        (["1", "1.5", "1e3"], "DOUBLE"),
        (["1,5"], "STRING"),
        (["true", "false"], "BOOLEAN"),
        (["TRUE"], "STRING"),
        ([""], "STRING"),
        (["2026-01-01", "2026-01-01 10:00:00"], "TIMESTAMP"),
        (["\u0661"], "STRING"),
    ],
)
def test_a_field_of_csv_is_read_as_its_text(fields: list[str], expected: str) -> None:
    assert of_csv(*(f'"{field}"' for field in fields)) == expected


def test_columns_are_in_the_order_of_their_first_appearance() -> None:
    found = json_columns(['{"b": 1}\n', "\n", '{"a": 1, "b": 2}\r\n'])

    assert [column.name for column in found] == ["b", "a"]


def test_only_the_beginning_of_a_large_sample_is_read() -> None:
    assert of_json(*([1] * RECORDS), "text") == "BIGINT"
    assert of_csv(*(["1"] * RECORDS), "text") == "BIGINT"


def test_quotes_and_line_ends_of_csv_are_understood() -> None:
    found = csv_columns(['"a ""b""",c\r\n', '"x\n', 'y",1\r\n', "1,2,3\r\n"])

    assert [(column.name, column.type) for column in found] == [('a "b"', "STRING"), ("c", "BIGINT")]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "no record with a column"),
        (["{}"], "no record with a column"),
        (["[1]"], "line 1 is no JSON object"),
        (['{"a": 1}', '{"a": NaN}'], "line 2 is no JSON: NaN"),
        (['{"a":'], "line 1 is no JSON"),
        (["[" * 100_000], "line 1 is no JSON"),
        (['{"a": ' + "9" * 5000 + "}"], "line 1 is no JSON"),
    ],
)
def test_a_sample_that_is_none_is_refused(lines: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        json_columns(lines)


@pytest.mark.parametrize(
    ("lines", "sentence"), [([], "no record"), (["a,,b\n"], "without a name"), (['"a\n'], "no CSV")]
)
def test_a_csv_without_names_is_refused(lines: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        csv_columns(lines)


def test_columns_that_are_found_can_be_declared_whatever_their_names_are() -> None:
    plain = ["id", "größe", "日本", "primary", "Constraint", "x" * 10_240]
    names = [*plain, "order-id", "a`b", "<script>", "\u202ename", "2nd"]
    record = {name: {name: [1, "x"]} for name in names}

    found = json_columns([json.dumps(record)])
    text = SourceDraft(TableName.parse("t"), found, {}).sql()

    inside = text[text.index("(") + 1 : text.index("\n)\n")]
    read = tuple(each.value for each in read_columns(Text(inside, "t.sql")).columns)
    assert read == found
    assert [column.name for column in read] == names
    assert found[0] == Column("id", "STRUCT<id: ARRAY<STRING>>")

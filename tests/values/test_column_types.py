"""Types of source columns have one spelling."""

from __future__ import annotations

import pytest

from freshline.values.column_types import normalise_type


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("string", "STRING"),
        ("Boolean", "BOOLEAN"),
        ("integer", "INT"),
        ("long", "BIGINT"),
        ("real", "FLOAT"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("decimal", "DECIMAL(10,0)"),
        ("decimal(5)", "DECIMAL(5,0)"),
        ("numeric ( 10 , 2 )", "DECIMAL(10,2)"),
        ("array<int>", "ARRAY<INT>"),
        ("map<string,array<bigint>>", "MAP<STRING, ARRAY<BIGINT>>"),
        ("struct<a:int,B string>", "STRUCT<a: INT, B: STRING>"),
        ("struct<`a b`: struct<c: date>>", "STRUCT<`a b`: STRUCT<c: DATE>>"),
        ("struct<\n  a: int,\n  b: int>", "STRUCT<a: INT, b: INT>"),
    ],
)
def test_a_type_is_normalised(written, normal):
    assert normalise_type(written) == normal
    assert normalise_type(normal) == normal


@pytest.mark.parametrize(
    "written",
    [
        "",
        "text",
        "varchar(10)",
        "int(4)",
        "array",
        "array<>",
        "array<int",
        "array<int>>",
        "map<int>",
        "struct<>",
        "struct<a>",
        "struct<a: int, A: int>",
        "decimal(0)",
        "decimal(39,1)",
        "decimal(5,6)",
        "decimal(5,",
        "string string",
        "string;",
        "décimal",
    ],
)
def test_a_text_that_is_not_a_type_is_refused_with_those_there_are(written):
    with pytest.raises(ValueError, match="is not a type: .* Types are STRING, BOOLEAN"):
        normalise_type(written)


@pytest.mark.parametrize("begin", ["array<", "struct<a: ", "map<int, "])
def test_a_type_that_is_nested_without_end_is_refused(begin):
    closed = begin * 90 + "int" + ">" * 90
    assert normalise_type(closed).count("<") == 90

    with pytest.raises(ValueError, match="more than 100 types in each other") as raised:
        normalise_type(begin * 5000 + "int" + ">" * 5000)
    assert len(str(raised.value)) < 2_000

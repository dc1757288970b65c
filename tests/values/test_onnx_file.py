"""The parts that are read of a model's file, and the files that are no models."""

from __future__ import annotations

import io
import pickle

import pytest

from freshline.testing.models import Node, Values, linear_model, onnx_model
from freshline.values.onnx_file import UNKNOWN, read_signature

ROWS = [None]


def signature(content: bytes):
    return read_signature(io.BytesIO(content))


def test_the_columns_of_one_input_are_arguments() -> None:
    found = signature(linear_model([1.0, 2.0, 3.0], 0.5))

    assert (found.arguments, found.returned, found.rows) == (3, "FLOAT", UNKNOWN)
    assert found.text == "(FLOAT, FLOAT, FLOAT) -> FLOAT"


def test_each_of_several_inputs_is_an_argument_and_several_outputs_are_a_struct() -> None:
    found = signature(
        onnx_model(
            [Node("Add", ["a", "b"], ["sum"]), Node("Identity", ["a"], ["same"])],
            {"a": Values("DOUBLE", ROWS), "b": Values("DOUBLE", [None, 1])},
            {"sum": Values("DOUBLE", [None, 2]), "same": Values("DOUBLE", ROWS)},
        )
    )

    assert found.text == "(DOUBLE, DOUBLE) -> STRUCT<`sum`: ARRAY<DOUBLE>, `same`: DOUBLE>"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no ONNX model"),
        (b"SELECT 1", "is no ONNX model"),
        (pickle.dumps({"a": 1}), "is a pickle, which runs code"),
        (b"PK\x03\x04" + bytes(50), "in which frameworks keep pickles"),
        (linear_model([1.0], 0.0)[:-30], "is no ONNX model"),
        (onnx_model([], {}, {"y": Values("FLOAT", ROWS)}), "has no inputs"),
        (onnx_model([], {"x": Values("FLOAT", [None, 3, 3])}, {"y": Values("FLOAT", ROWS)}), "x with 3 dimensions"),
        (
            onnx_model([], {"x": Values("FLOAT", [None, 2]), "z": Values("FLOAT", ROWS)}, {"y": Values("FLOAT", ROWS)}),
            "several inputs, of which x takes more than one",
        ),
    ],
)
def test_a_file_that_is_no_model_of_rows_is_reported(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        signature(content)


def test_a_damaged_file_is_refused_or_read_and_nothing_else() -> None:
    whole = linear_model([1.0, 2.0], 0.5)
    refused = 0
    for length in range(len(whole)):
        try:
            signature(whole[:length] + b"\xff")
        except ValueError:
            refused += 1
    assert refused > len(whole) * 0.9

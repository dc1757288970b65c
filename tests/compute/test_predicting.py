"""Predictions for batches of rows: the same for a row whatever stands beside it, NULL where an argument is."""

from __future__ import annotations

import io
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from freshline.compute.predicting import BLOCK, PredictError, predict_rows
from freshline.testing.models import Node, Values, linear_model, onnx_model
from freshline.values.onnx_file import read_signature


def predict(folder: Path, content: bytes, *columns: pa.Array) -> list[object]:
    file = folder / f"{abs(hash(content))}.onnx"
    file.write_bytes(content)
    found: list[object] = predict_rows(str(file), read_signature(io.BytesIO(content)), columns).to_pylist()
    return found


def test_a_row_has_one_prediction_whatever_stands_beside_it(tmp_path: Path) -> None:
    weights = [math.sin(number) for number in range(40)]
    model = linear_model(weights, 0.1)
    rows = 3 * BLOCK + 7
    columns = [pa.array([math.cos(row * number) for row in range(rows)]) for number in range(40)]
    together = predict(tmp_path, model, *columns)

    for row in (0, 1, BLOCK - 1, BLOCK, rows - 1):
        alone = predict(tmp_path, model, *[column.slice(row, 1) for column in columns])
        assert alone == [together[row]]
    expected = sum(weight * column[5].as_py() for weight, column in zip(weights, columns, strict=True)) + 0.1
    assert together[5] == pytest.approx(expected, abs=1e-5)


def test_a_missing_value_gives_none_and_no_rows_give_no_rows(tmp_path: Path) -> None:
    model = linear_model([2.0, 1.0], 0.5, element="DOUBLE")
    amounts = pa.array([Decimal("1.50"), None, Decimal("2.25"), Decimal("0.00")])

    assert predict(tmp_path, model, amounts, pa.array([True, True, None, False])) == [4.5, None, None, 0.5]
    assert predict(tmp_path, model, amounts.slice(1, 1), pa.array([True])) == [None]
    assert predict(tmp_path, model, amounts.slice(0, 0), pa.array([], pa.int8())) == []


@pytest.mark.parametrize("element", ["FLOAT", "DOUBLE", "INT", "BIGINT", "BOOLEAN", "STRING"])
def test_the_literal_null_is_a_missing_value_of_any_type(tmp_path: Path, element: str) -> None:
    model = onnx_model([Node("Identity", ["x"], ["y"])], {"x": Values(element, [None])}, {"y": Values(element, [None])})
    assert predict(tmp_path, model, pa.nulls(3)) == [None, None, None]
    assert predict(tmp_path, linear_model([2.0, 1.0], 0.5), pa.array([1.0, 2.0]), pa.nulls(2)) == [None, None]


def test_several_inputs_and_outputs_of_other_types(tmp_path: Path) -> None:
    model = onnx_model(
        [
            Node("Identity", ["word"], ["same"]),
            Node("Not", ["flag"], ["other"]),
            Node("Concat", ["n", "n"], ["twice"], {"axis": 1}),
        ],
        {"word": Values("STRING", [None, 1]), "flag": Values("BOOLEAN", [None]), "n": Values("BIGINT", [None, 1])},
        {"same": Values("STRING", [None, 1]), "other": Values("BOOLEAN", [None]), "twice": Values("BIGINT", [None, 2])},
    )
    words, flags, numbers = pa.array(["a", None, "ö"]), pa.array([True, True, False]), pa.array([1, 2, 2**60])

    assert predict(tmp_path, model, words, flags, numbers) == [
        {"same": "a", "other": False, "twice": [1, 1]},
        None,
        {"same": "ö", "other": True, "twice": [2**60, 2**60]},
    ]


def test_a_model_for_a_fixed_number_of_rows_is_asked_so_many_at_a_time(tmp_path: Path) -> None:
    model = onnx_model([Node("Neg", ["x"], ["y"])], {"x": Values("INT", [2, 1])}, {"y": Values("INT", [2, 1])})

    assert predict(tmp_path, model, pa.array([1, 2, 3, None, 5], pa.int64())) == [-1, -2, -3, None, -5]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array(["1"]), "input x takes INT, and is given STRING"),
        (pa.array([1.0]), "input x takes INT, and is given DOUBLE"),
        (pa.array([2**40]), "input x takes INT, and a value is out of its range"),
    ],
)
def test_values_of_other_types_are_refused(tmp_path: Path, values: pa.Array, said: str) -> None:
    model = onnx_model([Node("Neg", ["x"], ["y"])], {"x": Values("INT", [None, 1])}, {"y": Values("INT", [None, 1])})

    with pytest.raises(PredictError, match=said):
        predict(tmp_path, model, values)


def test_an_operator_that_onnx_runtime_does_not_know_is_reported(tmp_path: Path) -> None:
    model = onnx_model([Node("Guess", ["x"], ["y"])], {"x": Values("INT", [None])}, {"y": Values("INT", [None])})

    with pytest.raises(PredictError, match="ONNX Runtime fails: .*Guess"):
        predict(tmp_path, model, pa.array([1], pa.int32()))

"""The functions of Spark's SQL behind `ml_predict`: one for each file of a model, named by its SHA-256.

They are called for whole batches of rows, in Spark's Python workers, each of which loads a file once. ONNX Runtime gets
one thread, because Spark has a worker for each core. Rows are computed in blocks of one size, the last one filled up:
with other sizes ONNX Runtime may add in another order, so that a row's prediction would depend on the rows beside it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from freshline.errors import ModelRuntimeError
from freshline.values.onnx_file import UNKNOWN, Signature, Tensor, read_signature
from freshline.values.query import PREDICT_CALL, PREDICT_FUNCTION

BLOCK = 256
# Before the part of an error that is shown to people, see `freshline.refresh.failure`.
PREDICT_ERROR = "freshline:MODEL"
_ARROW = {
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
}
# Where the files are kept, by SHA-256. The same bytes have one name, so all warehouses of a process share them.
_FILES: dict[str, Path] = {}


class PredictError(Exception):
    """Arguments do not fit the model, or the model cannot be computed."""

    def __init__(self, told: str) -> None:
        super().__init__(f"{PREDICT_ERROR} {told}")


def note_file(sha256: str, file: Path) -> None:
    """Note where the file of a model is kept.

    Raises ModelRuntimeError where ONNX Runtime is not installed.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        raise ModelRuntimeError(
            "ml_predict needs ONNX Runtime, which is not installed beside the engine. Install the extra: "
            "pip install 'freshline[onnx]'."
        )
    _FILES[sha256] = file


def provide_predicting(spark: SparkSession, text: str) -> None:
    """Make known to a session the functions that a text calls for models."""
    for sha256 in {found.lower() for found in PREDICT_CALL.findall(text)}:
        name = PREDICT_FUNCTION + sha256
        if spark.catalog.functionExists(name):
            continue
        if "PYSPARK_PYTHON" not in os.environ:
            # Spark would take the first `python3` of the path, which may have neither freshline nor ONNX Runtime.
            spark.sparkContext.pythonExec = sys.executable
        file = _FILES[sha256]
        with file.open("rb") as opened:
            signature = read_signature(opened)
        predict = arrow_udf(_predictor(str(file), signature), signature.returned)  # type: ignore[call-overload]
        spark.udf.register(name, predict)


def is_predicting(name: str) -> bool:
    """Whether a function is one of those behind `ml_predict`."""
    return PREDICT_CALL.fullmatch(name) is not None


def _predictor(file: str, signature: Signature) -> Callable[..., pa.Array]:
    def predict(*columns: pa.Array) -> pa.Array:
        return predict_rows(file, signature, columns)

    return predict


def predict_rows(file: str, signature: Signature, columns: Sequence[pa.Array]) -> pa.Array:
    """The prediction for each row, NULL where an argument is. Raises PredictError."""
    known = np.ones(len(columns[0]), dtype=bool)
    for column in columns:
        known &= np.asarray(column.is_valid())
    count = int(known.sum())
    given = [column.filter(pa.array(known)) for column in columns]
    made = _outputs(file, signature, _inputs(signature, given), count)
    arrays = [_array(tensor, values) for tensor, values in zip(signature.outputs, made, strict=True)]
    rows = (
        arrays[0]
        if len(arrays) == 1
        else pa.StructArray.from_arrays(arrays, names=[tensor.name for tensor in signature.outputs])
    )
    if count == len(known):
        return rows
    # The place of each row among those that are computed.
    return rows.take(pa.array(np.cumsum(known) - 1, mask=~known))


def _inputs(signature: Signature, columns: Sequence[pa.Array]) -> list[Any]:
    if signature.is_matrix:
        (tensor,) = signature.inputs
        return [np.stack([_values(column, tensor) for column in columns], axis=1)]
    found = []
    for tensor, column in zip(signature.inputs, columns, strict=True):
        values = _values(column, tensor)
        found.append(values if len(tensor.shape) == 1 else values.reshape(-1, 1))
    return found


def _values(column: pa.Array, tensor: Tensor) -> Any:
    """A column's values as the model takes them."""
    wanted = _ARROW[tensor.element]
    if pa.types.is_null(column.type):
        # The literal NULL has no type of its own.
        column = column.cast(wanted)
    kind = column.type
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if tensor.element == "STRING" and pa.types.is_string(kind):
        return np.array(column.to_pylist(), dtype=object)
    if tensor.element == "BOOLEAN" and pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)
    if pa.types.is_floating(wanted) and (is_whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        whole = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
        values = whole.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            return values.astype(wanted.to_pandas_dtype())
    if pa.types.is_integer(wanted) and is_whole:
        try:
            return column.cast(wanted).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid as error:
            raise PredictError(
                f"input {tensor.name} takes {tensor.element}, and a value is out of its range"
            ) from error
    raise PredictError(f"input {tensor.name} takes {tensor.element}, and is given {_kind(kind)}")


def _kind(kind: pa.DataType) -> str:
    return next((name for name, arrow in _ARROW.items() if arrow == kind), str(kind).upper())


def _outputs(file: str, signature: Signature, inputs: Sequence[Any], count: int) -> list[Any]:
    """The model's outputs for all rows, in blocks of one size."""
    size = BLOCK if signature.rows == UNKNOWN else signature.rows
    parts: list[list[Any]] = [[] for _ in signature.outputs]
    names = [tensor.name for tensor in signature.outputs]
    for start in range(0, count, size):
        rows = min(size, count - start)
        places = np.minimum(np.arange(start, start + size), count - 1)
        block = {tensor.name: values[places] for tensor, values in zip(signature.inputs, inputs, strict=True)}
        try:
            made = _session(file).run(names, block)
        except Exception as error:
            raise PredictError(f"ONNX Runtime fails: {' '.join(str(error).split())}") from error
        for tensor, values, part in zip(signature.outputs, made, parts, strict=True):
            if np.shape(values)[:1] != (size,) or np.ndim(values) != len(tensor.shape):
                raise PredictError(f"output {tensor.name} has the shape {np.shape(values)} for {size} rows")
            part.append(values[:rows])
    return [
        np.concatenate(part) if part else np.empty((0, max(tensor.width, 0))[: len(tensor.shape)], dtype=object)
        for tensor, part in zip(signature.outputs, parts, strict=True)
    ]


def _array(tensor: Tensor, values: Any) -> pa.Array:
    flat = pa.array(
        values.reshape(-1).tolist() if values.dtype == object else values.reshape(-1), _ARROW[tensor.element]
    )
    if tensor.width == 1:
        return flat
    width = values.shape[1]
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, flat)


@lru_cache(maxsize=8)
def _session(file: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

"""A refresh by keys that Spark refuses is full, and its reason is the cause."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, ArithmeticException

from freshline.compute.keys import why_not


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArithmeticException("[NUMERIC_VALUE_OUT_OF_RANGE] 1E9 cannot be a DECIMAL(3, 0)."), "ROW_FAILED"),
        (AnalysisException("[DELTA_MISSING_CHANGE_DATA] no change data was recorded for version [7]"), "HISTORY_GONE"),
        (AnalysisException("[UNRESOLVED_COLUMN] a"), "REWRITE_MISMATCH"),
    ],
)
def test_the_reason_of_a_refused_refresh_by_keys_is_its_cause(error, code):
    assert why_not(error).code == code

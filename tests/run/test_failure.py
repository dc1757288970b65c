"""An error of Spark or the file system becomes one that says what to do, and whether another try can help."""

from __future__ import annotations

import errno

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException

from freshline.compute.cancellation import Cancellation
from freshline.errors import RefreshError
from freshline.refresh.failure import translate, translate_statement
from freshline.sql.query_parser import parse_query
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.spec import TableSpec

SPEC = TableSpec(
    TableName.parse("t"), parse_query("SELECT a\nFROM s", "assets/t.sql", 3), Location("assets/t.sql", 1), Freshness(60)
)
JAVA = "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted.\n\tat x\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "STORAGE", "the disk of the warehouse is full"),
        (OSError(errno.EROFS, "Read-only file system"), "STORAGE", "cannot be written"),
        (Py4JError(JAVA + "Caused by: java.io.IOException: No space left on device"), "STORAGE", "full"),
        (
            Py4JError(JAVA + "Caused by: org.apache.spark.SparkFileNotFoundException: x.parquet"),
            "SOURCE",
            "no longer there",
        ),
        (
            AnalysisException("[UNRESOLVED_COLUMN] no column b; line 2 pos 5"),
            "QUERY",
            "assets/t.sql:4: Spark refuses the query",
        ),
        (
            Py4JError(
                JAVA
                + "Caused by: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] 'x' is no INT.\n"
                + "== SQL (line 2, position 1) =="
            ),
            "QUERY",
            "assets/t.sql:4: the query failed while it ran: [CAST_INVALID_INPUT] 'x' is no INT.",
        ),
        (
            AnalysisException(
                "[DELTA_UNSUPPORTED_DATA_TYPES] Found columns using unsupported data types: [age: "
                "DayTimeIntervalType(0,3)]. You can set 'spark.databricks.delta.schema.typeCheck.enabled' to 'false'."
            ),
            "QUERY",
            "column age is an INTERVAL, such as the difference of two times, and a table cannot store one",
        ),
        (
            AnalysisException("[AMBIGUOUS] `freshline_rows`.`a` is in [`freshline_rows`.`a`, `freshline_match`]"),
            "QUERY",
            "Spark refuses the query: [AMBIGUOUS] `a` is in [`a`]",
        ),
        (Py4JError("SparkContext was shut down"), "ENGINE", "nothing was committed"),
        (Py4JError("An error occurred while calling o422.save"), "ENGINE", "nothing was committed"),
        (Py4JNetworkError("Answer from Java side is empty"), "ENGINE", "nothing was committed"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "ENGINE", "nothing was committed"),
        (Py4JError(JAVA), "REFRESH", "Job aborted"),
        (ValueError("odd"), "REFRESH", "ValueError: odd"),
    ],
)
def test_each_has_its_code_and_sentence(error, code, said):
    failure = translate(error, SPEC, Cancellation())

    assert failure.code == code
    assert said in str(failure)
    assert failure.retry_helps is (code in ("STORAGE", "SOURCE", "ENGINE"))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (AnalysisException("[UNRESOLVED_COLUMN] no column b"), "REQUEST", "Spark refuses the statement: [UNRESOLVED_"),
        (
            Py4JError(JAVA + "Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] by zero.\n"),
            "REQUEST",
            "the statement failed while it ran: [DIVIDE_BY_ZERO] by zero.",
        ),
        (Py4JError(JAVA), "REQUEST", "the statement failed while it ran: Job aborted."),
        (Py4JError(JAVA + "Job 13 cancelled because SparkContext was shut down"), "ENGINE", "driver-memory"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "ENGINE", "driver-memory"),
    ],
)
def test_a_failure_of_a_statement_is_one_sentence(error, code, said):
    failure = translate_statement(error)

    assert failure.code == code
    assert said in str(failure)
    assert "\n" not in str(failure)


def test_our_own_errors_stay_as_they_are():
    error = RefreshError("as it is")

    assert translate(error, SPEC, Cancellation()) is error


def test_whatever_happens_after_a_cancel_is_the_cancel():
    cancellation = Cancellation()
    cancellation.cancel()

    assert translate(ValueError("interrupted"), SPEC, cancellation).code == "CANCELLED"

"""Reason codes: why a refresh was done the way it was.

A reason is a stable code, and a sentence for people behind it: `CODE: sentence`. Programs compare codes.
"""

from __future__ import annotations

from dataclasses import dataclass

CODES: dict[str, str] = {
    "NOTHING_NEW": "no input has changed since the newest receipt",
    "NO_ROW_CROSSED": "no input has changed, and no row entered or left the table as time passed",
    "NO_NET_CHANGE": "inputs changed, but no row of the table changes",
    "DIMENSIONS_ONLY": "only dimensions of lookup joins changed, and rows keep the values of their own lookup",
    "INSERTS_ONLY": "inputs only gained rows, and each new row gives new rows of the table",
    "MERGE_TYPE": "the merge folds new rows into the stored row of their key",
    "PARTITION_OF_SOURCE": "the changed rows of one input determine which partitions change",
    "AFFECTED_KEYS": "these columns identify the rows that may change, and only those rows are computed again",
    "AFFECTED_COMPONENTS": "only the components of edges that came or went are computed again",
    "ALGEBRAIC": "the aggregates of these groups follow from their stored values and the changed rows",
    "EXTENSION": "a strategy of another package follows these changes",
    "ROWS_SENT": "the changes of the table are sent to the sink",
    "WHOLE_VERSIONS": "the sink has whole versions, so all rows are written when some have changed",
    "PARKED_ROWS": "rows that found no dimension row are looked up again",
    "NEW_FILES": "the landing folder had complete files that were not read yet",
    "NEW_RECORDS": "the source had records that were not read yet",
    "RETRIED": "quarantined records were decoded again, and so many of them are rows now",
    "WATERMARK_MOVED": "no record was new, and time that passed moved the watermark",
    "WINDOWS_CLOSED": "the watermark has passed the end of windows, or the times from which rows follow",
    "NO_WINDOW_CLOSED": "the watermark has not passed the end of another window, or the time of another row",
    "TRIGGERED": "rows for which the condition of WHEN is true for the first time are added",
    "PARTITIONS_MISSING": "partitions that have begun are not in the table yet, or follow an older declaration",
    "NO_CLOCK": "the newest receipt does not have the time for which its rows passed temporal filters",
    "REQUESTED": "a full refresh or these partitions were requested",
    "NO_RECEIPT": "the table has no version yet, or its newest receipt is no longer in its log",
    "DEFINITION_CHANGED": "the declaration differs from the one in the newest receipt",
    "MODEL_CHANGED": "the file of a model that the query asks is another one than in the newest receipt",
    "STARTED": "the changed declaration applies from here on, and older rows stay as they are",
    "FOREIGN_WRITE": "another writer changed the table, and a full refresh repairs it",
    "SOURCE_REPLACED": "an input is another table than before, was rolled back, or had its final rows computed anew",
    "SCHEMA_CHANGED": "an input has other columns than before",
    "HISTORY_GONE": "the log of an input no longer has its changes",
    "CDF_DISABLED": "an input updated or deleted rows and has no change feed",
    "UPSTREAM_DELETES": "the input of a merge updated or deleted rows, so their keys are folded again",
    "TRUNCATED": "a change feed has a TRUNCATE, which may take any row of the table away",
    "NONDETERMINISTIC": "the query gives another value each time, or depends on the order in which rows are read",
    "WINDOW_WITHOUT_PARTITION": "a window function reads rows of every partition",
    "NO_KEY": "no column of the result identifies the rows that a change affects",
    "HIDDEN_AGGREGATE": "the one row is computed from an aggregate that it does not show",
    "TOP_N": "which rows are the first follows from all rows",
    "RECURSIVE": "how far a change reaches is not known of a query that reads its own rows",
    "INEXACT_KEY": "rows can only be identified by values that may differ when they are computed again",
    "NULLABLE_NOT_IN": "a NULL came into or left the rows that NOT IN reads, which affects every row",
    "ROW_FAILED": "a row makes the query fail where only affected keys are computed",
    "REWRITE_MISMATCH": "freshline and Spark read this query differently",
    "COST": "computing everything again is cheaper",
    "BUDGET_EXCEEDED": "the changes took more than twice the CPU-seconds of a full refresh, and were given up",
    "UDF_NOT_DECLARED": "the table is computed by Python code, whose effect on changes is unknown",
    "UNSUPPORTED": "this version cannot derive the changes of such a query",
    "RESTORED": "the table was restored to a savepoint",
    "MIXED_CUT": "inputs with a common source could not be pinned to one position of it",
}


@dataclass(frozen=True)
class Reason:
    """A code of `CODES` and, where it helps, its subject.

    >>> str(Reason("NOTHING_NEW"))
    'NOTHING_NEW: no input has changed since the newest receipt'
    >>> str(Reason("UNSUPPORTED", "GROUP BY"))
    'UNSUPPORTED(GROUP BY): this version cannot derive the changes of such a query'
    """

    code: str
    about: str = ""

    def __str__(self) -> str:
        about = f"({self.about})" if self.about else ""
        return f"{self.code}{about}: {CODES[self.code]}"

"""Reason codes: why a refresh was done the way it was.

A reason is a stable code, and a sentence for people behind it: `CODE: sentence`. Programs compare codes.
"""

from __future__ import annotations

from dataclasses import dataclass

CODES: dict[str, str] = {
    "NOTHING_NEW": "no input has changed since the newest receipt",
    "NO_NET_CHANGE": "inputs changed, but no row of the table would",
    "DIMENSIONS_ONLY": "only dimensions of lookup joins changed; rows that met them earlier stay as they are",
    "INSERTS_ONLY": "inputs only gained rows, and the query turns new rows into new rows",
    "MERGE_TYPE": "the table's merge type folds new rows into one row a key",
    "PARTITION_OF_SOURCE": "the partition of a row follows from the changed rows of one input",
    "AFFECTED_KEYS": "the rows that the changes may affect are told by these columns, and only they are computed again",
    "ALGEBRAIC": "the aggregates of these groups follow from their old values and the changed rows alone",
    "EXTENSION": "a strategy of another package follows these changes",
    "PARKED_ROWS": "rows that missed their dimension are looked up again",
    "NEW_FILES": "complete files were found in the landing directory",
    "NEW_RECORDS": "the topic had records that were not read yet",
    "PARTITIONS_MISSING": "partitions that have begun are not in the table yet, or are of an older declaration",
    "REQUESTED": "a full refresh or these partitions were asked for",
    "NO_RECEIPT": "the table has no version yet, or its newest receipt is no longer in its log",
    "DEFINITION_CHANGED": "the declaration differs from the one in the newest receipt",
    "STARTED": "the changed declaration holds from here on, and rows from before stay as they are",
    "FOREIGN_WRITE": "somebody else wrote to the table; a full refresh repairs it",
    "SOURCE_REPLACED": "an input is another table than before, or was rolled back",
    "SCHEMA_CHANGED": "an input has other columns than before",
    "HISTORY_GONE": "changes of an input are no longer in its log",
    "CDF_DISABLED": "an input updated or deleted rows and records no change feed",
    "UPSTREAM_DELETES": "an input of a merge type updated or deleted rows, so their keys are folded again",
    "NONDETERMINISTIC": "the query calls a function that gives another value each time, or one by the order of reading",
    "WINDOW_WITHOUT_PARTITION": "a window function sees rows of every partition",
    "NO_KEY": "no column of the result tells which of its rows a change affects",
    "INEXACT_KEY": "rows would be told apart by a value that may come out otherwise when it is computed again",
    "NULLABLE_NOT_IN": "a NULL came into or went from what NOT IN reads, which affects every row",
    "REWRITE_MISMATCH": "the query as freshline reads it is not the query as Spark does",
    "COST": "computing everything again is cheaper",
    "BUDGET_EXCEEDED": "the changes took more than twice what computing everything takes, so they were given up",
    "UDF_NOT_DECLARED": "the table is computed in Python, whose effect on changes is not declared",
    "UNSUPPORTED": "the query has a form whose changes this version does not derive",
    "RESTORED": "the table was brought back to a savepoint",
    "MIXED_CUT": "inputs that share a root could not be pinned to one cut of it",
}


@dataclass(frozen=True)
class Reason:
    """A code of `CODES` and, where it helps, what it was about.

    >>> str(Reason("NOTHING_NEW"))
    'NOTHING_NEW: no input has changed since the newest receipt'
    >>> str(Reason("UNSUPPORTED", "GROUP BY"))
    'UNSUPPORTED(GROUP BY): the query has a form whose changes this version does not derive'
    """

    code: str
    about: str = ""

    def __str__(self) -> str:
        about = f"({self.about})" if self.about else ""
        return f"{self.code}{about}: {CODES[self.code]}"

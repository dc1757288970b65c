"""The errors of Spark, Delta and the file system, as errors of freshline's tree."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from freshline.compute.cancellation import Cancellation
from freshline.compute.fold import REPEATED
from freshline.compute.predicting import PREDICT_ERROR
from freshline.errors import (
    AsOfDuplicateError,
    CancelledError,
    EngineError,
    ExtensionFailedError,
    ForbiddenQueryError,
    ForbiddenStatementError,
    FreshlineError,
    ModelError,
    PatternBudgetError,
    PatternError,
    PatternExpressionError,
    PatternSkipError,
    ProcessFailedError,
    PythonLimitError,
    QueryError,
    RefreshError,
    RequestError,
    SourceError,
    StorageError,
)
from freshline.keyed.batches import PROCESS_ERROR
from freshline.sql.placeholders import in_own_words
from freshline.values.as_of_joins import DUPLICATE
from freshline.values.extension import broken, is_file_of, is_own, where_of
from freshline.values.query import MATCH_ERROR, PythonQuery, SqlQuery
from freshline.values.spec import SourceSpec, Spec, TableSpec

FULL = ("No space left on device", "Disk quota exceeded")
READ_ONLY = (
    "Read-only file system",
    "Permission denied",
    "Mkdirs failed to create",
    "DELTA_CREATE_TABLE_WITH_DIFFERENT",
)
GONE = (
    "DELTA_FILE_NOT_FOUND",
    "FileNotFoundException",
    "FAILED_READ_FILE",
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND",
    "VersionNotFound",
    "DELTA_VERSION_NOT_CONTIGUOUS",
)
# Where Delta has no type for a column; it goes on to propose a setting.
NOT_STORED = re.compile(r"Found columns using unsupported data types: \[(.*?)\]\.")
# A task's error about its rows (`[CAST_INVALID_INPUT] The value ..`), below Spark's error about the task.
CAUSE = re.compile(r"^Caused by: .*?(\[(?!DELTA_|INTERNAL_ERROR|TASK_)[A-Z][A-Z0-9_.]+\] .*)$", re.MULTILINE)
# An as-of join's error about two versions: which join of the query, and their key and time.
TWO_VERSIONS = re.compile(rf"{DUPLICATE} (\d+) (\{{.*\}})")
# The error about the rows by the function behind MATCH_RECOGNIZE.
MATCHED = re.compile(rf"MatchError: {MATCH_ERROR}(PATTERN_\w+) (.*)")
# The error of a class of freshline.process, as JSON.
PROCESSED = re.compile(rf"ProcessFailed: {PROCESS_ERROR}(\{{.*\}})")
# Spark's error about a process of Python that was killed, or ended itself.
WORKER_ENDED = "Python worker exited unexpectedly"
# The error of the function behind ml_predict.
PREDICTED = re.compile(rf"PredictError: {PREDICT_ERROR} (.*)")
# A frame of a traceback of Python: file, line and function. Behind it the exception begins a line.
FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)', re.MULTILINE)
RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Iteration)\b.*)$", re.MULTILINE)
# All that py4j says of a call during which the JVM was killed.
NO_ANSWER = re.compile(r"An error occurred while calling \S+\s*")


def translate(error: Exception, spec: Spec, cancellation: Cancellation) -> FreshlineError:
    """The error to report for one refresh; an unknown one keeps its first sentence and its kind."""
    if isinstance(error, ForbiddenQueryError) and error.where is None:
        return ForbiddenQueryError(error.message, where=_place(spec, ""))
    if isinstance(error, FreshlineError):
        return _of_extension(error, spec, cancellation) if isinstance(error, ExtensionFailedError) else error
    if cancellation.cancelled:
        return CancelledError("the request was cancelled; nothing of it was committed", where=str(spec.name))
    text = str(error)
    where = str(spec.name)
    if isinstance(error, PySparkException | Py4JError):
        # First: rows that they quote may resemble anything else.
        told = _told(spec, text)
        if told is not None:
            return told
    if _spark_has_ended(error):
        return EngineError("the engine's Spark ended during the refresh; nothing was committed", where=where)
    if any(sign in text for sign in FULL) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return StorageError("the disk of the warehouse is full. Free some space and ask again.", where=where)
    if any(sign in text for sign in READ_ONLY) or getattr(error, "errno", None) in (errno.EROFS, errno.EACCES):
        return StorageError(
            f"the warehouse cannot be written ({_sentence(text)}). Make its folder writable for this user.", where=where
        )
    if any(sign in text for sign in GONE):
        return SourceError(f"rows of an input are no longer there: {_sentence(text)}", where=where)
    stored = NOT_STORED.search(text)
    if stored is not None:
        return QueryError(_not_stored(stored[1]), where=_place(spec, ""))
    return _untold(error, spec, text)


def _untold(error: Exception, spec: Spec, text: str) -> FreshlineError:
    """The error for an exception that is not known better: of Spark's analysis, of a query that runs, or any other."""
    if isinstance(error, AnalysisException | ParseException):
        return QueryError(f"Spark refuses the query: {_sentence(text)}", where=_place(spec, text))
    if isinstance(error, PySparkException | Py4JError):
        return _failed_query(error, spec, text)
    return RefreshError(f"{type(error).__name__}: {_sentence(text)}", where=str(spec.name))


def _not_stored(columns: str) -> str:
    """The sentence about columns of types that Delta has not, as it lists them: `a: IntervalType(..), b: ..`."""
    names = ", ".join(name for name in re.findall(r"(\w+): \w*(?:Type|Interval)\w*", columns)) or columns
    if "Interval" in columns:
        return (
            f"column {names} is an INTERVAL, such as the difference of two times, and a table cannot store one. Make a "
            "number of it, such as timestampdiff(SECOND, a, b), or a text by CAST(.. AS STRING)."
        )
    return f"a table cannot store columns of such a type: {columns}. Cast them, such as to STRING."


def _of_extension(error: ExtensionFailedError, spec: Spec, cancellation: Cancellation) -> FreshlineError:
    """The error of an extension, unless it says no more than that the refresh was cancelled, or the disk is full."""
    cause = error.__cause__
    if cancellation.cancelled:
        return CancelledError("the request was cancelled; nothing of it was committed", where=str(spec.name))
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return translate(cause, spec, cancellation)
    if error.where is not None:
        return error
    placed = ExtensionFailedError(error.package, error.method, error.sentence, where=where_of(spec))
    placed.__cause__ = cause
    return placed


def _in_task(spec: Spec, text: str) -> ExtensionFailedError | None:
    """The error for a function of another package that raised in a task of Spark, which sends its traceback as text."""
    frames = FRAME.findall(text)
    for kind in extensions_of(spec) if frames else ():
        own = [(file, line, name) for file, line, name in frames if is_file_of(file, kind)]
        if own:
            file, line, name = own[-1]
            raised = RAISED.findall(text[text.rindex(f'"{file}", line {line}') :])
            said = raised[0] if raised else "an exception"
            return broken(kind, name, f"raised {said} ({Path(file).name}:{line}) in a task of Spark", spec)
    return None


def _repeated_key(spec: Spec | None, text: str) -> ExtensionFailedError | None:
    """The error for a merge of another package that gives two rows for a key."""
    found = text.find(f"{REPEATED} ")
    if found < 0:
        return None
    try:
        told, end = json.JSONDecoder().raw_decode(text[found + len(REPEATED) + 1 :])
        key, end = json.JSONDecoder().raw_decode(text[found + len(REPEATED) + 1 + end + 1 :])
    except ValueError:
        return None
    shown = ", ".join(f"{name} = {value!r}" for name, value in key.items())
    several = "no row that has a key" if None in key.values() else "more than one row"
    return ExtensionFailedError(
        told["package"],
        told["method"],
        f"gives {several} for the key {shown}",
        where=told["where"] if spec is None else where_of(spec),
    )


def extensions_of(spec: Spec) -> tuple[type[Any], ...]:
    """The classes of other packages that a table or source is declared with."""
    used: list[object] = []
    if isinstance(spec, SourceSpec):
        used = [spec.connection, *(each for each in (spec.format, spec.key and spec.key.format) if each is not None)]
    elif spec.merge is not None:
        used = [spec.merge]
    return tuple(type(each) for each in used if not is_own(type(each)))


def _failed_query(error: PySparkException | Py4JError, spec: Spec, text: str) -> FreshlineError:
    """The error for a query that Spark began to run."""
    if isinstance(error, PySparkException):
        return QueryError(f"the query failed while it ran: {_sentence(text)}", where=_place(spec, text))
    causes = CAUSE.findall(text)
    if causes:
        return QueryError(f"the query failed while it ran: {in_own_words(causes[-1])}", where=_place(spec, text))
    return RefreshError(f"Spark failed: {_sentence(text)}", where=str(spec.name))


def _told(spec: Spec, text: str) -> FreshlineError | None:
    """The error for what functions of freshline, or of other packages, say of the rows; None where none says anything.

    Those of freshline come first: they run functions of others.
    """
    found = (each(spec, text) for each in (_two_versions, _pattern, _process, _model, _repeated_key, _in_task))
    return next((each for each in found if each is not None), None)


def _two_versions(spec: Spec, text: str) -> AsOfDuplicateError | None:
    """The error for two versions of one key and time, where an as-of join of the query reports them."""
    found = TWO_VERSIONS.search(text)
    if found is None or not isinstance(spec, TableSpec):
        return None
    joins = {join.number: join for join in spec.query.as_of_joins}
    join = joins.get(int(found[1]))
    return None if join is None else AsOfDuplicateError(str(spec.name), str(join.table), found[2])


def _pattern(spec: Spec, text: str) -> PatternError | None:
    """The error that the rows of a MATCH_RECOGNIZE showed."""
    found = MATCHED.search(text)
    if found is None:
        return None
    code, told = found[1], found[2].strip()
    where = f"{spec.name} ({_place(spec, '')})"
    if code == PatternBudgetError.code:
        return PatternBudgetError(
            f"a partition of {told} rows can be matched in more ways than are tried. Make PATTERN, or the "
            "conditions of DEFINE, leave fewer, for example with WITHIN, or partition by more columns.",
            where=where,
        )
    if code == PatternSkipError.code:
        way, _, row = told.partition(" ")
        why = "is the row with which the match began" if way == "began" else "is not in the match"
        return PatternSkipError(
            f"the row that AFTER MATCH SKIP TO names {why}, for the match from row {int(row) + 1} of its partition on. "
            "Skip to a variable that every match has behind its first row, to the next row, or past the last row.",
            where=where,
        )
    return PatternExpressionError(
        f"a condition of DEFINE on the rows matched so far compares or adds what cannot be: {told}. Cast one of them.",
        where=where,
    )


def _process(spec: Spec, text: str) -> ProcessFailedError | PythonLimitError | None:
    """The error of a class of `freshline.process` for a key."""
    if not isinstance(spec, TableSpec) or not isinstance(spec.query, PythonQuery) or spec.query.process is None:
        return None
    found = PROCESSED.search(text)
    if found is None and WORKER_ENDED in text:
        said = "ended its process: one call takes longer than its limit of time, or more memory than there is"
        return PythonLimitError(str(spec.name), spec.query.function, said, where=str(spec.written_at))
    if found is None:
        return None
    try:
        told = json.loads(found[1])
    except json.JSONDecodeError:
        return None
    query = spec.query
    where = f"{query.path}:{told['line'] or spec.written_at.line}"
    if told["code"] == PythonLimitError.code:
        return PythonLimitError(str(spec.name), query.function, told["sentence"], where=where)
    return ProcessFailedError(
        f"the class {query.function} of {spec.name}: {told['sentence']}. Correct it.", where=where
    )


def _model(spec: Spec, text: str) -> ModelError | None:
    """The error that ml_predict found in the rows or in the model."""
    found = PREDICTED.search(text)
    if found is None:
        return None
    told = found[1].strip().rstrip(".")
    return ModelError(
        f"ml_predict cannot give these values to the model: {told}. Cast them, or name another model.",
        where=f"{spec.name} ({_place(spec, '')})",
    )


def translate_statement(error: Exception) -> FreshlineError:
    """The error to report for a statement that a person typed."""
    if isinstance(error, ForbiddenQueryError):
        return ForbiddenStatementError(error.message)
    if isinstance(error, FreshlineError):
        return error
    if _spark_has_ended(error):
        return EngineError(
            "the engine's Spark ended while it worked on the statement. Ask again; if it ends each time, the statement "
            "needs more memory than the setting driver-memory gives."
        )
    text = str(error)
    repeated = _repeated_key(None, text)
    if repeated is not None:
        return repeated
    if isinstance(error, AnalysisException | ParseException):
        return RequestError(f"Spark refuses the statement: {_sentence(text)}")
    causes = CAUSE.findall(text)
    return RequestError(f"the statement failed while it ran: {causes[-1] if causes else _sentence(text)}")


def _spark_has_ended(error: Exception) -> bool:
    """Whether there is no JVM any more: a call that was under way gets no answer, the next ones find nobody."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return True
    text = str(error)
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError) and NO_ANSWER.fullmatch(text):
        return True
    return "SparkContext was shut down" in text


def _sentence(text: str) -> str:
    """The first meaningful line of a message, without Java's stack and class names in front."""
    for line in text.split("\n"):
        line = line.strip()
        if not line or line.startswith(("at ", "An error occurred while calling", "JVM stacktrace")):
            continue
        line = re.sub(r"^:?\s*(?:[\w$]+\.)+[\w$]*(?:Exception|Error):\s*", "", line).lstrip(": ")
        line = in_own_words(line)
        if line:
            return line if len(line) <= 500 else line[:497] + "..."
    return "no message"


def _place(spec: Spec, text: str) -> str:
    """The file and line that Spark's message points into, or the table's name."""
    if isinstance(spec, TableSpec) and isinstance(spec.query, SqlQuery):
        match = re.search(r"\(line (\d+), pos \d+\)|line (\d+) pos \d+|== SQL \(line (\d+)", text)
        line = next((int(group) for group in match.groups() if group), 1) if match else 1
        return f"{spec.written_at.path}:{spec.query.line + line - 1}"
    return str(spec.written_at)

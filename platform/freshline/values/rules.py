"""The rules that a declaration can break, each with a stable code, and how breaches are collected.

Programs may rely on the codes; people read the sentences. A code that is not in `RULES` cannot be raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from freshline.errors import DeclarationError, DeclarationErrors, ExtensionFailedError
from freshline.values.location import Location

RULES: dict[str, str] = {
    "SEVERAL": "Several declarations break rules; each is listed with its own code.",
    "FILE": "A declaration file is readable and UTF-8, and lies in the folder of declarations or one folder below it.",
    "SYNTAX": "A declaration must follow the grammar of CREATE MATERIALIZED TABLE, CREATE SOURCE or CREATE MODEL.",
    "NO_DECLARATION": "A file in the folder of declarations must declare one table or source.",
    "TWO_DECLARATIONS": "A file declares exactly one table or source.",
    "NAME": "A name is `name` or `namespace.name`, of letters, digits and underscores, up to 128 each.",
    "FILE_NAME": "The file of `namespace.name` is `namespace/name.sql` or `namespace/name.py`.",
    "RESERVED_NAME": "Names that freshline uses for its own tables and columns cannot be declared.",
    "DUPLICATE_NAME": "A name is declared once, in any letter case.",
    "PATH_COLLISION": "Two names must not lie in the same folder of the warehouse.",
    "DUPLICATE_CLAUSE": "A clause or option is written once.",
    "WATERMARK": "A watermark is for a column of the type TIMESTAMP, less an interval.",
    "CONSTRAINT": "A constraint is one condition over the columns of a row, under a name of its own.",
    "NOT_BUILT": "A clause or option that this version does not have is refused, never ignored.",
    "FRESHNESS_VALUE": "A freshness is a positive whole number of seconds, minutes, hours or days.",
    "FRESHNESS_UPSTREAM": "A table cannot be fresher than what drives it.",
    "FRESHNESS_DOWNSTREAM": "FRESHNESS = DOWNSTREAM needs a consumer with a freshness.",
    "REFRESH_MODE": "REFRESH_MODE is AUTO, CONTINUOUS, INCREMENTAL or BATCH, and one that the query can be kept in.",
    "UNKNOWN_OPTION": "An option in WITH must be one of the documented list.",
    "OPTION_VALUE": "An option must have a value that it accepts.",
    "OPTION_NEEDS": "Some options need another option or clause beside them.",
    "EXTENSION": "An extension of another package is in one installed package, loads, and can be declared.",
    "REFERENCE": "`${env:NAME}` and `${file:path}` must name something that is there.",
    "COLUMN_TYPE": "A column of a source has one of Spark's types, which records of its format can give.",
    "COLUMN_NAME": "The name of a column has no tab or line end; in PARTITIONED BY no blank , ; { } ( ) =.",
    "DUPLICATE_COLUMN": "A column name occurs once, in any letter case.",
    "METADATA": "METADATA FROM names something that the connector knows beside the record.",
    "PRIMARY_KEY": "PRIMARY KEY names columns of the table.",
    "CHANGE_KEY": "A change feed has a PRIMARY KEY that names the row, and a table by its changes has the same key.",
    "DELIVERY": "A message that a queue sends again can be recognized, or the declaration accepts repeated rows.",
    "PARTITION_COLUMN": "PARTITIONED BY names columns of the query, and leaves some.",
    "CLUSTER_COLUMN": "CLUSTER BY names up to four columns of the query, and stands without PARTITIONED BY.",
    "MERGE_QUERY": "A merge is declared over one plain SELECT of one input.",
    "MERGE_EXPRESSION": "Merge options are single SQL expressions over columns that the query reads or yields.",
    "MERGE_ARRIVAL": "Order of arrival is known only of log tables.",
    "MERGE_GROUP": "A group of a partial update is `a, b BY s1, s2`, and each column beside the key follows one order.",
    "MERGE_AGGREGATE": "Each column beside the key has one function, which takes the values of the column.",
    "QUERY_SYNTAX": "The query must parse as Spark SQL.",
    "QUERY_KIND": "The query is one SELECT.",
    "QUERY_INPUT": "A query reads declared tables and sources by name, never files, paths or versions.",
    "QUERY_FUNCTION": "A query calls functions that compute from its rows: none that runs code or opens files.",
    "WINDOW_SIZE": "A window has a positive size, which is a multiple of its slide or step.",
    "WINDOW_TIME": "Rows are put into windows by a column of the type TIMESTAMP, in a time zone that is known.",
    "COUNT_ORDER": "Rows are counted in an order in which no two are equal: it has the PRIMARY KEY.",
    "ASOF_TIME": "An as-of join meets versions that have a time, at the time of the row: WATERMARK FOR, and rows.time.",
    "PATTERN_SYNTAX": "MATCH_RECOGNIZE has its clauses, each once, in their order, and PATTERN is a pattern.",
    "PATTERN_VARIABLE": "The variables of MATCH_RECOGNIZE are those of PATTERN, and of SUBSET.",
    "PATTERN_EMPTY_SKIP": "AFTER MATCH SKIP TO names a row behind the one with which the match began.",
    "PATTERN_EXPRESSION": "Expressions of MATCH_RECOGNIZE are over the rows of one variable each.",
    "GRAPH": "A graph function is read by one plain SELECT, over edges whose ends are nodes of one type.",
    "FINAL_INPUT": "EMIT FINAL is for rows, or windows, that the rows of log tables give and that never change.",
    "WATERMARK_MISSING": "Windows of EMIT FINAL, and timers, are by the WATERMARK FOR column of a log table.",
    "LATENESS": "ALLOWED LATENESS is an interval of whole seconds, and stands without WHEN.",
    "EMIT_WHEN": "The condition of EMIT FINAL .. WHEN is over one row of the result, and over watermark().",
    "SINK_KEY": "A sink that finds rows by their key is of a table with a PRIMARY KEY.",
    "SINK_SCHEMA": "A sink can have columns of these names together.",
    "SINK_TABLE": "A sink sends the rows of a table, and no table reads a sink.",
    "SINK_TYPE": "A sink can have values of the types of its table.",
    "SIDE_OUTPUT": "A side output is a declared one, of rows that are neither folded, looked up nor final.",
    "PROCESS_KEY": "Python tells the keys of a class apart as Spark does, and the table's columns take their values.",
    "PROCESS_ORDER": "The rows of a key come in an order of columns of the input, the time first where timers are set.",
    "PROCESS_CLOCK": "A class of freshline.process asks no clock: its timers are times of events.",
    "PROCESS_STATE": "A class of freshline.process declares the attributes of its instances, with their types.",
    "MODEL": "A model is an ONNX file that is there, and ml_predict gives it one value for each of its inputs.",
    "DUPLICATE_ALIAS": "Inputs of one FROM have different aliases.",
    "LOOKUP": "A lookup join is an INNER or LEFT JOIN on equalities with columns of the dimension.",
    "LOOKUP_ONLY": "A source with 'lookup' = 'true' is read by lookup joins on exactly its PRIMARY KEY, row by row.",
    "DELTA_JOIN": "A join that is to be kept up by its changes has changes that can be followed.",
    "VERSION_OF": "version_of(d) names the alias of a lookup join.",
    "UNKNOWN_COLUMN": "A column in the query is one of its inputs.",
    "AMBIGUOUS_COLUMN": "A column without a qualifier belongs to one input only.",
    "UNNAMED_COLUMN": "A computed column has a name, given with AS.",
    "COLUMNS_UNKNOWN": "`*` is written only where the columns of the input are known.",
    "CYCLE": "Tables do not read each other in a circle.",
    "UNKNOWN_UPSTREAM": "A query reads declared tables and sources only.",
    "NON_DRIVING": "`non-driving` names inputs of the query, and leaves one that drives.",
    "REQUIRES_HISTORY": "`requires-history` names inputs of the query that are no dimensions of lookup joins.",
    "PYTHON_FILE": "A declaration in Python loads without an error.",
    "PYTHON_LIMIT": "A declaration in Python loads within the project's limits of time and memory.",
    "YAML_DECLARATION": "A table in YAML has a name, a query, and other fields only of the documented list.",
    "PYTHON_DECLARATION": "freshline.table, process and source are called with the arguments that they document.",
}


class Problems:
    """Collects problems, so that all of them are reported at once."""

    def __init__(self) -> None:
        self._errors: list[DeclarationError] = []

    def add(self, rule: str, message: str, at: Location) -> None:
        self._errors.append(declaration_error(rule, message, at))

    def extend(self, error: DeclarationError) -> None:
        """Take over an error that was raised; several in one are taken over one by one."""
        self._errors.extend(error.errors if isinstance(error, DeclarationErrors) else [error])

    @property
    def errors(self) -> tuple[DeclarationError, ...]:
        """All errors, each once, in the order of file and line."""
        return tuple({str(e): e for e in sorted(self._errors, key=_place)}.values())

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextmanager
    def of_extensions(self, at: Location) -> Iterator[None]:
        """Raise DeclarationErrors with all that was added where an extension fails, which is then one of them."""
        try:
            yield
        except ExtensionFailedError as error:
            self.add("EXTENSION", error.message, at)
            self.raise_all()

    def raise_all(self) -> None:
        """Raise DeclarationErrors if anything was added."""
        if self._errors:
            raise DeclarationErrors(self.errors)


def declaration_error(rule: str, message: str, at: Location) -> DeclarationError:
    """The error for a broken rule; the rule must be one of RULES."""
    if rule not in RULES:
        raise KeyError(f"{rule} is not one of the rules")
    return DeclarationError(rule, message, where=str(at))


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean x?` for the nearest of the known names, or nothing when none is near."""
    from difflib import get_close_matches  # loaded only when something is wrong

    folded: dict[str, str] = {candidate.lower(): candidate for candidate in known}
    close: Sequence[str] = get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f" Did you mean {folded[close[0]]}?" if close else ""


def _place(error: DeclarationError) -> tuple[str, int]:
    path, _, line = (error.where or "").rpartition(":")
    return (path, int(line)) if line.isdigit() else (error.where or "", 0)

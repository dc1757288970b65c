"""From the clauses of CREATE SOURCE to a SourceSpec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from freshline.declare.clauses import Declaration, SourceClauses
from freshline.declare.freshness import Freshness
from freshline.declare.location import Location
from freshline.declare.names import REFUSED_IN_COLUMN, RESERVED_COLUMN
from freshline.declare.options import SOURCE_OPTIONS, SOURCE_OPTIONS_NOT_BUILT, Options
from freshline.declare.rules import Problems, breach, nearest
from freshline.declare.spec import Column, Constraint, SourceSpec, Watermark

CONNECTORS = ("files", "delta")
CONNECTORS_NOT_BUILT = (
    "kafka",
    "jdbc",
    "postgres",
    "mysql",
    "debezium",
    "rabbitmq",
    "kinesis",
    "elasticsearch",
    "clickhouse",
    "hdfs",
    "hive",
)
FORMATS = ("json", "csv")
FORMATS_NOT_BUILT = ("avro", "protobuf", "parquet", "debezium", "debezium-json", "orc", "xml", "text")
# What a file source knows beside the record, with the types in which it knows it.
METADATA = {"ingested_at": "TIMESTAMP", "file": "STRING", "record": "BIGINT"}
METADATA_NOT_BUILT = ("topic", "partition", "offset", "timestamp", "key", "headers")
FILES_ONLY = ("format", "settle", "header", "null-value", "deduplicate", "max-record-bytes", "history")

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def declare_source(clauses: SourceClauses) -> Declaration:
    """Judge a source; raises DeclarationErrors with all that is wrong with it."""
    problems = Problems()
    at = clauses.written_at
    _check_connector(clauses)
    options = Options(clauses.options, at, problems, SOURCE_OPTIONS, SOURCE_OPTIONS_NOT_BUILT)
    options.refuse_references(but=("path",))
    connector = options.choice("connector", CONNECTORS)
    if "connector" not in options:
        problems.add("OPTION_NEEDS", "a source needs WITH ('connector' = 'files') or 'delta'.", at)
    path = options.text("path")
    if "path" not in options:
        problems.add("OPTION_NEEDS", "a source needs the option 'path': where its data is.", at)
    file_format = options.choice("format", FORMATS, FORMATS_NOT_BUILT)
    if connector == "files" and "format" not in options:
        problems.add("OPTION_NEEDS", "a source of files needs the option 'format': json or csv.", at)
    if connector == "delta":
        for key in FILES_ONLY:
            options.needs(key, "connector = files", False)
    elif file_format is not None:
        options.needs("header", "format = csv", file_format == "csv")
        options.needs("null-value", "format = csv", file_format == "csv")
    deduplicate: float | None = 7 * 86400.0
    if options.needs("deduplicate", "a PRIMARY KEY, which names the event", clauses.primary_key is not None):
        forever = (options.raw("deduplicate") or "").strip().lower() == "forever"
        deduplicate = None if forever else (options.seconds("deduplicate") or deduplicate)
    _check_columns(clauses, connector, problems)
    settle = options.seconds("settle", least=0)
    header = options.boolean("header")
    warn_after, fail_after = options.alert_seconds()
    spec = SourceSpec(
        name=clauses.name,
        connector=connector or "files",
        columns=tuple(column.value for column in clauses.columns),
        written_at=at,
        path=path or "",
        primary_key=_declared_case(clauses),
        freshness=_stated_freshness(clauses),
        comment=clauses.comment,
        format=file_format or "json",
        header=True if header is None else header,
        null_value=options.raw("null-value"),
        watermark=_watermark(clauses, problems),
        constraints=_constraints(clauses, connector, problems),
        settle_seconds=2.0 if settle is None else float(settle),
        deduplicate_seconds=deduplicate,
        max_record_bytes=options.whole("max-record-bytes", 1, 1024**3) or 4 * 1024 * 1024,
        history_seconds=options.seconds("history"),
        warn_after_seconds=warn_after,
        fail_after_seconds=fail_after,
        owner=options.text("owner"),
        group=options.text("group"),
        options=options.as_written,
    )
    problems.raise_all()
    lines = dict(options.lines)
    if clauses.primary_key is not None:
        lines["PRIMARY KEY"] = clauses.primary_key.line
    if spec.freshness is not None and clauses.freshness is not None:
        lines["FRESHNESS"] = clauses.freshness.line
    return Declaration(spec, lines)


def _constraints(clauses: SourceClauses, connector: str | None, problems: Problems) -> tuple[Constraint, ...]:
    if not clauses.constraints:
        return ()
    # Loads the parser, which a project that was read before does without.
    from freshline.declare.constraint import check_constraint_columns, check_constraints

    at = clauses.written_at
    for written in clauses.constraints if connector == "delta" else ():
        problems.add(
            "CONSTRAINT",
            f"CONSTRAINT {written.value.name}: a source that is read in place is not written, so no row of it can be "
            "judged. Declare the constraint on a table that reads it.",
            Location(at.path, written.line),
        )
    checked = check_constraints(clauses.constraints, at, problems)
    columns = tuple(column.value.name for column in clauses.columns if column.value.metadata is None)
    check_constraint_columns(clauses.constraints, columns, at.path, problems)
    return checked


def _watermark(clauses: SourceClauses, problems: Problems) -> Watermark | None:
    written = clauses.watermark
    if written is None:
        return None
    at = Location(clauses.written_at.path, written.line)
    name = written.value.column
    column = next((one.value for one in clauses.columns if one.value.name.lower() == name.lower()), None)
    if column is None:
        problems.add(
            "WATERMARK",
            f"WATERMARK FOR {name}, which is no column of the source."
            f"{nearest(name, [one.value.name for one in clauses.columns])}",
            at,
        )
    elif column.type not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        problems.add("WATERMARK", f"WATERMARK FOR {name}, which is {column.type}. It is for a TIMESTAMP.", at)
    else:
        return Watermark(column.name, written.value.delay_seconds)
    return None


def _check_connector(clauses: SourceClauses) -> None:
    """A connector that is not built has options of its own, of which nothing can be said."""
    written = clauses.options.get("connector")
    connector = written.value.strip().lower() if written else ""
    if written is not None and connector in CONNECTORS_NOT_BUILT:
        raise breach(
            "NOT_BUILT",
            f"'connector' = '{connector}' is not built yet. Built is {' or '.join(CONNECTORS)}.",
            Location(clauses.written_at.path, written.line),
        )


def resolve_path(declaration: Declaration, root: Path, environment: str, environ: Mapping[str, str]) -> str:
    """The absolute path, or the URI, of a source, with its references resolved.

    Raises DeclarationError for a reference to something that is not there.
    """
    spec = declaration.spec
    assert isinstance(spec, SourceSpec)
    at = declaration.at("path")

    def resolve(match: re.Match[str]) -> str:
        if match[1] == "environment":
            return environment
        kind, _, what = match[1].partition(":")
        if kind == "env" and what:
            value = environ.get(what)
            if not value:
                raise breach("REFERENCE", f"${{env:{what}}}: there is no environment variable {what}. Set it.", at)
            return value
        if kind == "file" and what:
            file = root / what
            try:
                return file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8"
                raise breach("REFERENCE", f"${{file:{what}}}: {file} cannot be read: {reason}.", at) from error
        raise breach(
            "REFERENCE",
            f"{match[0]} is not a reference. References are ${{environment}}, ${{env:NAME}} and ${{file:path}}.",
            at,
        )

    path = _REFERENCE.sub(resolve, spec.path)
    if _SCHEME.match(path):
        return path
    return os.path.normpath(root / Path(path).expanduser())


def _stated_freshness(clauses: SourceClauses) -> Freshness | None:
    """DOWNSTREAM is what a source has anyway."""
    value = clauses.freshness.value if clauses.freshness else None
    return value if isinstance(value, Freshness) else None


def _declared_case(clauses: SourceClauses) -> tuple[str, ...]:
    """The key's columns in the spelling of the column list."""
    if clauses.primary_key is None:
        return ()
    spelling = {column.value.name.lower(): column.value.name for column in clauses.columns}
    return tuple(spelling.get(name.lower(), name) for name in clauses.primary_key.value)


def _check_columns(clauses: SourceClauses, connector: str | None, problems: Problems) -> None:
    at = clauses.written_at
    for written in clauses.columns:
        column = written.value
        here = Location(at.path, written.line)
        if column.name.lower().startswith(RESERVED_COLUMN):
            problems.add(
                "RESERVED_NAME",
                f"column {column.name}: names that begin with {RESERVED_COLUMN} are freshline's own. Take another.",
                here,
            )
        if connector == "files" and REFUSED_IN_COLUMN.search(column.name):
            problems.add(
                "COLUMN_NAME",
                f"column `{column.name}` has a character that Delta refuses in names (blank , ; {{ }} ( ) =). "
                "Take another name.",
                here,
            )
        if column.metadata is not None:
            _check_metadata(column, connector, problems, here)
    if clauses.columns and all(column.value.metadata is not None for column in clauses.columns):
        problems.add("METADATA", "all columns are METADATA; a source has at least one column of the record.", at)
    if clauses.primary_key is not None:
        known = {column.value.name.lower(): column.value for column in clauses.columns}
        here = Location(at.path, clauses.primary_key.line)
        for name in clauses.primary_key.value:
            column_ = known.get(name.lower())
            if column_ is None:
                names = [column.name for column in known.values()]
                problems.add(
                    "PRIMARY_KEY",
                    f"PRIMARY KEY names {name}, which is not a column.{nearest(name, names)} "
                    f"Columns are {', '.join(names)}.",
                    here,
                )
            elif column_.metadata is not None:
                problems.add(
                    "PRIMARY_KEY", f"PRIMARY KEY names {name}, which is METADATA. Name columns of the record.", here
                )
            elif column_.type.startswith("MAP<"):
                problems.add("PRIMARY_KEY", f"PRIMARY KEY names {name}, a MAP, which cannot be compared.", here)


def _check_metadata(column: Column, connector: str | None, problems: Problems, here: Location) -> None:
    key = (column.metadata or "").lower()
    if connector == "delta":
        problems.add("METADATA", f"column {column.name}: connector delta knows nothing beside the record.", here)
    elif key in METADATA_NOT_BUILT:
        problems.add(
            "NOT_BUILT", f"column {column.name}: METADATA FROM '{key}' is of queues, which are not built yet.", here
        )
    elif key not in METADATA:
        problems.add(
            "METADATA",
            f"column {column.name}: there is no METADATA '{column.metadata}'.{nearest(key, METADATA)} "
            f"Files have {', '.join(METADATA)}.",
            here,
        )
    elif column.type != METADATA[key]:
        problems.add(
            "METADATA", f"column {column.name}: METADATA FROM '{key}' is {METADATA[key]}, not {column.type}.", here
        )

"""From the clauses of CREATE SOURCE to a SourceSpec."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from freshline.declare.clauses import Declaration, SourceClauses
from freshline.declare.folders import unfit
from freshline.declare.freshness import Freshness
from freshline.declare.location import Location
from freshline.declare.names import REFUSED_IN_COLUMN, RESERVED_COLUMN
from freshline.declare.options import KAFKA_OPTION, SOURCE_OPTIONS, SOURCE_OPTIONS_NOT_BUILT, Options
from freshline.declare.rules import Problems, breach, nearest
from freshline.declare.secret import REFERENCE
from freshline.declare.spec import Column, Constraint, KafkaTopic, SourceSpec, Watermark

CONNECTORS = ("files", "delta", "kafka")
CONNECTORS_NOT_BUILT = (
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
# What a source knows beside the record, with the types in which it knows it.
METADATA: Mapping[str, Mapping[str, str]] = {
    "files": {"ingested_at": "TIMESTAMP", "file": "STRING", "record": "BIGINT"},
    "kafka": {
        "ingested_at": "TIMESTAMP",
        "topic": "STRING",
        "partition": "INT",
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP",
        "key": "BINARY",
        "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    },
    "delta": {},
}
LOG_ONLY = ("format", "deduplicate", "max-record-bytes", "watermark.max-ahead", "history")
FILES_ONLY = ("settle", "follow-links", "header", "null-value")
KAFKA_ONLY = ("topic", "bootstrap.servers", "starting", "rate-limit", "accept-gap", "accept-topic")
# Properties of Kafka's client that freshline or Spark sets: another value would lose or repeat records.
KAFKA_OWN = (
    "bootstrap.servers",
    "group.id",
    "group.instance.id",
    "auto.offset.reset",
    "key.deserializer",
    "value.deserializer",
    "enable.auto.commit",
    "isolation.level",
    "interceptor.classes",
)
# Properties that hold a secret are references.
KAFKA_SECRET = re.compile(r"(password|jaas\.config|secret|keystore\.key|token)\Z")

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_GAP = re.compile(r"([0-9]{1,9}):([0-9]{1,18})-([0-9]{1,18})")
# Two letters at least, so that no drive of Windows is one; what follows is no part of a name with a colon in it.
_LANDING_SCHEME = re.compile(
    r"(?:[a-z][a-z0-9+.-]+:(?=/)|(?:file|dbfs|hdfs|s3|s3a|s3n|gs|abfs|abfss|wasb|wasbs):)", re.IGNORECASE
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def declare_source(clauses: SourceClauses) -> Declaration:
    """Judge a source; raises DeclarationErrors with all that is wrong with it."""
    problems = Problems()
    at = clauses.written_at
    _check_connector(clauses)
    options = Options(clauses.options, at, problems, SOURCE_OPTIONS, SOURCE_OPTIONS_NOT_BUILT, (KAFKA_OPTION,))
    options.refuse_references(but=("path", "topic", "bootstrap.servers", KAFKA_OPTION))
    connector = options.choice("connector", CONNECTORS)
    if "connector" not in options:
        problems.add("OPTION_NEEDS", "a source needs WITH ('connector' = 'files'), 'kafka' or 'delta'.", at)
    path = options.text("path")
    file_format = options.choice("format", FORMATS, FORMATS_NOT_BUILT)
    _check_options(options, connector, file_format, problems, at)
    kafka = _declare_kafka(options, file_format, problems, at) if connector == "kafka" else None
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
        follow_links=bool(options.boolean("follow-links")),
        max_ahead_seconds=_max_ahead(clauses, options),
        history_seconds=options.seconds("history"),
        warn_after_seconds=warn_after,
        fail_after_seconds=fail_after,
        owner=options.text("owner"),
        group=options.text("group"),
        options=options.as_written,
        kafka=kafka,
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


def _check_options(
    options: Options, connector: str | None, record_format: str | None, problems: Problems, at: Location
) -> None:
    """Each connector has what it needs, and no option of another one."""
    if connector == "kafka":
        options.needs("path", "connector = files or delta", False)
    else:
        if "path" not in options:
            problems.add("OPTION_NEEDS", "a source needs the option 'path': where its data is.", at)
        for key in (*KAFKA_ONLY, *(f"{KAFKA_OPTION}{name}" for name in options.beginning(KAFKA_OPTION))):
            options.needs(key, "connector = kafka", False)
    if connector == "files" and "format" not in options:
        problems.add("OPTION_NEEDS", "a source of files needs the option 'format': json or csv.", at)
    if connector == "delta":
        for key in LOG_ONLY:
            options.needs(key, "connector = files or kafka", False)
    if connector in ("delta", "kafka"):
        for key in FILES_ONLY:
            options.needs(key, "connector = files", False)
    elif record_format is not None:
        options.needs("header", "format = csv", record_format == "csv")
        options.needs("null-value", "format = csv", record_format == "csv")


def _declare_kafka(options: Options, record_format: str | None, problems: Problems, at: Location) -> KafkaTopic:
    for key, what in (("topic", "the topic's name"), ("bootstrap.servers", "the brokers, as host:port")):
        if key not in options:
            problems.add("OPTION_NEEDS", f"a source of Kafka needs the option '{key}': {what}.", at)
    if "format" not in options:
        problems.add("OPTION_NEEDS", "a source of Kafka needs the option 'format': json.", at)
    elif record_format not in (None, "json"):
        problems.add("NOT_BUILT", "'format' = 'csv' is of files. Built for Kafka is json.", options.at("format"))
    client = options.beginning(KAFKA_OPTION)
    for name, value in client.items():
        key = f"{KAFKA_OPTION}{name}"
        if name in KAFKA_OWN:
            problems.add(
                "OPTION_VALUE", f"option '{key}': freshline sets {name} itself. Remove the option.", options.at(key)
            )
        elif KAFKA_SECRET.search(name) and not REFERENCE.match(value):
            problems.add(
                "REFERENCE",
                f"option '{key}' is a secret and is not written in a declaration. "
                "Write ${env:NAME} or ${file:path}, which names where it is.",
                options.at(key),
            )
    for key in ("topic", "bootstrap.servers", *(f"{KAFKA_OPTION}{name}" for name in client)):
        text = options.raw(key) or ""
        if "${" in text and not REFERENCE.match(text):
            problems.add(
                "REFERENCE",
                f"option '{key}': a reference is the whole value, ${{env:NAME}} or ${{file:path}}.",
                options.at(key),
            )
    return KafkaTopic(
        topic=options.text("topic") or "",
        servers=options.text("bootstrap.servers") or "",
        starting=_starting(options),
        rate_limit=options.whole("rate-limit", 1, 10**9),
        accepted_gaps=_accepted_gaps(options),
        accepted_topic=options.text("accept-topic"),
        client=client,
    )


def _starting(options: Options) -> str:
    text = options.text("starting")
    if text is None or text.lower() in ("earliest", "latest"):
        return (text or "earliest").lower()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        options.refuse("starting", "earliest, latest or a time such as 2026-11-01 00:00:00 (UTC unless it says)")
        return "earliest"
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _accepted_gaps(options: Options) -> tuple[tuple[int, int, int], ...]:
    text = options.text("accept-gap")
    found = []
    for part in [] if text is None else text.split(","):
        match = _GAP.fullmatch(part.strip())
        if match is None or int(match[2]) >= int(match[3]):
            options.refuse("accept-gap", "what OFFSETS_LOST shows, partition:from-to, several with commas")
            return ()
        found.append((int(match[1]), int(match[2]), int(match[3])))
    return tuple(found)


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


def _max_ahead(clauses: SourceClauses, options: Options) -> float:
    options.needs("watermark.max-ahead", "a WATERMARK, which names the column", clauses.watermark is not None)
    stated = options.seconds("watermark.max-ahead", least=0)
    return 86_400.0 if stated is None else float(stated)


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
    """The absolute path, or the URI, of a source, with its references resolved; empty for a topic.

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

    if spec.kafka is not None:
        # Its references may be secrets: they are resolved where they are used, and kept nowhere.
        return ""
    path = _REFERENCE.sub(resolve, spec.path)
    if spec.connector == "files":
        _check_landing_path(path, spec.path, at)
    elif _SCHEME.match(path):
        return path
    try:
        folder = os.path.normpath(root / Path(path).expanduser())
        if spec.connector == "delta":
            _check_table_folder(folder, at)
        return folder
    except RuntimeError as error:
        raise breach(
            "OPTION_VALUE", f"option 'path': '{path}' names the home of somebody unknown. Write the whole path.", at
        ) from error


def check_landing_folder(declaration: Declaration, path: str, warehouse: Path) -> None:
    """Refuse landing files among the tables of the warehouse, and a file where a folder is asked for."""
    spec = declaration.spec
    if not isinstance(spec, SourceSpec) or spec.connector != "files":
        return
    at, folder = declaration.at("path"), Path(path)
    if folder.is_relative_to(warehouse):
        raise breach(
            "OPTION_VALUE",
            f"option 'path': {path} is in the warehouse {warehouse}. Let files land in a folder outside.",
            at,
        )
    if folder.is_file():
        raise breach("OPTION_VALUE", f"option 'path': {path} is a file. Write the folder in which files land.", at)


def _check_table_folder(folder: str, at: Location) -> None:
    character = unfit(folder, written=False)
    if character is not None:
        raise breach(
            "OPTION_VALUE",
            f"option 'path': {folder} has {character!r} in it, and would be taken for another folder. Read the table "
            "by a path without it.",
            at,
        )


def _check_landing_path(path: str, written: str, at: Location) -> None:
    """Refuse a path that would be taken for another one: landing files are read from folders of this machine."""
    scheme = _LANDING_SCHEME.match(path)
    if scheme is not None:
        local = (
            path[scheme.end() :].removeprefix("//localhost") if scheme[0].lower() == "file:" and path == written else ""
        )
        instead = f"'{'/' + local.lstrip('/')}'" if local.strip("/") else "the path at which it is mounted"
        raise breach(
            "OPTION_VALUE",
            f"option 'path': '{written}' begins with {scheme[0]}, and files are read from folders of this machine. "
            f"Write {instead}.",
            at,
        )
    if not path.strip():
        raise breach("OPTION_VALUE", "option 'path' is empty. Write the folder in which files land.", at)
    if "\0" in path:
        raise breach("OPTION_VALUE", "option 'path' has a NUL character, which no path has. Remove it.", at)


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
        if connector in ("files", "kafka") and REFUSED_IN_COLUMN.search(column.name):
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
    known = METADATA[connector or "files"]
    if not known:
        problems.add("METADATA", f"column {column.name}: connector {connector} knows nothing beside the record.", here)
    elif key not in known:
        problems.add(
            "METADATA",
            f"column {column.name}: there is no METADATA '{column.metadata}'.{nearest(key, known)} "
            f"A source of {connector or 'files'} has {', '.join(known)}.",
            here,
        )
    elif column.type.upper() != known[key].upper():
        problems.add(
            "METADATA", f"column {column.name}: METADATA FROM '{key}' is {known[key]}, not {column.type}.", here
        )

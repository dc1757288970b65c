"""From the clauses of CREATE SOURCE to a SourceSpec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from freshline.sql.clauses import Declaration, SourceClauses
from freshline.sql.versions import check_version_columns, read_versions
from freshline.values.change import CHANGE_METADATA, Tombstones
from freshline.values.connector import WITH_WATERMARK, Connector, Metadata
from freshline.values.format import Format
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.lookup import KEY_TYPE, OF_EVERY_ANSWER, Lookup
from freshline.values.names import RESERVED_COLUMN, column_mistake
from freshline.values.options import (
    LOG_OPTIONS,
    SOURCE_OPTIONS,
    Carrier,
    Options,
    join_words,
)
from freshline.values.registry import (
    CONNECTOR_GROUP,
    CONNECTORS,
    CONNECTORS_NOT_BUILT,
    FORMAT_GROUP,
    FORMATS,
    FORMATS_NOT_BUILT,
    LOOKUP_GROUP,
    LOOKUPS,
    declared_extension,
    find_connector,
    find_format,
    find_lookup,
    names_outside,
    shipped_connectors,
    shipped_formats,
    shipped_lookups,
)
from freshline.values.rules import Problems, declaration_error, nearest
from freshline.values.spec import Column, Constraint, RecordKey, SourceSpec, Watermark


def declare_source(clauses: SourceClauses) -> Declaration:
    """Judge a source; raises DeclarationErrors with all that is wrong with it."""
    problems = Problems()
    at = clauses.written_at
    written = clauses.options.get("connector")
    connector = None if written is None else _connector(written.value.strip().lower(), at, written.line, clauses)
    written = clauses.options.get("format")
    record_format = None if written is None else _format(written.value.strip().lower(), at, written.line, problems)
    if connector is not None and connector.record_format is not None:
        record_format = find_format(connector.record_format)
    written = clauses.options.get("key.format")
    key_format = None if written is None else _format(written.value.strip().lower(), at, written.line, problems)
    connectors = (*shipped_connectors(), *shipped_lookups(), connector)
    own = [option for each in connectors if each is not None for option in each.options]
    own += [option for of in (*shipped_formats(), record_format) if of is not None for option in of.options]
    known = tuple(dict.fromkeys(option.name for option in (*SOURCE_OPTIONS, *own) if not option.is_beginning))
    beginnings = tuple(dict.fromkeys(option.name for option in own if option.is_beginning))
    options = Options(clauses.options, at, problems, known, beginnings)
    options.refuse_references(but=tuple(dict.fromkeys(option.name for option in own if option.may_refer)))
    if "connector" not in options:
        named = " or ".join(f"'{name}'" for name in CONNECTORS if name != "files")
        problems.add("OPTION_NEEDS", f"a source needs WITH ('connector' = 'files'), {named}.", at)
    connection = None
    options.boolean("lookup")
    if connector is not None:
        _check_options(options, connector, record_format, key_format, at)
        with problems.of_extensions(options.at("connector")):
            connection = connector.declare(options)
            for rule, key, sentence in connection.find_problems(has_key=clauses.primary_key is not None):
                problems.add(rule, sentence, options.at(key))
            if isinstance(connection, Lookup):
                _check_lookup(clauses, connection, options)
    upserts = options.choice("changes", ("upsert",)) is not None
    deduplicate: float | None = 7 * 86400.0
    if upserts or (connector is not None and not connector.delivers_again):
        options.require("deduplicate", "a source that may send an event again", False)
    elif options.require("deduplicate", "a PRIMARY KEY, which names the event", clauses.primary_key is not None):
        forever = (options.raw("deduplicate") or "").strip().lower() == "forever"
        deduplicate = None if forever else (options.seconds("deduplicate") or deduplicate)
    _check_columns(clauses, connector, _facts(connector, record_format, upserts=upserts), problems)
    key_columns = _key_columns(clauses, key_format, options)
    _check_records(clauses, record_format, key_format, key_columns, options, upserts=upserts)
    tombstones = _tombstones(options, upserts=upserts)
    with problems.of_extensions(options.at("format")):
        declared_format = None if record_format is None else record_format.declare(options)
        record_key = None if key_format is None else RecordKey(_declared_key(key_format, options), key_columns)
    largest = options.whole("max-record-bytes", 1, 1024**3)
    max_ahead, idle, follows_clock = _watermark_options(clauses, options)
    history, (warn_after, fail_after) = options.seconds("history"), options.alert_seconds()
    owner, group = options.text("owner"), options.text("group")
    watermark, constraints = _watermark(clauses, problems), _constraints(clauses, connector, problems)
    versions = read_versions(options, watermark, declared=clauses.watermark is not None)
    if versions is not None:
        for key, sentence in check_version_columns(versions, tuple(column.value.name for column in clauses.columns)):
            problems.add("OPTION_VALUE", sentence, options.at(key))
    problems.raise_all()
    assert connection is not None
    spec = SourceSpec(
        name=clauses.name,
        connection=connection,
        columns=tuple(column.value for column in clauses.columns),
        written_at=at,
        format=declared_format,
        key=record_key,
        upserts=upserts,
        tombstones=tombstones,
        primary_key=_declared_case(clauses),
        freshness=_stated_freshness(clauses),
        comment=clauses.comment,
        watermark=watermark,
        constraints=constraints,
        deduplicate_seconds=deduplicate,
        max_record_bytes=largest or 4 * 1024 * 1024,
        max_ahead_seconds=max_ahead,
        idle_seconds=idle,
        follows_clock=follows_clock,
        history_seconds=history,
        warn_after_seconds=warn_after,
        fail_after_seconds=fail_after,
        watermark_after_seconds=options.seconds("alert.watermark-after"),
        late_share=options.share("alert.late-rows-above"),
        versions=versions,
        owner=owner,
        group=group,
        options=options.as_written,
    )
    lines = dict(options.lines)
    if clauses.primary_key is not None:
        lines["PRIMARY KEY"] = clauses.primary_key.line
    if spec.freshness is not None and clauses.freshness is not None:
        lines["FRESHNESS"] = clauses.freshness.line
    return Declaration(spec, lines)


def _check_lookup(clauses: SourceClauses, lookup: Lookup, options: Options) -> None:
    """A source that is asked by key has a key that can be asked by, and columns that an answer can have."""
    problems, at = options.problems, clauses.written_at
    columns = {column.value.name.lower(): column for column in clauses.columns}
    if clauses.primary_key is None:
        problems.add("OPTION_NEEDS", "a source with 'lookup' = 'true' needs a PRIMARY KEY, by which it is asked.", at)
        return
    key = _declared_case(clauses)
    for name in key:
        column = columns.get(name.lower())
        if column is not None and not KEY_TYPE.match(column.value.type):
            problems.add(
                "COLUMN_TYPE",
                f"column {name} is {column.value.type}, by which nothing is asked. Columns of PRIMARY KEY are whole or "
                "decimal numbers, texts, booleans, dates or times.",
                Location(at.path, column.line),
            )
    for name in OF_EVERY_ANSWER:
        if name in columns:
            problems.add(
                "RESERVED_NAME",
                f"column {name}: the table of answers has a column of this name. Give the column another one.",
                Location(at.path, columns[name].line),
            )
    if clauses.watermark is not None:
        problems.add(
            "WATERMARK",
            "a source with 'lookup' = 'true' has no rows that arrive, and so no watermark. Remove WATERMARK FOR.",
            Location(at.path, clauses.watermark.line),
        )
    for rule, option, sentence in lookup.find_key_problems(key, [each.value.name for each in clauses.columns]):
        problems.add(rule, sentence, options.at(option))


def _check_records(
    clauses: SourceClauses,
    record_format: type[Format] | None,
    key_format: type[Format] | None,
    key_columns: Sequence[str],
    options: Options,
    *,
    upserts: bool,
) -> None:
    if upserts:
        _check_upserts(clauses, record_format, key_format, key_columns, options)
    if record_format is not None:
        _check_record(clauses, record_format, key_columns, options, options.problems)
    if key_format is not None:
        _check_key(clauses, key_format, key_columns, options)


def _check_record(
    clauses: SourceClauses,
    record_format: type[Format],
    key_columns: Sequence[str],
    options: Options,
    problems: Problems,
) -> None:
    """The declared columns must be ones that records of this format can have."""
    of_record = [each for each in _of_record(clauses) if each[0] not in key_columns]
    with problems.of_extensions(options.at("format")):
        for sentence in record_format.find_problems(of_record):
            problems.add("OPTION_NEEDS", sentence, options.at("format"))
        _check_types(clauses, record_format, [name for name, _ in of_record], problems)
    if record_format.is_change_feed:
        _check_change_feed(clauses, f"a source of {record_format.name}", "the database's table", problems)


def _check_types(clauses: SourceClauses, of: type[Format], names: Sequence[str], problems: Problems) -> None:
    """Records of a format must be able to give the types of these columns."""
    for written in clauses.columns:
        column = written.value
        reason = of.refuses(column.type) if column.name in names else None
        if reason is not None:
            problems.add(
                "COLUMN_TYPE",
                f"column {column.name} is {column.type}, which records of {of.name} do not give: {reason}.",
                Location(clauses.written_at.path, written.line),
            )


def _of_record(clauses: SourceClauses) -> list[tuple[str, str]]:
    return [(one.value.name, one.value.type) for one in clauses.columns if one.value.metadata is None]


def _facts(
    connector: type[Connector] | None, record_format: type[Format] | None, *, upserts: bool
) -> Mapping[str, Metadata]:
    """The facts that decoding finds of a record beside its values."""
    if record_format is None:
        of_format: Mapping[str, Metadata] = {}
    else:
        of_format = record_format.metadata if connector is None else record_format.metadata_with(connector)
    return {**of_format, **(CHANGE_METADATA if upserts else {})}


def _key_columns(clauses: SourceClauses, key_format: type[Format] | None, options: Options) -> tuple[str, ...]:
    """The columns that keys of records have, in the spelling of the column list: by default those of PRIMARY KEY."""
    options.require("key.columns", "a 'key.format'", key_format is not None)
    if key_format is None:
        return ()
    text = options.text("key.columns")
    names = [name.strip().strip("`") for name in text.split(",")] if text else list(_declared_case(clauses))
    spelling = {name.lower(): name for name, _ in _of_record(clauses)}
    unknown = [name for name in names if name.lower() not in spelling]
    if text and (unknown or len({name.lower() for name in names}) != len(names)):
        options.reject("key.columns", "columns of the record with commas between them, each once")
        return ()
    found = tuple(spelling[name.lower()] for name in names if name.lower() in spelling)
    if not found:
        options.require("key.format", "'key.columns' or a PRIMARY KEY, the columns that the key has", False)
    elif len(found) == len(spelling):
        options.require("key.format", "a column that is in the values of records. Declare one of any name", False)
    return found


def _check_key(clauses: SourceClauses, key_format: type[Format], key_columns: Sequence[str], options: Options) -> None:
    """Keys of records must have a format of keys, and columns that it can give."""
    if not key_format.of_keys:
        accepted = join_words([each.name for each in shipped_formats() if each.of_keys])
        options.reject("key.format", accepted)
    elif key_columns:
        of_keys = [each for each in _of_record(clauses) if each[0] in key_columns]
        for sentence in key_format.find_problems(of_keys):
            options.problems.add("OPTION_NEEDS", f"the key: {sentence}", options.at("key.format"))
        _check_types(clauses, key_format, key_columns, options.problems)


def _declared_key(key_format: type[Format], options: Options) -> Format:
    return key_format.declare(options).of_key()


def _check_upserts(
    clauses: SourceClauses,
    record_format: type[Format] | None,
    key_format: type[Format] | None,
    key_columns: Sequence[str],
    options: Options,
) -> None:
    """The key of a record names the row, also where the record has no value."""
    if record_format is not None and record_format.is_change_feed:
        options.require("changes", f"records that are rows; those of {record_format.name} are changes", False)
        return
    options.require("changes", "a 'key.format', because a record that deletes has a key alone", key_format is not None)
    _check_change_feed(
        clauses, "a source with 'changes' = 'upsert'", "the topic, as the record's key has them", options.problems
    )
    if clauses.primary_key is not None and key_columns and set(_declared_case(clauses)) != set(key_columns):
        options.problems.add(
            "CHANGE_KEY",
            f"PRIMARY KEY ({', '.join(_declared_case(clauses))}) is not the key of the records, which has "
            f"({', '.join(key_columns)}). Let both name the same columns.",
            Location(clauses.written_at.path, clauses.primary_key.line),
        )


def _tombstones(options: Options, *, upserts: bool) -> Tombstones | None:
    """The meaning of a record without a value, None where it is not declared."""
    text = options.choice("tombstones", tuple(Tombstones))
    if text == Tombstones.DELETE and not upserts:
        options.require("tombstones", "'changes' = 'upsert', which names the row that is deleted", False)
    return None if text is None else Tombstones(text)


def _connector(name: str, at: Location, line: int, clauses: SourceClauses) -> type[Connector]:
    """The connector of this name. Raises DeclarationError where there is none: of its options nothing can be said."""
    here = Location(at.path, line)
    asked = clauses.options.get("lookup")
    if (asked is not None and asked.value.strip().lower() == "true") or (name in LOOKUPS and name not in CONNECTORS):
        return declared_extension("lookup", name, LOOKUP_GROUP, LOOKUPS, find_lookup, here)
    if name in CONNECTORS_NOT_BUILT and name not in (others := names_outside(CONNECTOR_GROUP)):
        built = join_words((*CONNECTORS, *others))
        raise declaration_error("NOT_BUILT", f"'connector' = '{name}' is not built yet. Built is {built}.", here)
    return declared_extension("connector", name, CONNECTOR_GROUP, CONNECTORS, find_connector, here)


def _format(name: str, at: Location, line: int, problems: Problems) -> type[Format] | None:
    """The format of this name; None for one that is not built, which is then one of the problems.

    Raises DeclarationError where there is none: of its options nothing can be said.
    """
    here = Location(at.path, line)
    if name in FORMATS_NOT_BUILT and name not in (others := names_outside(FORMAT_GROUP)):
        built = join_words((*FORMATS, *others))
        problems.add("NOT_BUILT", f"'format' = '{name}' is not built yet. Built is {built}.", here)
        return None
    return declared_extension("format", name, FORMAT_GROUP, FORMATS, find_format, here)


def _constraints(
    clauses: SourceClauses, connector: type[Connector] | None, problems: Problems
) -> tuple[Constraint, ...]:
    if not clauses.constraints:
        return ()
    # Loads the parser, which a project that was read before does without.
    from freshline.sql.constraint import check_constraint_columns, check_constraints

    at = clauses.written_at
    for written in clauses.constraints if connector is not None and not connector.is_log else ():
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
    options: Options,
    connector: type[Connector],
    record_format: type[Format] | None,
    key_format: type[Format] | None,
    at: Location,
) -> None:
    """The connector has what it needs, and there is no option of another one, or of another format."""
    declared = tuple(each for each in (record_format, key_format) if each is not None)
    options.require_references(dict.fromkeys(option for each in declared for option in each.options))
    for name in ("key.format", "changes", "tombstones"):
        options.require(
            name, "a connector whose records have keys, as those of kafka", connector.record_key is not None
        )
    options.require_all(connector.options, f"a source of {connector.title}", at)
    options.require_references(connector.options)
    _refuse_options_of_others(options, connector)
    if connector.record_format is not None:
        _check_own_format(options)
    elif connector.is_log:
        _check_format(options, connector, record_format, key_format, at)
    else:
        logs = " or ".join(each.name for each in shipped_connectors() if each.is_log and each.record_format is None)
        formats = [option for each in shipped_formats() for option in each.options]
        for option in (*LOG_OPTIONS, *formats):
            options.require(option.name, f"connector = {logs}", False)


def _refuse_options_of_others(options: Options, connector: type[Connector]) -> None:
    others: dict[str, list[str]] = {}
    taken = {option.name for option in connector.options}
    for other in (*shipped_connectors(), *shipped_lookups()):
        for option in other.options:
            if option.name not in taken:
                for key in options.written(option):
                    others.setdefault(key, []).append(f"{other.name}{' with lookup = true' if other.is_lookup else ''}")
    for key, names in others.items():
        options.require(key, f"connector = {' or '.join(names)}", False)


def _check_format(
    options: Options,
    connector: type[Connector],
    record_format: type[Format] | None,
    key_format: type[Format] | None,
    at: Location,
) -> None:
    shipped = join_words([each.name for each in shipped_formats() if _is_built(connector, each)])
    if "format" not in options:
        options.problems.add("OPTION_NEEDS", f"a source of {connector.title} needs the option 'format': {shipped}.", at)
    if record_format is None:
        return
    if not _is_built(connector, record_format):
        of = "files" if record_format.of_files else "topics"
        options.problems.add(
            "NOT_BUILT",
            f"'format' = '{record_format.name}' is of {of}. Built for {connector.title} is {shipped}.",
            options.at("format"),
        )
    carrier = Carrier.FILES if connector.has_lines else Carrier.TOPICS
    own = {
        option.name: option for option in (*(() if key_format is None else key_format.options), *record_format.options)
    }
    for option in own.values():
        if option.carrier in (carrier, Carrier.ANY):
            options.require_all((option,), f"a source of {record_format.name}", options.at("format"))
        else:
            options.require(option.name, f"records of {option.carrier}", False)
    for name in {option.name for each in shipped_formats() for option in each.options} - own.keys():
        named = " or ".join(each.name for each in shipped_formats() if name in {one.name for one in each.options})
        options.require(name, f"format = {named}", False)


def _check_own_format(options: Options) -> None:
    """Records that have one format have no options of formats either."""
    named = " or ".join(each.name for each in shipped_connectors() if each.is_log and each.record_format is None)
    formats = [option.name for each in shipped_formats() for option in each.options]
    for name in dict.fromkeys(("format", *formats)):
        options.require(name, f"connector = {named}", False)


def _is_built(connector: type[Connector], record_format: type[Format]) -> bool:
    """Whether a connector's records may have a format. Changes come in an order, which lines of files have not."""
    of_topics = record_format.is_change_feed or record_format.of_topics
    return not of_topics if connector.has_lines else not record_format.of_files


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
    elif (column.metadata or "").lower() in WITH_WATERMARK:
        problems.add("WATERMARK", f"WATERMARK FOR {name}, which is the watermark itself. Name the events' time.", at)
    elif column.type not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        problems.add("WATERMARK", f"WATERMARK FOR {name}, which is {column.type}. It is for a TIMESTAMP.", at)
    else:
        return Watermark(column.name, written.value.delay_seconds)
    return None


def _watermark_options(clauses: SourceClauses, options: Options) -> tuple[float, float, bool]:
    """The seconds that times may be ahead, those until a partition is idle, and whether the clock is followed then."""
    for key in (
        *("watermark.max-ahead", "watermark.idle", "watermark.when-idle"),
        *("alert.watermark-after", "alert.late-rows-above"),
    ):
        options.require(key, "a WATERMARK, which names the column", clauses.watermark is not None)
    ahead, idle = options.seconds("watermark.max-ahead", least=0), options.seconds("watermark.idle")
    when_idle = options.choice("watermark.when-idle", ("stand", "advance"))
    return (
        (86_400.0 if ahead is None else float(ahead)),
        (60.0 if idle is None else float(idle)),
        when_idle == "advance",
    )


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


def _check_change_feed(clauses: SourceClauses, source: str, rows_of: str, problems: Problems) -> None:
    """Changes are of rows that a key names, and their rows are judged where they are whole."""
    at = clauses.written_at
    if clauses.primary_key is None:
        problems.add(
            "CHANGE_KEY",
            f"{source} needs PRIMARY KEY (..), the columns that name a row of {rows_of}. Add it.",
            at,
        )
    for written in clauses.constraints:
        problems.add(
            "CONSTRAINT",
            f"CONSTRAINT {written.value.name}: an event of {source} need not have all values of its row. "
            "Declare the constraint on the table that reads the source.",
            Location(at.path, written.line),
        )


def _check_columns(
    clauses: SourceClauses, connector: type[Connector] | None, facts: Mapping[str, Metadata], problems: Problems
) -> None:
    at = clauses.written_at
    for written in clauses.columns:
        column = written.value
        here = Location(at.path, written.line)
        mistake = column_mistake(column.name)
        is_stored = connector is not None and connector.is_log
        if mistake is not None and (is_stored or column.name.lower().startswith(RESERVED_COLUMN)):
            rule, sentence = mistake
            problems.add(rule, f"{sentence} Leave it out, or give the field another name in the records.", here)
        if column.metadata is not None and connector is not None:
            with_watermark = clauses.watermark is not None
            _check_metadata(column, connector, facts, problems, here, with_watermark=with_watermark)
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


def _check_metadata(
    column: Column,
    connector: type[Connector],
    of_format: Mapping[str, Metadata],
    problems: Problems,
    here: Location,
    *,
    with_watermark: bool,
) -> None:
    key = (column.metadata or "").lower()
    own = {**connector.metadata, **of_format}
    known = {**WITH_WATERMARK, **own} if with_watermark and connector.is_log else own
    if key in WITH_WATERMARK and key not in known and connector.is_log:
        problems.add(
            "METADATA",
            f"column {column.name}: METADATA FROM '{key}' is of a source with a watermark. Add WATERMARK FOR a column.",
            here,
        )
    elif not known:
        problems.add(
            "METADATA", f"column {column.name}: connector {connector.name} knows nothing beside the record.", here
        )
    elif key not in known:
        problems.add(
            "METADATA",
            f"column {column.name}: there is no METADATA '{column.metadata}'.{nearest(key, known)} "
            f"A source of {connector.name} has {', '.join(known)}.",
            here,
        )
    elif column.type.upper() != known[key].type.upper():
        problems.add(
            "METADATA", f"column {column.name}: METADATA FROM '{key}' is {known[key].type}, not {column.type}.", here
        )

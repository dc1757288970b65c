"""From the clauses of CREATE MATERIALIZED TABLE to a TableSpec.

A table is judged in two steps. `declare_table` judges what follows from its file alone, and is cached by the file.
`resolve_table` needs the columns of what the table reads, and is cached by these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from freshline.errors import DeclarationError, DeclarationErrors
from freshline.sql.clauses import Declaration, QueryText, TableClauses
from freshline.sql.columns import output_columns, unknown_columns
from freshline.sql.constraint import check_constraint_columns, check_constraints
from freshline.sql.expression import kind_of_node, parse_expression
from freshline.sql.query_parser import parse_late_rows, parse_query, parse_structure
from freshline.sql.side_outputs import check_conditions, main_query, side_queries
from freshline.sql.tokens import Text
from freshline.sql.triggers import check_condition, rows_when
from freshline.sql.versions import check_version_columns, read_versions
from freshline.sql.volatile import find_volatile
from freshline.values.as_of_joins import Versions
from freshline.values.closing import ARRIVED
from freshline.values.freshness import Freshness
from freshline.values.location import Location, Written
from freshline.values.merge import Merge
from freshline.values.names import MAPPED_IN_COLUMN, TableName, late_name
from freshline.values.options import TABLE_OPTIONS, Options, join_words
from freshline.values.query import GraphFunction, PythonQuery, SqlQuery
from freshline.values.registry import (
    MERGE_GROUP,
    MERGES,
    declared_extension,
    find_merge,
    merge_options,
    shipped_merges,
)
from freshline.values.rules import Problems, nearest
from freshline.values.spec import DeltaJoin, Mode, TableSpec
from freshline.values.time_partition import PartitionUnit, TimePartitions, read_time_partitions

# Stands for a freshness that is not stated until the project's default is filled in.
NOT_STATED = Freshness(1)
JOIN_OPTIONS = (
    "delta-join.strategy",
    "delta-join.cache-enable",
    "delta-join.left-cache-size",
    "delta-join.right-cache-size",
)
MOST_CACHED_ROWS = 1_000_000
LOOKUP_OPTIONS = ("lookup.on-duplicate", "lookup.retry-on-miss.attempts", "lookup.retry-on-miss.delay")
PARTITION_OPTIONS = ("partition.start", "partition.time-zone")
MOST_PARTITION_VALUES = 1_000


def declare_table(clauses: TableClauses) -> Declaration:
    """Judge what follows from the file alone; raises DeclarationErrors with all that is wrong."""
    problems = Problems()
    at = clauses.written_at
    kind = _merge_kind(clauses)
    of_merges = (*merge_options(), *(() if kind is None else kind.options))
    known = tuple(dict.fromkeys((*TABLE_OPTIONS, *(each.name for each in of_merges if not each.is_beginning))))
    passed_on = tuple(each.name for each in of_merges if each.is_beginning)
    options = Options(clauses.options, at, problems, known, passed_on)
    options.refuse_references()
    query = _query(clauses, problems)
    merge = _merge(clauses, kind, options, problems)
    incremental = options.choice("incremental", ("auto", "strict"))
    on_duplicate = options.choice("lookup.on-duplicate", ("error", "any"))
    if on_duplicate == "any" and isinstance(query, SqlQuery):
        _check_any(query, options, problems)
    if query is not None and not query.lookups:
        for key in LOOKUP_OPTIONS:
            options.require(key, "a lookup join in the query", False)
    attempts = options.whole("lookup.retry-on-miss.attempts", 1, 1_000_000)
    delay = options.seconds("lookup.retry-on-miss.delay")
    options.require(
        "lookup.retry-on-miss.delay",
        "'lookup.retry-on-miss.attempts'",
        "lookup.retry-on-miss.attempts" in options,
    )
    if attempts and isinstance(query, SqlQuery) and query.lookups:
        _check_retried(query, options, problems)
    join = options.choice("delta-join.strategy", tuple(DeltaJoin))
    delta_join = DeltaJoin(join) if join is not None else DeltaJoin.AUTO
    if query is not None:
        joins = isinstance(query, SqlQuery) and sum(not item.lookup for item in query.references) > 1
        for key in JOIN_OPTIONS:
            options.require(key, "a join of two inputs, in SQL", joins)
    left, right = _cache_sizes(options)
    non_driving, requires_history = options.names("non-driving"), options.names("requires-history")
    if query is not None:
        _check_non_driving(query, non_driving, options, problems)
        _check_requires_history(query, requires_history, options, problems)
        if merge is not None and isinstance(query, SqlQuery):
            _check_merge_query(query, at, problems)
    _check_clustering(clauses, problems)
    constraints = check_constraints(clauses.constraints, at, problems)
    times = _time_partitions(clauses, query, options, problems)
    partition_values = _partition_values(clauses, query, options, problems)
    history = options.seconds("history")
    warn_after, fail_after = options.alert_seconds()
    if query is not None:
        options.require("python.time-limit", "a function in Python", isinstance(query, PythonQuery))
    python_seconds = options.seconds("python.time-limit")
    watermark = None if clauses.watermark is None else clauses.watermark.value
    versions = read_versions(options, watermark, declared=watermark is not None)
    owner, group = options.text("owner"), options.text("group")
    mode = _mode(clauses, problems)
    final = None if clauses.final is None else clauses.final.value
    if clauses.final is not None:
        _check_final(clauses, options, problems)
    if clauses.side_outputs:
        _check_side_outputs(clauses, query, merge, problems)
    _check_graph(clauses, query, problems)
    problems.raise_all()
    assert query is not None, "a query that cannot be read has raised"
    spec = TableSpec(
        name=clauses.name,
        query=_without_clock(query) if merge or final or times else query,
        written_at=at,
        freshness=clauses.freshness.value if clauses.freshness else NOT_STATED,
        refresh_mode=mode,
        columns=_declared_columns(query),
        primary_key=_value(clauses.primary_key),
        partitioned_by=_value(clauses.partitioned_by),
        cluster_by=_value(clauses.cluster_by),
        time_partitions=times,
        partition_values=partition_values,
        comment=clauses.comment,
        merge=merge,
        watermark=watermark,
        constraints=constraints,
        incremental_strict=incremental == "strict",
        strategies=_strategies(options),
        non_driving=non_driving,
        requires_history=requires_history,
        lookup_on_duplicate=on_duplicate or "error",
        lookup_attempts=attempts or 0,
        lookup_delay_seconds=delay or 0,
        delta_join=delta_join,
        left_cache_rows=left,
        right_cache_rows=right,
        history_seconds=history,
        warn_after_seconds=warn_after,
        fail_after_seconds=fail_after,
        python_seconds=python_seconds,
        versions=versions,
        final=final,
        owner=owner,
        group=group,
        options=options.as_written,
    )
    lines = {**options.lines, **_lines(clauses), **_read_lines(query, at.path)}
    late = _late_rows(spec, clauses, lines)
    outputs = (*_side_outputs(spec, clauses, lines), *_process_outputs(spec, clauses, lines))
    return Declaration(spec, lines, (*outputs, *([] if late is None else [late])))


def _process_outputs(spec: TableSpec, clauses: TableClauses, lines: Mapping[str, int]) -> Iterator[Declaration]:
    """The tables of the outputs of a class, as fresh as the main one. Its key and constraints are not theirs."""
    for output in clauses.process_outputs:
        assert output.query.process is not None
        own = {name: line for name, line in lines.items() if name in ("FRESHNESS", "REFRESH_MODE")}
        side = replace(_bare(spec), name=output.name, query=output.query, columns=output.query.process.names)
        comment = f"Rows that the class of {spec.name} puts out to {output.name}."
        yield Declaration(replace(side, comment=comment, watermark=None, versions=None), own)


def _bare(spec: TableSpec) -> TableSpec:
    """A table that comes with another, without what is of the rows of that one."""
    return replace(
        spec,
        primary_key=(),
        partitioned_by=(),
        cluster_by=(),
        time_partitions=None,
        partition_values=(),
        constraints=(),
        side_output_of=spec.name,
    )


def _side_outputs(spec: TableSpec, clauses: TableClauses, lines: Mapping[str, int]) -> Iterator[Declaration]:
    """The tables of the side outputs, as fresh as the main one. Its keys, partitions and constraints are not theirs."""
    if not isinstance(clauses.query, QueryText):
        return
    whole = Text(clauses.query.text, spec.written_at.path, clauses.query.line)
    queries = side_queries(whole, spec.name, [written.value for written in clauses.side_outputs])
    for written, text in zip(clauses.side_outputs, queries, strict=True):
        output, at = written.value, Location(whole.path, written.line)
        query = parse_query(text.text, at.path, text.first_line, moved=text.moved)
        side = replace(
            _bare(spec),
            name=output.name,
            query=query,
            written_at=at,
            comment=f"Rows that {spec.name} leaves out because {' '.join(output.condition.value.split())}.",
        )
        own = {name: line for name, line in lines.items() if name in ("FRESHNESS", "REFRESH_MODE", "AS")}
        yield Declaration(side, {**own, **_read_lines(query, at.path)})


def _without_clock(query: SqlQuery | PythonQuery) -> SqlQuery | PythonQuery:
    """The query of a table that does not follow the time: a function of the time gives another value each time."""
    return replace(query, clock_calls=()) if isinstance(query, SqlQuery) else query


def _check_side_outputs(
    clauses: TableClauses, query: SqlQuery | PythonQuery | None, merge: Merge | None, problems: Problems
) -> None:
    """Check that conditions on the rows of the query can divide them."""
    path = clauses.written_at.path
    volatile = find_volatile(parse_structure(query), compared=False) if isinstance(query, SqlQuery) else None
    beside = {
        "EMIT FINAL": clauses.final is not None,
        "a merge": merge is not None,
        "a lookup join": query is not None and bool(query.lookup_joins),
        "WATERMARK FOR": clauses.watermark is not None,
        f"{volatile}, which gives another value each time": volatile is not None,
    }
    for output in clauses.side_outputs:
        at = Location(path, output.line)
        for what in (what for what, is_there in beside.items() if is_there):
            problems.add(
                "SIDE_OUTPUT",
                f"a side output does not go with {what}. Declare that in a table of its own, and the side output over "
                "it.",
                at,
            )
        if output.value.name == clauses.name:
            problems.add("SIDE_OUTPUT", "a side output has the name of its table. Give it one of its own.", at)


def _check_graph(clauses: TableClauses, query: SqlQuery | PythonQuery | None, problems: Problems) -> None:
    """Check that nothing asks for a part of the rows by itself, or depends on the last digits of a rank."""
    graph = None if query is None else query.graph
    if graph is None:
        return
    path, name = clauses.written_at.path, graph.function.name
    if clauses.partitioned_by is not None:
        problems.add(
            "GRAPH",
            f"{name}: a table of a graph has no partitions, because a new edge may move nodes from any to any other. "
            "Remove PARTITIONED BY, or declare the partitions on a table that reads this one.",
            Location(path, clauses.partitioned_by.line),
        )
    if graph.function is not GraphFunction.PAGERANK or graph.value is None:
        return
    for written in clauses.constraints:
        constraint = written.value
        read = re.search(rf"\b{re.escape(graph.value)}\b", constraint.condition, re.IGNORECASE)
        if constraint.on_violation.leaves_out and read is not None:
            problems.add(
                "GRAPH",
                f"{name}: CONSTRAINT {constraint.name} would leave rows out by a rank, which is right within TOLERANCE "
                "only. Declare it on a table that reads this one.",
                Location(path, written.line),
            )


def _late_rows(spec: TableSpec, clauses: TableClauses, lines: Mapping[str, int]) -> Declaration | None:
    """The table `<name>__late` beside one with closed windows: what came too late for them, which it is as fresh as."""
    if not isinstance(clauses.query, QueryText) or spec.final is None or spec.is_triggered:
        return None
    query = parse_late_rows(clauses.query.text, spec.written_at.path, clauses.query.line, spec.final)
    if query is None:
        return None
    late = TableSpec(
        name=late_name(spec.name),
        query=query,
        written_at=spec.written_at,
        freshness=spec.freshness,
        comment=f"Rows that came too late for {spec.name}.",
        history_seconds=spec.history_seconds,
        late_rows_of=spec.name,
        owner=spec.owner,
        group=spec.group,
    )
    return Declaration(late, {name: line for name, line in lines.items() if name in ("FRESHNESS", "AS")})


def _check_final(clauses: TableClauses, options: Options, problems: Problems) -> None:
    """Rows that never change are folded with no others, and are not put in the place of others."""
    assert clauses.final is not None
    for key, instead in (
        ("merge", "Declare the merge over a FINAL table"),
        ("partition.unit", "Declare the partitions on a table that reads this one"),
        ("partition.values", "Declare the partitions on a table that reads this one"),
        ("lookup.retry-on-miss.attempts", "Look up in a table that reads this one"),
    ):
        if key in options:
            problems.add("FINAL_INPUT", f"EMIT FINAL does not go with '{key}'. {instead}.", options.at(key))
    if not isinstance(clauses.query, QueryText):
        problems.add(
            "FINAL_INPUT",
            "EMIT FINAL is for a query in SQL. Remove it.",
            Location(clauses.written_at.path, clauses.final.line),
        )


def resolve_table(
    declaration: Declaration,
    inputs: Mapping[TableName, tuple[str, ...] | None],
    logs: frozenset[TableName],
    versions: Mapping[TableName, Versions | None],
) -> TableSpec:
    """The spec with its columns; raises DeclarationErrors for what does not fit the inputs.

    `inputs` has the columns of what the table reads (None: not known), `logs` those of them that are log tables,
    `versions` how as-of joins read their rows.
    """
    spec = declaration.spec
    assert isinstance(spec, TableSpec)
    problems = Problems()
    if spec.merge is not None and spec.merge.is_by_arrival and not spec.merge.follows_changes:
        for name in spec.driving:
            if name not in logs:
                option = "merge.order" if "merge.sequence" not in declaration.lines else "merge.sequence"
                problems.add(
                    "MERGE_ARRIVAL",
                    f"'{option}' = 'arrival' needs the order in which rows arrived, and {name} is not a log table. "
                    f"Give '{option}' an expression, and a 'merge.tie-breaker'.",
                    declaration.at(option if option in declaration.lines else "merge"),
                )
    if not isinstance(spec.query, SqlQuery):
        problems.raise_all()
        return spec if spec.columns is None else _with_columns(spec, spec.columns, declaration, problems)
    try:
        columns = output_columns(spec.query, spec.written_at.path, _with_arrival(spec.query, inputs))
    except DeclarationError as error:
        problems.extend(error if spec.late_rows_of is None else _of_late_rows(error))
        problems.raise_all()
        raise AssertionError("an error was collected") from error
    known = _with_known_clock(spec.query, inputs)
    query = _with_versions(known, spec.written_at.path, inputs, versions, problems)
    resolved = _with_columns(replace(spec, query=query), columns, declaration, problems)
    if spec.merge is not None:
        _check_merge_columns(resolved, spec.query, inputs, declaration, problems)
    problems.raise_all()
    return resolved


def _of_late_rows(error: DeclarationError) -> DeclarationErrors:
    """The errors of a query of late rows, which nobody wrote: of a column twice, one is of the log, and one is ours."""
    found = []
    for each in error.errors if isinstance(error, DeclarationErrors) else (error,):
        name = re.search(r"the query yields (\S+) twice", str(each))
        if each.rule != "DUPLICATE_COLUMN" or name is None:
            found.append(each)
            continue
        sentence = (
            f"EMIT FINAL reads rows with a column {name[1]}, which the table of late rows has too, as window_start, "
            "window_end, late_by and position. Give that of the rows another name: with AS in a query in parentheses, "
            "which window functions and MATCH_RECOGNIZE read, or in the declaration of the source."
        )
        found.append(DeclarationError("FINAL_INPUT", sentence, where=each.where))
    return DeclarationErrors(found)


def _with_columns(spec: TableSpec, columns: tuple[str, ...], declaration: Declaration, problems: Problems) -> TableSpec:
    """The spec with these columns of its rows, which its clauses name."""
    watermark, own_versions = spec.watermark, spec.versions
    if watermark is not None:
        (column,) = _of_query((watermark.column,), columns, "WATERMARK", "WATERMARK", declaration, problems) or ("",)
        watermark = replace(watermark, column=column)
        own_versions = None if own_versions is None else replace(own_versions, column=column)
    if own_versions is not None:
        for key, sentence in check_version_columns(own_versions, columns):
            problems.add("OPTION_VALUE", sentence, declaration.at(key))
    resolved = replace(
        spec,
        columns=columns,
        watermark=watermark,
        versions=own_versions,
        primary_key=_of_query(spec.primary_key, columns, "PRIMARY_KEY", "PRIMARY KEY", declaration, problems),
        partitioned_by=_of_query(
            spec.partitioned_by, columns, "PARTITION_COLUMN", "PARTITIONED BY", declaration, problems
        ),
        cluster_by=_of_query(spec.cluster_by, columns, "CLUSTER_COLUMN", "CLUSTER BY", declaration, problems),
    )
    if spec.partitioned_by and {c.lower() for c in spec.partitioned_by} >= {c.lower() for c in columns}:
        problems.add(
            "PARTITION_COLUMN",
            "PARTITIONED BY names every column of the query. Leave at least one out.",
            declaration.at("PARTITIONED BY"),
        )
    for column in spec.partitioned_by:
        if MAPPED_IN_COLUMN.search(column):
            problems.add(
                "COLUMN_NAME",
                f"column `{column}` of PARTITIONED BY has a blank or one of , ; {{ }} ( ) = in its name. Give it "
                "another name with AS.",
                declaration.at("PARTITIONED BY"),
            )
    check_constraint_columns(
        [Written(one, declaration.at(f"CONSTRAINT {one.name.lower()}").line) for one in spec.constraints],
        columns,
        spec.written_at.path,
        problems,
    )
    problems.raise_all()
    return resolved


def _with_arrival(
    query: SqlQuery, inputs: Mapping[TableName, tuple[str, ...] | None]
) -> Mapping[TableName, tuple[str, ...] | None]:
    """The columns of inputs as the query reads them."""
    if not query.arrived:
        return inputs
    versions = {join.table: join for join in query.as_of_joins}
    return {
        name: None if columns is None else versions[name].columns(columns) if name in versions else (*columns, *ARRIVED)
        for name, columns in inputs.items()
    }


def _with_known_clock(query: SqlQuery, inputs: Mapping[TableName, tuple[str, ...] | None]) -> SqlQuery:
    """The query; without a clock where `current_date` without parentheses may be a column, which Spark would take."""
    bare = {query.text[call.start : call.end].lower() for call in query.clock_calls if call.bare}
    known = [inputs.get(name) for name in query.reads]
    columns = {column.lower() for found in known for column in found or ()}
    return replace(query, clock_calls=()) if bare and (None in known or bare & columns) else query


def _with_versions(
    query: SqlQuery,
    path: str,
    inputs: Mapping[TableName, tuple[str, ...] | None],
    versions: Mapping[TableName, Versions | None],
    problems: Problems,
) -> SqlQuery:
    """The query with what the declarations of versions say; they are part of its meaning."""
    if not query.as_of_joins:
        return query
    read = {reference.alias.lower(): reference.name for reference in query.references}
    joins, known_versions = [], []
    for join in query.as_of_joins:
        at = Location(path, join.line)
        alias, column = join.time
        columns = inputs.get(read[alias.lower()]) if alias.lower() in read else None
        if columns is not None and column.lower() not in {name.lower() for name in columns}:
            problems.add(
                "UNKNOWN_COLUMN",
                f"FOR SYSTEM_TIME AS OF {alias}.{column}: {read[alias.lower()]} has no column {column}."
                f"{nearest(column, columns)}",
                at,
            )
        known = versions.get(join.table)
        if known is None:
            problems.add(
                "ASOF_TIME",
                f"the rows of {join.table} have no time since when they hold. Declare it there: WATERMARK FOR column "
                "AS column.",
                at,
            )
        else:
            known_versions.append(known)
        joins.append(replace(join, versions=known))
    meant = [(v.column.lower(), [c.lower() for c in v.tie_breaker], v.delete_when) for v in known_versions]
    return replace(query, as_of_joins=tuple(joins), meaning=f"{query.meaning} {meant}")


# -- what follows from the file


def _query(clauses: TableClauses, problems: Problems) -> SqlQuery | PythonQuery | None:
    query = clauses.query
    if not isinstance(query, QueryText):
        return query
    path = clauses.written_at.path
    outputs = [output.value for output in clauses.side_outputs]
    if not check_conditions(clauses.side_outputs, path, problems):
        outputs = []  # their mistakes are reported, and those of the query too
    text = main_query(Text(query.text, path, query.line), clauses.name, outputs)
    final = None if clauses.final is None else clauses.final.value
    if final is not None and final.condition is not None and check_condition(final.condition, path, problems):
        text = rows_when(text, clauses.name.name, final.condition)
    try:
        # With conditions of side outputs and of WHEN around it, the file has the query inside of them.
        return replace(parse_query(text.text, path, query.line, final, text.moved), written=query.text)
    except DeclarationError as error:
        problems.extend(error)
        return None


def _mode(clauses: TableClauses, problems: Problems) -> Mode | None:
    if clauses.mode is None or clauses.mode.value == "AUTO":
        return None
    try:
        return Mode(clauses.mode.value.lower())
    except ValueError:
        words = ("AUTO", *(mode.name for mode in Mode))
        problems.add(
            "REFRESH_MODE",
            f"there is no mode {clauses.mode.value}.{nearest(clauses.mode.value, words)} Modes are {', '.join(words)}.",
            Location(clauses.written_at.path, clauses.mode.line),
        )
        return None


def _declared_columns(query: SqlQuery | PythonQuery) -> tuple[str, ...] | None:
    """The columns where the declaration names them; those of a query are known with its inputs."""
    process = query.process if isinstance(query, PythonQuery) else None
    return None if process is None else process.names


def _value(written: Written[tuple[str, ...]] | None) -> tuple[str, ...]:
    return written.value if written else ()


def _lines(clauses: TableClauses) -> dict[str, int]:
    written = {
        "PRIMARY KEY": clauses.primary_key,
        "PARTITIONED BY": clauses.partitioned_by,
        "CLUSTER BY": clauses.cluster_by,
        "WATERMARK": clauses.watermark,
        "FRESHNESS": clauses.freshness,
        "REFRESH_MODE": clauses.mode,
        "EMIT": clauses.final,
    }
    lines = {clause: value.line for clause, value in written.items() if value is not None}
    lines |= {f"CONSTRAINT {one.value.name.lower()}": one.line for one in clauses.constraints}
    if isinstance(clauses.query, QueryText):
        lines["AS"] = clauses.query.line
    return lines


def _read_lines(query: SqlQuery | PythonQuery, path: str) -> dict[str, int]:
    """The line on which each table is read first."""
    if not isinstance(query, SqlQuery):
        return {}
    text = Text(query.text, path, query.line)
    return {
        f"reads {str(reference.name).lower()}": text.line(reference.span.start)
        for reference in reversed(query.references)
    }


def _check_clustering(clauses: TableClauses, problems: Problems) -> None:
    if clauses.cluster_by is None:
        return
    at = Location(clauses.written_at.path, clauses.cluster_by.line)
    if clauses.partitioned_by is not None:
        problems.add(
            "CLUSTER_COLUMN",
            "Delta does not cluster a table that is partitioned. Remove CLUSTER BY or PARTITIONED BY.",
            at,
        )
    if len(clauses.cluster_by.value) > 4:
        problems.add(
            "CLUSTER_COLUMN", "CLUSTER BY names more than four columns, which Delta refuses. Leave some out.", at
        )


def _check_non_driving(
    query: SqlQuery | PythonQuery, non_driving: tuple[TableName, ...], options: Options, problems: Problems
) -> None:
    for name in non_driving:
        if name not in query.reads:
            problems.add(
                "NON_DRIVING",
                f"'non-driving' names {name}, which the query does not read."
                f"{nearest(str(name), [str(read) for read in query.reads])} "
                f"It reads {', '.join(str(read) for read in query.reads) or 'nothing'}.",
                options.at("non-driving"),
            )
    drives = [name for name in query.reads if name not in query.lookups and name not in non_driving]
    if non_driving and not drives:
        problems.add(
            "NON_DRIVING",
            "'non-driving' leaves no input that drives the table. Name fewer of them.",
            options.at("non-driving"),
        )


def _check_requires_history(
    query: SqlQuery | PythonQuery, names: tuple[TableName, ...], options: Options, problems: Problems
) -> None:
    driving = [name for name in query.reads if name not in query.lookups]
    for name in names:
        if name not in driving:
            problems.add(
                "REQUIRES_HISTORY",
                f"'requires-history' names {name}, whose rows do not become rows of the table."
                f"{nearest(str(name), [str(read) for read in driving])} "
                f"It can name {', '.join(str(read) for read in driving) or 'nothing'}.",
                options.at("requires-history"),
            )


def _time_partitions(
    clauses: TableClauses,
    query: SqlQuery | PythonQuery | None,
    options: Options,
    problems: Problems,
) -> TimePartitions | None:
    """The partitions in time that the options declare, None for a table without, or where something is wrong."""
    unit = options.choice("partition.unit", tuple(PartitionUnit))
    for key in PARTITION_OPTIONS:
        options.require(key, "'partition.unit'", "partition.unit" in options)
    if "partition.unit" not in options:
        return None
    if not options.require("partition.unit", "PARTITIONED BY one column", len(_value(clauses.partitioned_by)) == 1):
        return None
    start, zone = options.text("partition.start"), options.text("partition.time-zone") or "UTC"
    if start is None:
        options.require("partition.unit", "'partition.start', the first partition", "partition.start" in options)
        return None
    if isinstance(query, PythonQuery) or "merge" in options or (query is not None and query.lookups):
        problems.add(
            "NOT_BUILT",
            "'partition.unit' of a table with a merge type, a lookup join, or written in Python is not built yet. "
            "Remove the options that begin with 'partition.'.",
            options.at("partition.unit"),
        )
        return None
    if unit is None:
        return None
    try:
        return read_time_partitions(PartitionUnit(unit), start, zone)
    except ValueError as error:
        problems.add("OPTION_VALUE", f"{error}.", options.at("partition.start"))
        return None


def _partition_values(
    clauses: TableClauses, query: SqlQuery | PythonQuery | None, options: Options, problems: Problems
) -> tuple[str, ...]:
    """The partitions that can be asked for by name, in the order in which they are written; none where nothing is."""
    key = "partition.values"
    if key not in options:
        return ()
    if not options.require(key, "PARTITIONED BY one column", len(_value(clauses.partitioned_by)) == 1):
        return ()
    if not options.require(
        key, "a table without 'partition.unit', whose partitions are times", "partition.unit" not in options
    ):
        return ()
    if isinstance(query, PythonQuery) or "merge" in options or "lookup.retry-on-miss.attempts" in options:
        problems.add(
            "NOT_BUILT",
            f"'{key}' of a table with a merge type, with retries of lookups, or written in Python is not built yet: "
            "such a table is refreshed as a whole. Remove the option.",
            options.at(key),
        )
        return ()
    values = tuple(value.strip() for value in (options.raw(key) or "").split(","))
    different = len(set(values)) == len(values) <= MOST_PARTITION_VALUES
    # A key of a partition as Dagster takes it.
    if not different or not all(value and value.isprintable() and "..." not in value for value in values):
        options.reject(
            key,
            f"a list of at most {MOST_PARTITION_VALUES} different values with commas between them, such as 'de, fr', "
            "without three dots in a row",
        )
        return ()
    return values


def _cache_sizes(options: Options) -> tuple[int, int]:
    """The most rows of the first input and of the others that are kept."""
    enabled = options.boolean("delta-join.cache-enable") is not False
    left = options.whole("delta-join.left-cache-size", 0, MOST_CACHED_ROWS)
    right = options.whole("delta-join.right-cache-size", 0, MOST_CACHED_ROWS)
    if not enabled:
        return 0, 0
    return TableSpec.left_cache_rows if left is None else left, TableSpec.right_cache_rows if right is None else right


def is_one_select(query: SqlQuery) -> bool:
    """Whether the query is one SELECT from one input, beside which there are lookup joins alone."""
    tree = parse_structure(query)
    start = tree.args.get("from_")
    begins = isinstance(tree, exp.Select) and start is not None and isinstance(start.this, exp.Table)
    others = [reference for reference in query.references if not reference.lookup]
    return begins and len(others) == 1 and not tree.args.get("with_") and query.select_end is not None


def _check_retried(query: SqlQuery, options: Options, problems: Problems) -> None:
    """A row that waits for its dimension is a row of the one input that the outermost FROM begins with."""
    if not is_one_select(query) or not all(join.outer for join in query.lookup_joins):
        problems.add(
            "OPTION_NEEDS",
            "option 'lookup.retry-on-miss.attempts' needs a query that is one SELECT from one input, with LEFT lookup "
            "joins. Write the query so, or remove the option.",
            options.at("lookup.retry-on-miss.attempts"),
        )


def _check_any(query: SqlQuery, options: Options, problems: Problems) -> None:
    """Check that all lookups of a dimension use one key, because one row a key is read of it."""
    keys: dict[TableName, frozenset[str]] = {}
    for join in query.lookup_joins:
        asked = frozenset(column.lower() for column, _ in join.keys)
        if keys.setdefault(join.table, asked) != asked:
            problems.add(
                "OPTION_NEEDS",
                f"option 'lookup.on-duplicate' = 'any' takes one row of {join.table} a key, and it is looked up by "
                "two. Look it up by one key, declare a table for the other, or remove the option.",
                options.at("lookup.on-duplicate"),
            )


def _strategies(options: Options) -> tuple[str, ...]:
    """The strategies of other packages that the table names, in its order."""
    names = (name.strip() for name in (options.text("strategies") or "").split(","))
    return tuple(dict.fromkeys(name for name in names if name))


# -- merges


def _merge(clauses: TableClauses, kind: type[Merge] | None, options: Options, problems: Problems) -> Merge | None:
    python = isinstance(clauses.query, PythonQuery)
    if python and ("merge" in options or any(options.written(option) for option in merge_options())):
        problems.add(
            "NOT_BUILT",
            "a merge over a table written in Python is not built yet. Declare the merge in SQL over its result.",
            options.at("merge"),
        )
        return None
    deletes = options.choice("upstream-deletes", ("error", "retract", "ignore"))
    if "merge" not in options:
        written = [key for option in merge_options() for key in options.written(option)]
        for key in (*written, "upstream-deletes"):
            options.require(key, f"'merge' = {join_words([repr(name) for name in MERGES])}", False)
        return None
    if clauses.primary_key is None:
        problems.add(
            "OPTION_NEEDS",
            "a merge keeps one row for each key: it needs PRIMARY KEY (..). Add that, or remove the option 'merge'.",
            options.at("merge"),
        )
    if kind is None:
        return None
    own = {option.name for option in kind.options}
    for option in merge_options():
        if option.name not in own:
            others = [each.name for each in shipped_merges() if option.name in {own.name for own in each.options}]
            for key in options.written(option):
                options.require(key, f"'merge' = {join_words([repr(name) for name in others])}", False)
    options.require_all(kind.options, f"'merge' = '{kind.name}'", options.at("merge"))
    with problems.of_extensions(options.at("merge")):
        merge = kind.declare(options)
        expressions = merge.expressions
    for each in expressions:
        try:
            parse_expression(each.text, several=each.several)
        except ValueError as error:
            problems.add(
                "MERGE_EXPRESSION", f"option '{each.option}' is '{each.text}': {error}", options.at(each.option)
            )
    return replace(merge, upstream_deletes=deletes or "retract")


def _merge_kind(clauses: TableClauses) -> type[Merge] | None:
    """The kind of merge that is named, None where none is. Raises DeclarationError where there is none of that name."""
    written = clauses.options.get("merge")
    if written is None:
        return None
    name, here = written.value.strip().lower(), Location(clauses.written_at.path, written.line)
    return declared_extension("merge", name, MERGE_GROUP, MERGES, find_merge, here)


_CLAUSES = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL VIEW",
    "joins": "JOIN",
    "windows": "WINDOW",
}


def _check_merge_query(query: SqlQuery, at: Location, problems: Problems) -> None:
    """A merge folds rows one by one: its query may only pick, compute and filter rows of one input."""
    here = Location(at.path, query.line)
    tree = parse_structure(query)
    found: list[str] = []
    if not isinstance(tree, exp.Select):
        found.append("a set operation or parentheses around the query")
    else:
        found.extend(word for key, word in _CLAUSES.items() if tree.args.get(key))
        found.extend(
            dict.fromkeys(
                kind_of_node(node) if not isinstance(node, (exp.UDTF, exp.Explode)) else "explode"
                for item in (*tree.expressions, tree.args.get("where"))
                if item is not None
                for node in item.find_all(exp.Query, exp.AggFunc, exp.Window, exp.UDTF, exp.Explode)
            )
        )
        source = tree.args.get("from_")
        one = source is not None and isinstance(source.this, exp.Table) and len(query.references) == 1
        if not one and not found:
            found.append("not exactly one table in FROM")
        elif one:
            assert source is not None
            found.extend(_beside_input(source.this))
    if found:
        problems.add(
            "MERGE_QUERY",
            "a merge is declared over one plain SELECT of columns and expressions, with WHERE, from one input; this "
            f"query has {', '.join(dict.fromkeys(found))}. Put that into a table of its own, and read it there.",
            here,
        )


def _beside_input(table: exp.Table) -> list[str]:
    """The parts that make other rows or columns of the input, for which a merge has columns of its own beside those."""
    found = ["UNPIVOT" if pivot.args.get("unpivot") else "PIVOT" for pivot in table.args.get("pivots") or ()]
    alias = table.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.columns:
        found.append("other names for the columns of its input")
    return found


def _check_merge_columns(
    spec: TableSpec,
    query: SqlQuery,
    inputs: Mapping[TableName, tuple[str, ...] | None],
    declaration: Declaration,
    problems: Problems,
) -> None:
    merge = spec.merge
    assert merge is not None
    reference = query.references[0]
    for each in merge.expressions:
        expression = parse_expression(each.text, several=each.several)
        known = inputs.get(reference.name)
        for column in unknown_columns(expression, reference.alias, reference.name, known, spec.columns or ()):
            near = nearest(column.split(".")[-1], [*(known or ()), *(spec.columns or ())])
            problems.add(
                "MERGE_EXPRESSION",
                f"option '{each.option}' reads {column}, which neither {reference.name} nor the query has.{near}",
                declaration.at(each.option),
            )
    with problems.of_extensions(declaration.at("merge")):
        for problem in merge.find_problems(spec):
            problems.add(problem.rule, problem.message, declaration.at(problem.option))


# -- what follows from the inputs


def _of_query(
    named: tuple[str, ...],
    columns: tuple[str, ...],
    rule: str,
    clause: str,
    declaration: Declaration,
    problems: Problems,
) -> tuple[str, ...]:
    """The named columns in the query's spelling."""
    spelling = {column.lower(): column for column in columns}
    seen: set[str] = set()
    for name in named:
        if name.lower() not in spelling:
            problems.add(
                rule,
                f"{clause} names {name}, which the query does not yield.{nearest(name, columns)} "
                f"It yields {', '.join(columns)}.",
                declaration.at(clause),
            )
        elif name.lower() in seen:
            problems.add(rule, f"{clause} names {name} twice. Name it once.", declaration.at(clause))
        seen.add(name.lower())
    return tuple(spelling.get(name.lower(), name) for name in named)

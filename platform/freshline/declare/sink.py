"""From the clauses of CREATE SINK to a TableSpec whose rows go out.

`declare_sink` judges what follows from the file alone, and is cached by the file. `resolve_sink` needs the table.
"""

from __future__ import annotations

from dataclasses import replace

from freshline.sql.clauses import Declaration, SinkClauses
from freshline.sql.query_parser import parse_query
from freshline.values.location import Location
from freshline.values.names import TableName, quoted
from freshline.values.options import Options, join_words
from freshline.values.registry import SINK_GROUP, SINKS, declared_extension, find_sink, shipped_sinks
from freshline.values.rules import Problems
from freshline.values.sink import SINK_OPTIONS, OnReject, Sink
from freshline.values.spec import Downstream, SourceSpec, Spec, TableSpec


def declare_sink(clauses: SinkClauses) -> Declaration:
    """Judge a sink by its file; raises DeclarationErrors with all that is wrong with it."""
    problems = Problems()
    at, table = clauses.written_at, clauses.table
    kind = _kind(clauses)
    own = [option for each in (*shipped_sinks(), kind) if each is not None for option in each.options]
    known = tuple(dict.fromkeys(option.name for option in (*SINK_OPTIONS, *own) if not option.is_beginning))
    beginnings = tuple(dict.fromkeys(option.name for option in own if option.is_beginning))
    options = Options(clauses.options, at, problems, known, beginnings, "Sinks")
    options.refuse_references(but=tuple(dict.fromkeys(option.name for option in own if option.may_refer)))
    sink: Sink | None = None
    if kind is None:
        named = join_words([f"'{name}'" for name in SINKS])
        problems.add("OPTION_NEEDS", f"a sink needs WITH ('connector' = ..): {named}.", at)
    else:
        options.require_all(kind.options, f"a sink of {kind.title}", at)
        options.require_references(kind.options)
        _refuse_options_of_others(options, kind)
        with problems.of_extensions(options.at("connector")):
            sink = kind.declare(options)
    on_reject = options.choice("on-reject", tuple(OnReject))
    history, (warn_after, fail_after) = options.seconds("history"), options.alert_seconds()
    freshness = None if clauses.freshness is None else clauses.freshness.value
    if freshness is Downstream.DOWNSTREAM:
        problems.add(
            "FRESHNESS_DOWNSTREAM",
            "nothing reads a sink, so it has no freshness to take over. State one, or leave FRESHNESS out for that of "
            f"{table.value}.",
            Location(at.path, clauses.freshness.line if clauses.freshness else at.line),
        )
    owner, group = options.text("owner"), options.text("group")
    problems.raise_all()
    assert sink is not None
    spec = TableSpec(
        name=clauses.name,
        query=parse_query(f"SELECT * FROM {_written(table.value)}", at.path, table.line),
        written_at=at,
        freshness=freshness or Downstream.DOWNSTREAM,
        comment=clauses.comment,
        history_seconds=history,
        warn_after_seconds=warn_after,
        fail_after_seconds=fail_after,
        sink=sink,
        on_reject=OnReject.FAIL if on_reject is None else OnReject(on_reject),
        owner=owner,
        group=group,
        options=options.as_written,
    )
    lines = {**options.lines, f"reads {str(table.value).lower()}": table.line}
    # Without one of its own, a sink is as fresh as its table: the graph fills that in.
    lines["FRESHNESS"] = at.line if clauses.freshness is None else clauses.freshness.line
    return Declaration(spec, lines)


def resolve_sink(declaration: Declaration, table: Spec) -> TableSpec:
    """The sink with the columns and the key of its table; raises DeclarationErrors for a table that does not fit."""
    spec, problems = declaration.spec, Problems()
    assert isinstance(spec, TableSpec)
    assert spec.sink is not None
    at = declaration.at(f"reads {str(table.name).lower()}")
    if isinstance(table, SourceSpec):
        problems.add(
            "SINK_TABLE",
            f"{spec.name} sends rows of {table.name}, which is a source. Declare a table that reads it, and the sink "
            "from that table.",
            at,
        )
    elif table.sink is not None:
        problems.add(
            "SINK_TABLE",
            f"{spec.name} sends rows of {table.name}, which is a sink and has none here. Name the table of that sink.",
            at,
        )
    elif spec.sink.needs_key and not table.primary_key:
        problems.add(
            "SINK_KEY",
            f"{spec.name} finds rows in {spec.sink.title} by their key, and {table.name} has none. Give {table.name} a "
            "PRIMARY KEY.",
            at,
        )
    problems.raise_all()
    assert isinstance(table, TableSpec)
    with problems.of_extensions(declaration.at("connector")):
        for rule, key, sentence in spec.sink.find_problems(has_key=bool(table.primary_key)):
            problems.add(rule, sentence, declaration.at(key))
        reason = None if table.columns is None else spec.sink.find_column_problems(table.columns)
        if reason is not None:
            problems.add("SINK_SCHEMA", f"{spec.name} cannot take the columns of {table.name}: {reason}.", at)
    problems.raise_all()
    return replace(spec, columns=table.columns, primary_key=table.primary_key)


def _kind(clauses: SinkClauses) -> type[Sink] | None:
    """The kind of the sink, None where none is named. Raises DeclarationError for one that nobody has."""
    written = clauses.options.get("connector")
    if written is None:
        return None
    at = Location(clauses.written_at.path, written.line)
    return declared_extension("sink", written.value.strip().lower(), SINK_GROUP, SINKS, find_sink, at)


def _refuse_options_of_others(options: Options, kind: type[Sink]) -> None:
    own = {option.name for option in kind.options}
    others: dict[str, list[str]] = {}
    for each in shipped_sinks():
        for option in each.options:
            if option.name not in own:
                for key in options.written(option):
                    others.setdefault(key, []).append(f"'{each.name}'")
    for key, names in others.items():
        options.require(key, f"'connector' = {join_words(names)}", False)


def _written(name: TableName) -> str:
    return ".".join(quoted(part) for part in name.parts)

"""Connectors, sinks, formats, merges, strategies and registrars by name: the shipped ones, and those of other packages.

Another package names its own in the entry points `freshline.connectors`, `freshline.sinks`, `freshline.lookups`,
`freshline.formats`, `freshline.merges`, `freshline.strategies` and `freshline.registrars`. Installed packages are
searched for names that are not shipped, and only then, because the search takes longer than reading a project.

A shipped connector is loaded when it is asked for, so an installation may lack its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from freshline.values.connector import Connector, Position
from freshline.values.extension import forget_packages
from freshline.values.format import Format
from freshline.values.location import Location
from freshline.values.lookup import Lookup
from freshline.values.merge import Merge
from freshline.values.options import SOURCE_OPTIONS, Option, join_words
from freshline.values.registrar import Registrar
from freshline.values.rules import declaration_error, nearest
from freshline.values.sink import Sink

CONNECTORS = {
    "files": "freshline.sources.files.connector:Files",
    "delta": "freshline.sources.delta.connector:Delta",
    "kafka": "freshline.sources.kafka.connector:Kafka",
    "postgres": "freshline.sources.postgres.connector:Postgres",
    "jdbc": "freshline.sources.jdbc.connector:Jdbc",
    "rabbitmq": "freshline.sources.rabbitmq.connector:RabbitMq",
    "kinesis": "freshline.sources.kinesis.connector:Kinesis",
    "http": "freshline.sources.http.connector:Http",
}
SINKS = {
    "jdbc": "freshline.sinks.jdbc.sink:JdbcSink",
    "kafka": "freshline.sinks.kafka.sink:KafkaSink",
    "files": "freshline.sinks.files.sink:FilesSink",
    "opensearch": "freshline.sinks.opensearch.sink:OpenSearchSink",
    "elasticsearch": "freshline.sinks.opensearch.sink:ElasticsearchSink",
    "clickhouse": "freshline.sinks.clickhouse.sink:ClickHouseSink",
    "webhook": "freshline.sinks.webhook.sink:WebhookSink",
}
# Those of sources with 'lookup' = 'true', which are asked for rows by their key.
LOOKUPS = {
    "http": "freshline.sources.http.lookup:HttpLookup",
    "jdbc": "freshline.sources.jdbc.lookup:JdbcLookup",
    "redis": "freshline.sources.redis.lookup:RedisLookup",
}
FORMATS = {
    "json": "freshline.sources.formats.json:Json",
    "csv": "freshline.sources.formats.csv:Csv",
    "parquet": "freshline.sources.formats.rows_in_files:Parquet",
    "orc": "freshline.sources.formats.rows_in_files:Orc",
    "avro": "freshline.sources.formats.avro:Avro",
    "xml": "freshline.sources.formats.xml:Xml",
    "text": "freshline.sources.formats.text:Text",
    "protobuf": "freshline.sources.formats.protobuf:Protobuf",
    "json-schema": "freshline.sources.formats.json_schema:JsonSchema",
    "debezium-json": "freshline.sources.formats.debezium:DebeziumJson",
    "debezium-avro": "freshline.sources.formats.debezium_avro:DebeziumAvro",
}
# Formats that no declaration names: `record_format` of a connector does.
OWN_FORMATS = {
    "pgoutput": "freshline.sources.databases.format:PgOutput",
    "rows": "freshline.sources.databases.format:QueryRows",
}
MERGES = {
    "first_row": "freshline.merges.first_row:FirstRow",
    "last_row": "freshline.merges.last_row:LastRow",
    "partial_update": "freshline.merges.partial_update:PartialUpdate",
    "aggregate": "freshline.merges.aggregate:AggregateMerge",
    "versioned": "freshline.merges.versioned:Versioned",
}
# In the order in which they are asked.
STRATEGIES = {
    "append": "freshline.strategies.append.rule:AppendStrategy",
    "merge": "freshline.strategies.merge.rule:MergeStrategy",
    "partition": "freshline.strategies.partition.rule:PartitionStrategy",
    "keys": "freshline.strategies.keys.rule:KeysStrategy",
}
REGISTRARS = {
    "hive": "freshline.catalogs.hive.registrar:Hive",
    "duckdb": "freshline.catalogs.duckdb.registrar:DuckDb",
}
CONNECTORS_NOT_BUILT = (
    "mysql",
    "debezium",
    "elasticsearch",
    "clickhouse",
    "hdfs",
    "hive",
)
FORMATS_NOT_BUILT = ("debezium",)
CONNECTOR_GROUP = "freshline.connectors"
SINK_GROUP = "freshline.sinks"
LOOKUP_GROUP = "freshline.lookups"
FORMAT_GROUP = "freshline.formats"
STRATEGY_GROUP = "freshline.strategies"
MERGE_GROUP = "freshline.merges"
REGISTRAR_GROUP = "freshline.registrars"
# The base of each group's classes. That of strategies knows plans, so it is loaded when one is asked for.
BASES = {
    CONNECTOR_GROUP: "freshline.values.connector:Connector",
    SINK_GROUP: "freshline.values.sink:Sink",
    LOOKUP_GROUP: "freshline.values.lookup:Lookup",
    FORMAT_GROUP: "freshline.values.format:Format",
    MERGE_GROUP: "freshline.values.merge:Merge",
    STRATEGY_GROUP: "freshline.plan.strategy:RefreshStrategy",
    REGISTRAR_GROUP: "freshline.values.registrar:Registrar",
}

# The groups whose classes stand in specs, and so in the cache of declarations.
# A lookup is a connector too, so its group comes first.
CACHED: dict[str, type[Any]] = {
    LOOKUP_GROUP: Lookup,
    CONNECTOR_GROUP: Connector,
    SINK_GROUP: Sink,
    FORMAT_GROUP: Format,
    MERGE_GROUP: Merge,
}


# The texts that a class of a group has, with what they are.
_NAMED: dict[type[Any], dict[str, str]] = {
    Sink: {
        "title": "its name in sentences",
        "delivery": "what a kill in the middle leaves",
        "writer": "the class that writes, as `module:Class`",
    },
    Registrar: {"title": "its name in sentences"},
}


class ExtensionError(ValueError):
    """A connector, sink, format, merge, strategy, registrar or part of freshline that cannot be used, in a sentence."""


@dataclass(frozen=True)
class OutsideExtension:
    """An extension that another package has; `package` is the name and version of it."""

    group: str
    name: str
    package: str
    entry: EntryPoint


def find_connector(name: str) -> type[Connector]:
    """The connector of this name. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Connector] = _find(name, CONNECTORS, CONNECTOR_GROUP)
    return found


def find_sink(name: str) -> type[Sink]:
    """The sink of this name. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Sink] = _find(name, SINKS, SINK_GROUP)
    return found


def find_lookup(name: str) -> type[Lookup]:
    """The lookup of this name. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Lookup] = _find(name, LOOKUPS, LOOKUP_GROUP)
    return found


def find_format(name: str) -> type[Format]:
    """The format of this name. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Format] = _find(name, {**FORMATS, **OWN_FORMATS}, FORMAT_GROUP)
    return found


def find_merge(name: str) -> type[Merge]:
    """The merge of this name. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Merge] = _find(name, MERGES, MERGE_GROUP)
    return found


def find_strategy(name: str) -> type[Any]:
    """The strategy of this name, a RefreshStrategy. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Any] = _find(name, STRATEGIES, STRATEGY_GROUP)
    return found


def find_registrar(name: str) -> type[Registrar]:
    """The registrar of this name. Raises ExtensionError where there is none, or it cannot be used."""
    found: type[Registrar] = _find(name, REGISTRARS, REGISTRAR_GROUP)
    return found


def _find(name: str, shipped: Mapping[str, str], group: str) -> Any:
    return _shipped(name, shipped[name]) if name in shipped else _from_outside(name, group)


def shipped_connectors() -> tuple[type[Connector], ...]:
    """The connectors that come with freshline, but for those whose folder this installation lacks."""
    return tuple(_installed(find_connector, CONNECTORS))


def shipped_sinks() -> tuple[type[Sink], ...]:
    """The sinks that come with freshline, but for those whose folder this installation lacks."""
    return tuple(_installed(find_sink, SINKS))


def shipped_lookups() -> tuple[type[Lookup], ...]:
    """The lookups that come with freshline, but for those whose folder this installation lacks."""
    return tuple(_installed(find_lookup, LOOKUPS))


def shipped_formats() -> tuple[type[Format], ...]:
    """The formats that come with freshline."""
    return tuple(find_format(name) for name in FORMATS)


def shipped_merges() -> tuple[type[Merge], ...]:
    """The merges that come with freshline."""
    return tuple(find_merge(name) for name in MERGES)


def _installed(find: Callable[[str], type[Any]], names: Iterable[str]) -> Iterator[type[Any]]:
    for name in names:
        with suppress(ExtensionError):
            yield find(name)


def merge_options() -> tuple[Option, ...]:
    """The options that shipped merges have, each name once."""
    return tuple({option.name: option for each in shipped_merges() for option in each.options}.values())


def names_outside(group: str) -> tuple[str, ...]:
    """The names of a group that other packages have; searches the installed packages."""
    return tuple(sorted({each.name for each in outside(group)}))


def shipped_options() -> tuple[str, ...]:
    """The names of all options of sources that come with freshline, but for those with only a beginning."""
    own = [option for each in (*shipped_connectors(), *shipped_lookups()) for option in each.options]
    own += [option for each in shipped_formats() for option in each.options]
    return tuple(dict.fromkeys(option.name for option in (*SOURCE_OPTIONS, *own) if not option.is_beginning))


def outside(group: str) -> tuple[OutsideExtension, ...]:
    """All extensions of a group that other packages have, loaded or not; searches the installed packages."""
    found = []
    for entry in entry_points(group=group):
        distribution = entry.dist
        package = "an unknown package" if distribution is None else f"{distribution.name} {distribution.version}"
        found.append(OutsideExtension(group, entry.name, package, entry))
    return tuple(found)


def load(found: OutsideExtension) -> Any:
    """The class that an entry point names. Raises ExtensionError with the reason where it cannot be had."""
    try:
        loaded = found.entry.load()
    except (Exception, SystemExit) as error:
        raise ExtensionError(
            f"'{found.name}' of {found.package} does not load: {found.entry.value}: {type(error).__name__}: {error}. "
            "Correct the package, or install another version of it."
        ) from error
    of = _shipped(found.group, BASES[found.group])
    if not (isinstance(loaded, type) and issubclass(loaded, of)):
        raise ExtensionError(
            f"'{found.name}' of {found.package} is no {of.__name__}: {found.entry.value} is {loaded!r}. "
            "Correct the entry point."
        )
    if (own := getattr(loaded, "name", None)) != found.name:
        raise ExtensionError(f"'{found.name}' of {found.package} calls itself '{own}'. Give the entry point that name.")
    if missing := _missing(loaded):
        raise ExtensionError(
            f"'{found.name}' of {found.package} cannot be used: {found.entry.value} {missing}. Correct the package, or "
            "install another version of it."
        )
    return loaded


def _missing(kind: type[Any]) -> str:
    """The part that a class of another package lacks, as the end of a sentence; empty where it lacks nothing."""
    if abstract := sorted(getattr(kind, "__abstractmethods__", ())):
        return f"lacks {' and '.join(abstract)}"
    if issubclass(kind, Format):
        codes = getattr(kind, "rejections", None)
        if not isinstance(codes, Mapping) or not codes or not all(code and said for code, said in codes.items()):
            return "has no `rejections`, which are its codes of quarantine with a sentence each"
    if issubclass(kind, Connector):
        if not isinstance(getattr(kind, "title", None), str):
            return "has no `title`, which is its name in sentences"
        of = kind.position
        if kind.is_log and not (isinstance(of, type) and issubclass(of, Position)):
            return "has no `position`, the class of how far a log table has read"
        if of is not None and getattr(of, "kind", None) != kind.name:
            return f"has positions of the kind '{getattr(of, 'kind', None)}', and their `kind` is its name"
    for seam, named in _NAMED.items():
        for attribute, sentence in named.items() if issubclass(kind, seam) else ():
            if not isinstance(getattr(kind, attribute, None), str):
                return f"has no `{attribute}`, which is {sentence}"
    options = getattr(kind, "options", ())
    if not isinstance(options, tuple) or not all(isinstance(each, Option) for each in options):
        return "has `options` that are no tuple of Option"
    return ""


E = TypeVar("E", bound=type[Any])


def declared_extension(
    kind: str, name: str, group: str, shipped: Collection[str], find: Callable[[str], E], at: Location
) -> E:
    """The connector, sink, format or merge of a declaration, by `find`; `shipped` are the names that freshline has.

    Raises DeclarationError (EXTENSION) for a name that nobody has, and for one that cannot be used.
    """
    if name not in shipped and name not in (others := names_outside(group)):
        known = (*shipped, *others)
        raise declaration_error(
            "EXTENSION",
            f"{kind} '{name}' does not come with freshline, and no installed package has it.{nearest(name, known)} "
            f"Install the package that it is of, or correct the name. There are {join_words(known)}.",
            at,
        )
    try:
        return find(name)
    except ExtensionError as error:
        raise declaration_error("EXTENSION", f"{kind} {error}", at) from error


def origin(kind: type[Any]) -> str:
    """The package of a connector, sink, format or merge, and when its module changed; empty for a shipped one.

    A declaration that was read with another origin is read anew.
    """
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    group = next(group for group, base in CACHED.items() if issubclass(kind, base))
    return _origin(kind.name, kind.__module__, group)


@cache
def _origin(name: str, module: str, group: str) -> str:
    packages = [each.package for each in outside(group) if each.name == name]
    file = getattr(import_module(module), "__file__", None)
    return f"{' '.join(packages)} {Path(file).stat().st_mtime_ns if file else ''}"


@cache
def _from_outside(name: str, group: str) -> Any:
    found = [each for each in outside(group) if each.name == name]
    if not found:
        raise ExtensionError(f"no installed package has '{name}'. Install the one that it is of.")
    if len(found) > 1:
        packages = " and ".join(sorted(each.package for each in found))
        raise ExtensionError(f"'{name}' is in {packages}. Uninstall all but one of them.")
    return load(found[0])


@cache
def _shipped(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    with optional_part(f"'{name}'"):
        return getattr(import_module(module), attribute)


@contextmanager
def optional_part(what: str) -> Iterator[None]:
    """Import a part of freshline that an installation may lack; raises ExtensionError where it does."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] != "freshline":
            raise
        raise ExtensionError(
            f"{what} is not in this installation of freshline, which lacks {missing}. Install freshline with all "
            "of its folders."
        ) from error


def forget_outside() -> None:
    """Search installed packages again for every name, after some were installed into a process that runs."""
    _from_outside.cache_clear()
    _origin.cache_clear()
    forget_packages()

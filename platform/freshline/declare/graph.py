"""The declared tables and sources as one graph, in order.

Built once from values, then only read. Whoever has a Graph may rely on it: every name that is read is declared,
there is no circle, every table has a freshness that what drives it can deliver, and a mode with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations

from freshline.declare.model import ModelSpec
from freshline.errors import RequestError
from freshline.sql.clauses import Declaration
from freshline.values.freshness import Freshness
from freshline.values.mode import driving_inputs, resolve_mode
from freshline.values.names import TableName
from freshline.values.rules import Problems, nearest
from freshline.values.spec import Downstream, Mode, SourceSpec, Spec, TableSpec

# Tables that freshline keeps beside those that are declared.
QUARANTINE = "__quarantine"
FILES = "__file"
REJECTED = "__rejected"
ANSWERS = "__answer"
# So begin the tables of freshline itself, and the views under which queries read names with a namespace.
RESERVED_PREFIX = "freshline_"


@dataclass(frozen=True)
class Thresholds:
    """The freshness and the thresholds of modes of a project, for declarations without their own."""

    default_freshness: Freshness
    continuous_below: Freshness
    incremental_below: Freshness


DEFAULT_THRESHOLDS = Thresholds(Freshness(86_400), Freshness(60), Freshness(1_800))


@dataclass(frozen=True)
class Graph:
    """All declarations by name; `order` has sources first, and every table behind what it reads.

    `freshnesses` and `modes` are those in force. `overrides` are freshnesses that win over the declared ones (see
    `with_freshness`); `declared` are those that they replace, empty where there are none. `models` are no part of
    `specs`: nothing is refreshed for them.
    """

    specs: Mapping[TableName, Spec]
    order: tuple[TableName, ...]
    freshnesses: Mapping[TableName, Freshness]
    modes: Mapping[TableName, tuple[Mode, str]]
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    overrides: Mapping[TableName, Freshness] = field(default_factory=dict)
    declared: Mapping[TableName, Freshness] = field(default_factory=dict)
    models: Mapping[TableName, ModelSpec] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.specs

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def tables(self) -> tuple[TableSpec, ...]:
        """All tables in order."""
        return tuple(spec for spec in (self.specs[name] for name in self.order) if isinstance(spec, TableSpec))

    @cached_property
    def verified(self) -> tuple[TableSpec, ...]:
        """All tables and sinks in order whose rows can be compared: without sinks that nobody can read."""
        return tuple(spec for spec in self.tables if spec.sink is None or spec.sink.can_be_read)

    @cached_property
    def sources(self) -> tuple[SourceSpec, ...]:
        """All sources in order."""
        return tuple(spec for spec in (self.specs[name] for name in self.order) if isinstance(spec, SourceSpec))

    @cached_property
    def kept(self) -> tuple[TableName, ...]:
        """The tables and sources that freshline keeps fresh, in order: all but the sources that are read in place."""
        return tuple(name for name in self.order if is_brought_in(self.specs[name]))

    def spec(self, name: TableName) -> Spec:
        """The declaration of a name; raises KeyError, with the nearest name, where there is none."""
        try:
            return self.specs[name]
        except KeyError:
            raise KeyError(self.unknown(name)) from None

    def require(self, name: TableName) -> Spec:
        """The declaration of a name that somebody gave; raises RequestError, with the nearest name, for no name."""
        if name not in self:
            raise RequestError(self.unknown(name))
        return self.specs[name]

    def is_sink(self, name: TableName) -> bool:
        """Whether a name is that of a sink, whose rows are in another system."""
        return _is_sink(self.spec(name))

    def require_rows(self, name: TableName) -> Spec:
        """As `require`, of a name whose rows are here; raises RequestError for a sink."""
        spec = self.require(name)
        if isinstance(spec, TableSpec) and spec.sink is not None:
            raise RequestError(
                f"{spec.name} is a sink, and its rows are in {spec.sink.title}. Read its table, {spec.reads[0]}.",
                where=str(spec.name),
            )
        return spec

    def unknown(self, name: TableName) -> str:
        """The sentence about a name that nothing has, with the nearest one."""
        return f"there is no table or source {name}.{nearest(str(name), map(str, self.order))}"

    def table(self, name: TableName) -> TableSpec:
        """The declared table of a name; raises KeyError where there is none, or a source."""
        spec = self.spec(name)
        if not isinstance(spec, TableSpec):
            raise KeyError(f"{name} is a source, not a table")
        return spec

    def source(self, name: TableName) -> SourceSpec:
        """The declared source of a name; raises KeyError where there is none, or a table."""
        spec = self.spec(name)
        if not isinstance(spec, SourceSpec):
            raise KeyError(f"{name} is a table, not a source")
        return spec

    def freshness(self, name: TableName) -> Freshness:
        """The freshness in force: of an override, stated, inherited from consumers, or the project's default."""
        return self.freshnesses[self.spec(name).name]

    def declared_freshness(self, name: TableName) -> Freshness:
        """The freshness without any override."""
        return (self.declared or self.freshnesses)[self.spec(name).name]

    def with_freshness(self, overrides: Mapping[TableName, Freshness]) -> Graph:
        """The same declarations with these freshnesses in place of the declared ones, and no others.

        Modes follow, and so do inputs that inherit from their consumers. Names that are no tables of the graph are
        left out. It never raises: an override that is tighter than what drives the table delivers is a promise that is
        not kept (see `slower_inputs`), not a reason to have no graph.
        """
        chosen = {spec.name: overrides[spec.name] for spec in self.tables if spec.name in overrides}
        if chosen == self.overrides:
            return self
        stated = {name: chosen.get(name) or _stated(spec) for name, spec in self.specs.items()}
        found = _inherit(stated, self.specs, self.order)
        freshnesses = {name: freshness or self.thresholds.default_freshness for name, freshness in found.items()}
        modes = {
            name: self.modes[name]
            if freshnesses[name] == self.freshnesses[name]
            else resolve_mode(
                spec, freshnesses[name], self.thresholds.continuous_below, self.thresholds.incremental_below
            )
            for name, spec in self.specs.items()
        }
        return replace(
            self, freshnesses=freshnesses, modes=modes, overrides=chosen, declared=self.declared or self.freshnesses
        )

    def slower_inputs(self, name: TableName) -> tuple[TableName, ...]:
        """The inputs that drive the table and deliver later than its freshness allows."""
        own = self.freshness(name)
        return tuple(
            read
            for read in self.driving(name)
            # A source that is read in place has, at every moment, all that there is: its freshness is the rhythm of
            # whoever writes it, and delays nothing.
            if is_brought_in(self.specs[read]) and self.freshnesses[read] > own
        )

    def mode(self, name: TableName) -> Mode:
        return self.modes[self.spec(name).name][0]

    def mode_reason(self, name: TableName) -> str:
        """A sentence, such as `freshness 10 seconds is below 1 minute`."""
        return self.modes[self.spec(name).name][1]

    def columns(self, name: TableName) -> tuple[str, ...] | None:
        """The names of the columns; None for a table written in Python, which only Spark knows."""
        return columns_of(self.spec(name))

    def with_beside(self, names: Iterable[TableName]) -> tuple[TableName, ...]:
        """The names, and behind each table those that its declaration makes too: of late rows, and side outputs."""
        beside: dict[TableName, list[TableName]] = {}
        for table in self.tables:
            if table.declared_with is not None:
                beside.setdefault(table.declared_with, []).append(table.name)
        return tuple(dict.fromkeys(each for name in names for each in (name, *beside.get(name, ()))))

    def reads(self, name: TableName) -> tuple[TableName, ...]:
        """The inputs that a table reads itself; nothing for a source."""
        spec = self.spec(name)
        return spec.reads if isinstance(spec, TableSpec) else ()

    def consumers(self, name: TableName) -> tuple[TableName, ...]:
        """The tables that read this one themselves, in order."""
        return self._consumers.get(name, ())

    def upstream(self, name: TableName) -> tuple[TableName, ...]:
        """Everything that the table depends on, near or far, in order."""
        return self._closure(name, self.reads)

    def downstream(self, name: TableName) -> tuple[TableName, ...]:
        """Everything that depends on the table, near or far, in order."""
        return self._closure(name, self.consumers)

    def driving(self, name: TableName) -> tuple[TableName, ...]:
        """The inputs that a table's lag is measured by."""
        spec = self.spec(name)
        return driving_inputs(spec) if isinstance(spec, TableSpec) else ()

    def driving_upstream(self, name: TableName) -> tuple[TableName, ...]:
        """Everything that drives the table, near or far, in order."""
        return self._closure(name, self.driving)

    def driven(self, name: TableName) -> tuple[TableName, ...]:
        """All tables that the table drives, directly or not, in order: those below it in rule 11 of docs/rules.md."""
        return self._closure(
            name, lambda each: [reader for reader in self.consumers(each) if each in self.driving(reader)]
        )

    def roots(self, name: TableName) -> tuple[TableName, ...]:
        """The sources that drive the table, near or far, in order; a source is its own root."""
        if isinstance(self.spec(name), SourceSpec):
            return (self.spec(name).name,)
        found = self._closure(name, self.driving)
        return tuple(other for other in found if isinstance(self.specs[other], SourceSpec))

    @cached_property
    def meeting(self) -> frozenset[TableName]:
        """The tables on one of two ways from a shared source that a table below joins again.

        A table that reads two inputs which share a source reads versions that contain the same of it. So how much they
        contain counts for everything on both ways, also where it changes no row. An input that does not drive is read
        no further than those that do.
        """
        found = set(self._meetings)
        for table in self.tables:
            behind = frozenset(root for name in table.driving if name in table.non_driving for root in self.roots(name))
            for name in self.driving(table.name):
                shared = behind.intersection(self.roots(name))
                found.update(self._way(name, shared) if shared else ())
        return frozenset(found)

    def meetings(self, name: TableName) -> tuple[tuple[TableName, TableName], ...]:
        """The tables below where a second way joins this table's, each with a table on the second way, in order."""
        return self._meetings.get(name, ())

    @cached_property
    def _meetings(self) -> Mapping[TableName, tuple[tuple[TableName, TableName], ...]]:
        found: dict[TableName, dict[tuple[TableName, TableName], None]] = {}
        for table in self.tables:
            ways = [(name, frozenset(self.roots(name))) for name in self.driving(table.name)]
            for one, other in permutations(ways, 2):
                shared = one[1] & other[1]
                across = self._way(other[0], shared) if shared else ()
                for name in self._way(one[0], shared) if shared else ():
                    pairs = found.setdefault(name, {})
                    pairs.update({(table.name, each): None for each in across if each != name})
        return {name: tuple(pairs) for name, pairs in found.items()}

    def _way(self, name: TableName, roots: frozenset[TableName]) -> tuple[TableName, ...]:
        """The tables from sources down to this one, itself included."""
        above = (*self.driving_upstream(name), name)
        return tuple(
            each for each in above if isinstance(self.specs[each], TableSpec) and not roots.isdisjoint(self.roots(each))
        )

    @cached_property
    def _consumers(self) -> Mapping[TableName, tuple[TableName, ...]]:
        found: dict[TableName, list[TableName]] = {}
        for name in self.order:
            for read in self.reads(name):
                found.setdefault(read, []).append(name)
        return {name: tuple(readers) for name, readers in found.items()}

    def _closure(self, name: TableName, step: Callable[[TableName], Iterable[TableName]]) -> tuple[TableName, ...]:
        seen: set[TableName] = set()
        waiting = list(step(name))
        while waiting:
            other = waiting.pop()
            if other not in seen:
                seen.add(other)
                waiting.extend(step(other))
        return tuple(other for other in self.order if other in seen)


def columns_of(spec: Spec) -> tuple[str, ...] | None:
    """The names of the columns that readers see, None where only Spark knows them."""
    if isinstance(spec, SourceSpec):
        return tuple(column.name for column in spec.columns)
    return spec.columns


def arrange(declarations: Iterable[Declaration], broken: frozenset[TableName], problems: Problems) -> list[Declaration]:
    """Declarations in the order of the graph, sources first, then by name wherever the graph leaves a choice.

    `broken` are names whose files have errors of their own: reading them is not an error here. Names that are
    declared twice, unknown, colliding or in a circle are added to `problems`, and left out where they must be.
    """
    known = _unique(declarations, problems)
    _check_names(known, problems)
    _check_upstreams(known, broken, problems)
    reads = {
        name: [read for read in d.spec.reads if read in known] if isinstance(d.spec, TableSpec) else []
        for name, d in known.items()
    }
    order = sorted(name for name, d in known.items() if isinstance(d.spec, SourceSpec))
    placed = set(order)
    waiting = sorted(name for name in known if name not in placed)
    while waiting:
        # One at a time, the first by name of those that can stand here: the order is the same on every machine.
        ready = next((name for name in waiting if all(read in placed for read in reads[name])), None)
        if ready is None:
            _report_cycles(waiting, reads, known, problems)
            break
        order.append(ready)
        placed.add(ready)
        waiting.remove(ready)
    return [known[name] for name in order]


def build_graph(declarations: Sequence[Declaration], thresholds: Thresholds, problems: Problems) -> Graph:
    """The graph of declarations that are in order and whose columns are known.

    The freshness and the mode of each are decided here; what cannot be had is added to `problems`.
    """
    by_name = {declaration.spec.name: declaration for declaration in declarations}
    freshnesses = _freshnesses(by_name, [d.spec.name for d in declarations], thresholds, problems)
    specs: dict[TableName, Spec] = {}
    modes: dict[TableName, tuple[Mode, str]] = {}
    for declaration in declarations:
        spec, name = declaration.spec, declaration.spec.name
        if isinstance(spec, TableSpec) and not declaration.freshness_stated:
            spec = replace(spec, freshness=thresholds.default_freshness)
        specs[name] = spec
        try:
            modes[name] = resolve_mode(
                spec, freshnesses[name], thresholds.continuous_below, thresholds.incremental_below
            )
        except ValueError as error:
            problems.add("REFRESH_MODE", f"{name}: {error}", declaration.at("REFRESH_MODE"))
    return Graph(specs, tuple(by_name), freshnesses, modes, thresholds)


# -- names


def _unique(declarations: Iterable[Declaration], problems: Problems) -> dict[TableName, Declaration]:
    known: dict[TableName, Declaration] = {}
    for declaration in sorted(declarations, key=lambda d: (d.spec.name, d.spec.written_at)):
        name = declaration.spec.name
        if name in known:
            problems.add(
                "DUPLICATE_NAME",
                f"{name} is also declared in {known[name].spec.written_at}. Names are equal in any letter case: rename "
                "or remove one.",
                declaration.spec.written_at,
            )
        else:
            known[name] = declaration
    return known


def _check_names(known: Mapping[TableName, Declaration], problems: Problems) -> None:
    namespaces = {name.namespace.lower(): name for name in known if name.namespace}
    for name, declaration in known.items():
        at = declaration.spec.written_at
        if any(part.lower().startswith(RESERVED_PREFIX) for part in name.parts):
            problems.add(
                "RESERVED_NAME",
                f"{name}: names that begin with {RESERVED_PREFIX} are freshline's own. Take another.",
                at,
            )
        if name.namespace is None and name.name.lower() in namespaces:
            problems.add(
                "PATH_COLLISION",
                f"{name} and {namespaces[name.name.lower()]} would lie in one folder of the warehouse: a name cannot "
                "also be a namespace. Rename one.",
                at,
            )
        for suffix in (QUARANTINE, FILES, ANSWERS):
            if not name.name.lower().endswith(suffix):
                continue
            log = known.get(TableName(name.namespace, name.name[: -len(suffix)] or "_"))
            if log is None or not isinstance(log.spec, SourceSpec):
                continue
            if log.spec.is_lookup if suffix == ANSWERS else log.spec.is_log:
                problems.add(
                    "PATH_COLLISION",
                    f"{name} would lie where freshline keeps a table of its own beside {log.spec.name}. Rename one.",
                    at,
                )
        if name.name.lower().endswith(REJECTED):
            sink = known.get(TableName(name.namespace, name.name[: -len(REJECTED)] or "_"))
            if sink is not None and isinstance(sink.spec, TableSpec) and sink.spec.sink is not None:
                problems.add(
                    "PATH_COLLISION",
                    f"{name} would lie where freshline keeps what {sink.spec.name} does not take. Rename one.",
                    at,
                )


def _check_upstreams(known: Mapping[TableName, Declaration], broken: frozenset[TableName], problems: Problems) -> None:
    for name, declaration in known.items():
        spec = declaration.spec
        if not isinstance(spec, TableSpec):
            continue
        for read in spec.reads:
            if read not in known and read not in broken:
                others = [str(other) for other in (*known, *broken) if other != name]
                problems.add(
                    "UNKNOWN_UPSTREAM",
                    f"{name} reads {read}, which is not declared.{nearest(str(read), others)} "
                    f"Declare it in a file of its own, or correct the name.",
                    declaration.at(f"reads {str(read).lower()}"),
                )
            elif spec.sink is None and read in known and _is_sink(known[read].spec):
                problems.add(
                    "SINK_TABLE",
                    f"{name} reads {read}, which is a sink: its rows are in another system. Read the table that it is "
                    "from.",
                    declaration.at(f"reads {str(read).lower()}"),
                )


def _report_cycles(
    waiting: Sequence[TableName],
    reads: Mapping[TableName, Sequence[TableName]],
    known: Mapping[TableName, Declaration],
    problems: Problems,
) -> None:
    left, told = set(waiting), set[TableName]()
    for start in waiting:
        if start in told:
            continue
        path = _way_back(start, reads, left)
        if path is None:
            continue  # it only reads tables that are in a circle
        told.update(path)
        shown = " reads ".join(str(name) for name in (*path, start))
        problems.add(
            "CYCLE",
            f"{shown}. Tables that read each other have no order: remove one of these reads.",
            known[start].spec.written_at,
        )


def _way_back(
    start: TableName, reads: Mapping[TableName, Sequence[TableName]], left: set[TableName]
) -> list[TableName] | None:
    """The shortest path from a table through its inputs back to itself."""
    came_from: dict[TableName, TableName] = {}
    waiting = [start]
    for name in waiting:
        for read in sorted(reads[name]):
            if read == start:
                path = [name]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if read in left and read not in came_from:
                came_from[read] = name
                waiting.append(read)
    return None


# -- freshness


def is_brought_in(spec: Spec) -> bool:
    """Whether rows of it must first be brought in by us: all but sources that are read in place."""
    return spec.is_log if isinstance(spec, SourceSpec) else True


def _freshnesses(
    by_name: Mapping[TableName, Declaration], order: Sequence[TableName], thresholds: Thresholds, problems: Problems
) -> dict[TableName, Freshness]:
    specs = {name: declaration.spec for name, declaration in by_name.items()}
    stated = {
        name: thresholds.default_freshness
        if isinstance(declaration.spec, TableSpec) and not declaration.freshness_stated
        else _stated(declaration.spec)
        for name, declaration in by_name.items()
    }
    found: dict[TableName, Freshness] = {}
    for name, freshness in _inherit(stated, specs, order).items():
        if freshness is None and isinstance(specs[name], TableSpec) and not _is_sink(specs[name]):
            problems.add(
                "FRESHNESS_DOWNSTREAM",
                f"FRESHNESS = DOWNSTREAM, but no table reads {name}. State a freshness, such as INTERVAL '1' HOUR.",
                by_name[name].at("FRESHNESS"),
            )
        found[name] = freshness or thresholds.default_freshness
    for name in order:
        _check_upstream_freshness(by_name[name], by_name, found, problems)
    return found


def _inherit(
    stated: Mapping[TableName, Freshness | None], specs: Mapping[TableName, Spec], order: Sequence[TableName]
) -> dict[TableName, Freshness | None]:
    """The freshness of each, None where nothing is stated and no consumer has one.

    From consumers to inputs, so that what is inherited is known. A table that comes with another and that nobody reads
    is as fresh as that one, and reads the same.
    """
    asked: dict[TableName, list[tuple[bool, Freshness]]] = {}
    found: dict[TableName, Freshness | None] = {}
    for name in reversed(order):
        freshness = found[name] = stated[name] or _tightest(asked.get(name, []))
        spec = specs[name]
        if isinstance(spec, TableSpec) and freshness is not None:
            for read in spec.reads:
                asked.setdefault(read, []).append((read not in spec.non_driving, freshness))
    whole = {name: found[name] or _of_main_table(specs[name], found) for name in order}
    # A sink without one of its own is as fresh as its table.
    return {name: whole[name] or _of_sink(specs[name], whole) for name in order}


def _is_sink(spec: Spec) -> bool:
    return isinstance(spec, TableSpec) and spec.sink is not None


def _of_sink(spec: Spec, found: Mapping[TableName, Freshness | None]) -> Freshness | None:
    return found.get(spec.reads[0]) if isinstance(spec, TableSpec) and spec.sink is not None else None


def _of_main_table(spec: Spec, found: Mapping[TableName, Freshness | None]) -> Freshness | None:
    main = spec.declared_with if isinstance(spec, TableSpec) else None
    return None if main is None else found.get(main)


def _stated(spec: Spec) -> Freshness | None:
    """The freshness of the declaration itself; None where it is inherited from consumers."""
    return spec.freshness if isinstance(spec.freshness, Freshness) else None


def _tightest(asked: Sequence[tuple[bool, Freshness]]) -> Freshness | None:
    """The freshness that consumers ask for; those that the table does not drive count only without any others."""
    counted = [freshness for counts, freshness in asked if counts] or [freshness for _, freshness in asked]
    return min(counted, default=None)


def _check_upstream_freshness(
    declaration: Declaration,
    by_name: Mapping[TableName, Declaration],
    found: Mapping[TableName, Freshness],
    problems: Problems,
) -> None:
    spec = declaration.spec
    if not isinstance(spec, TableSpec) or spec.freshness is Downstream.DOWNSTREAM:
        return
    for read in driving_inputs(spec):
        # As in Graph.slower_inputs.
        in_place = read in by_name and not is_brought_in(by_name[read].spec)
        if read not in by_name or in_place or found[read] <= found[spec.name]:
            continue
        own = found[spec.name].describe()
        stated = f"freshness {own}" if declaration.freshness_stated else f"freshness {own} (the project's default)"
        upstream = by_name[read]
        problems.add(
            "FRESHNESS_UPSTREAM",
            f"{stated} is tighter than {read} delivers, which drives {spec.name} and has freshness "
            f"{found[read].describe()} ({upstream.at('FRESHNESS')}). Give {read} FRESHNESS = DOWNSTREAM or a tighter "
            f"one, {spec.name} a longer one, or name {read} in 'non-driving'.",
            declaration.at("FRESHNESS"),
        )

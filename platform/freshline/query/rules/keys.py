"""Keys: from a query and the inputs that changed to the keys of the result that may be affected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from freshline.query.clock import ClockSpan
from freshline.query.exactness import Exactness, read_exactness
from freshline.query.resolved import Lifted, ResolvedQuery
from freshline.query.rules.key_columns import Context, choose_columns, find_keys, refuse_disorder
from freshline.query.rules.time_distance import TimeDistance, find_time_distances
from freshline.query.tree import (
    NotDerivedError,
    RelationState,
    Types,
    is_view,
    read_as,
    relations_in,
    rename,
    sources_of,
    sql,
    unsupported,
    view_of,
)
from freshline.values.reason import Reason

# The end of the name of a stage that has the rows of its query, and no more.
WRITTEN = "_written"


@dataclass(frozen=True)
class QueryStage:
    """A query inside the query whose inputs changed or not, made a relation of its own.

    `new` and `old` are its rows; `old` is None where none of its inputs changed. Either `changed` are queries that
    together give its changed rows, or `keys` give values of `key_columns`: its changed rows are those of `new` and
    `old` that have them. Where it is `exact`, a row that is in both has not changed.
    """

    relation: str
    new: str
    old: str | None = None
    changed: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    exact: bool = False

    def at(self, clock: ClockSpan) -> QueryStage:
        """The stage for two instants."""
        old = None if self.old is None else clock.fill(self.old)
        changed, keys = (tuple(map(clock.fill, texts)) for texts in (self.changed, self.keys))
        return replace(self, new=clock.fill(self.new), old=old, changed=changed, keys=keys)


@dataclass(frozen=True)
class Affected:
    """A search for the keys of a table that changes of some inputs may affect.

    A row of the table whose values of `columns` (names of the table, in lower case) come from none of `queries` is the
    same before and after; without queries no row changes. `stages` are made first, in order. Each of `guards` is a
    query that must give no row, with the reason for a full refresh where it does. `whole` is the query itself over
    views of the new rows, as it was understood here: Spark must find it to be the query that was declared. `reaches`
    say how far from the times of a key the rows of an input lie that its rows follow from.
    """

    columns: tuple[str, ...]
    whole: str
    stages: tuple[QueryStage, ...]
    queries: tuple[str, ...]
    guards: tuple[tuple[str, Reason], ...] = ()
    reaches: tuple[TimeDistance, ...] = ()

    def at(self, clock: ClockSpan) -> Affected:
        """The same for two instants, of a query with temporal filters."""
        return replace(
            self,
            whole=clock.fill(self.whole),
            stages=tuple(stage.at(clock) for stage in self.stages),
            queries=tuple(map(clock.fill, self.queries)),
            guards=tuple((clock.fill(guard), reason) for guard, reason in self.guards),
        )


@lru_cache(maxsize=1024)
def find_affected(
    query: ResolvedQuery, changed: frozenset[str], *, primary_key: tuple[str, ...] = (), by_time: bool = True
) -> Affected | Reason:
    """The keys of a query's result that changes of some inputs may affect, or the reason why they are not known.

    `changed` are the relations, in lower case, that gained, lost or altered rows, and the time where it moved.
    `primary_key` are columns that are unique in the result, which are preferred where the changed rows themselves are
    known. With `by_time` the time of a join by intervals is put beside them. Pure.
    """
    try:
        _require_free_names(relation for relation, _ in query.relations)
        refuse_disorder(query.tree)
        exactness = read_exactness(query)
        lifted = exactness.lifted
        known = {item.relation: item for item in lifted.stages}
        context = Context(frozenset(name.lower() for name in changed), known, exactness, types=query.known_types)
        stages = [_stage(item, context) for item in lifted.stages]
        found = find_keys(lifted.top.query, context)
        columns = found.columns or choose_columns(
            lifted.top.query, context, tuple(column.lower() for column in primary_key)
        )
        if by_time and found.columns is None and primary_key:
            columns += _time_of_joins(query, lifted.top, columns, exactness)
        queries = found.select(columns)
        guards = {
            sql(read_as(guard, reading, context.changed), copy=False): reason
            for guard, reason in context.guards
            for reading in (RelationState.NEW, RelationState.OLD)
        }
    except NotDerivedError as error:
        return error.reason
    written, whole = _as_written(exactness, context.changed)
    reaches = tuple(
        reach for column in columns for reach in _of_times(find_time_distances(query, column), query.known_types)
    )
    return Affected(columns, whole, (*stages, *written), tuple(queries), tuple(guards.items()), reaches)


def understood(query: ResolvedQuery, changed: frozenset[str]) -> Affected | Reason:
    """A query as it is understood, without a search for keys; or the reason why it is not understood.

    For a result of which a part is known without keys. `changed` are as for `find_affected`. Pure.
    """
    try:
        _require_free_names(relation for relation, _ in query.relations)
        refuse_disorder(query.tree)
        exactness = read_exactness(query)
        stages = tuple(
            QueryStage(item.relation, sql(read_as(exactness.wide(item.query), RelationState.NEW, changed), copy=False))
            for item in exactness.lifted.stages
        )
    except NotDerivedError as error:
        return error.reason
    written, whole = _as_written(exactness, changed)
    return Affected((), whole, (*stages, *written), ())


def _time_of_joins(
    query: ResolvedQuery, top: Lifted, columns: tuple[str, ...], exactness: Exactness
) -> tuple[str, ...]:
    """A column with the time by which several inputs are joined, so that less of them is read; empty without one."""
    if not isinstance(top.query, exp.Select) or len(sources_of(top.query)) < 2:
        return ()
    known = [find_time_distances(query, name) for name in columns]
    if any(len({reach.relation for reach in _of_times(found, query.known_types)}) > 1 for found in known):
        return ()
    for name in exactness.exact_columns(top.query):
        if name not in columns:
            found = _of_times(find_time_distances(query, name), query.known_types)
            if len({reach.relation for reach in found}) > 1:
                return (name,)
    return ()


def _of_times(reaches: tuple[TimeDistance, ...], types: Types) -> tuple[TimeDistance, ...]:
    """Those of inputs whose columns are known to have timestamps in all readings."""
    others = {
        reach.relation
        for reach in reaches
        if types.get(reach.relation, {}).get(reach.column, "").upper() != "TIMESTAMP"
    }
    return tuple(reach for reach in reaches if reach.relation not in others)


def _as_written(exactness: Exactness, changed: frozenset[str]) -> tuple[list[QueryStage], str]:
    """The query itself, and stages for those of its queries of which more rows are read for keys than they have."""
    lifted = exactness.lifted
    loose: set[str] = set()

    def text_of(item: Lifted) -> str:
        query = exactness.written(item).copy()
        for table in query.find_all(exp.Table):
            if table.name in loose:
                rename(table, view_of(RelationState.NEW, f"{table.name}{WRITTEN}"))
        return sql(read_as(query, RelationState.NEW, changed), copy=False)

    stages = []
    for item in lifted.stages:
        if item.relation in exactness.loose or relations_in(exactness.written(item)) & loose:
            stages.append(QueryStage(f"{item.relation}{WRITTEN}", text_of(item)))
            loose.add(item.relation)
    return stages, text_of(lifted.top)


def _require_free_names(relations: Iterable[str]) -> None:
    for relation in relations:
        if is_view(relation):
            raise unsupported(f"an input called {relation}, as freshline calls its views")


def _stage(item: Lifted, context: Context) -> QueryStage:
    wide = context.exactness.wide(item.query)
    new = sql(read_as(wide, RelationState.NEW, context.changed), copy=False)
    if not relations_in(context.exactness.written(item)) & context.changed:
        return QueryStage(item.relation, new)
    old = sql(read_as(wide, RelationState.OLD, context.changed), copy=False)
    found = find_keys(item.query, replace(context, inner=True))
    # From here on the stage is a relation that changed.
    if found.columns is None:
        stage = QueryStage(item.relation, new, old, changed=tuple(found.select(item.columns)))
    else:
        # A row that is there by a condition which was left out may come and go while the rows that are read stay.
        steady = context.exactness.rows[item.relation].steady
        exact = steady and set(item.columns) <= set(context.exactness.exact_columns(item.query))
        keys = tuple(found.select(found.columns))
        stage = QueryStage(item.relation, new, old, key_columns=found.columns, keys=keys, exact=exact)
        context.key_columns[item.relation] = found.columns
    context.changed = context.changed | {item.relation}
    return stage

"""From a query and the inputs that changed to the keys of the result that may be affected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from freshline.plan.affected.exactness import Exactness
from freshline.plan.affected.lift import Lifted, LiftedQuery, lift
from freshline.plan.affected.qualified import qualify_query
from freshline.plan.affected.shapes import Context, choose_columns, find_keys, refuse_disorder
from freshline.plan.affected.tree import read_as, relations_in, rename, sql, unsupported
from freshline.plan.affected.values import Affected, NotDerivedError, Reading, Stage, Types, is_view, view_of
from freshline.plan.reason import Reason

# What is behind the name of a stage that has the rows of its query, and no more.
WRITTEN = "_written"


def find_affected(
    text: str,
    schema: Mapping[str, Sequence[str]],
    changed: frozenset[str],
    *,
    primary_key: Sequence[str] = (),
    types: Types | None = None,
) -> Affected | Reason:
    """The keys of a query's result that changes of some inputs may affect, or the reason why they are not known.

    `text` is Spark SQL over the relations of `schema` (names of inputs in lower case, each with its columns);
    `changed` are those that gained, lost or altered rows. `primary_key` are columns that are unique in the result,
    which are preferred where the changed rows themselves are known. `types` are the types of columns by relation, both
    in lower case, where they are known: they make some answers cheaper. Pure.
    """
    try:
        _require_free_names(schema)
        tree = qualify_query(text, schema)
        refuse_disorder(tree)
        lifted = lift(tree)
        known = {item.relation: item for item in lifted.stages}
        exactness = Exactness(lifted, types or {})
        context = Context(frozenset(name.lower() for name in changed), known, exactness, types=types or {})
        stages = [_stage(item, context) for item in lifted.stages]
        found = find_keys(lifted.top.query, context)
        columns = found.columns or choose_columns(
            lifted.top.query, context, tuple(column.lower() for column in primary_key)
        )
        queries = found.select(columns)
        guards = {
            sql(read_as(query, reading, context.changed)): reason
            for query, reason in context.guards
            for reading in (Reading.NEW, Reading.OLD)
        }
    except NotDerivedError as error:
        return error.reason
    written, whole = _as_written(lifted, exactness, context.changed)
    return Affected(columns, whole, (*stages, *written), tuple(queries), tuple(guards.items()))


def _as_written(lifted: LiftedQuery, exactness: Exactness, changed: frozenset[str]) -> tuple[list[Stage], str]:
    """The query itself, and stages for those of its queries of which more rows are read for keys than they have."""
    loose: set[str] = set()

    def text_of(item: Lifted) -> str:
        query = exactness.written(item).copy()
        for table in query.find_all(exp.Table):
            if table.name in loose:
                rename(table, view_of(Reading.NEW, f"{table.name}{WRITTEN}"))
        return sql(read_as(query, Reading.NEW, changed))

    stages = []
    for item in lifted.stages:
        if item.relation in exactness.loose or relations_in(item.query) & loose:
            stages.append(Stage(f"{item.relation}{WRITTEN}", text_of(item)))
            loose.add(item.relation)
    return stages, text_of(lifted.top)


def _require_free_names(relations: Iterable[str]) -> None:
    for relation in relations:
        if is_view(relation):
            raise unsupported(f"an input called {relation}, as freshline calls its views")


def _stage(item: Lifted, context: Context) -> Stage:
    wide = context.exactness.wide(item.query)
    new = sql(read_as(wide, Reading.NEW, context.changed))
    if not relations_in(item.query) & context.changed:
        return Stage(item.relation, new)
    old = sql(read_as(wide, Reading.OLD, context.changed))
    found = find_keys(item.query, context)
    # From here on the stage is a relation that changed.
    if found.columns is None:
        stage = Stage(item.relation, new, old, changed=tuple(found.select(item.columns)))
    else:
        stage = Stage(item.relation, new, old, key_columns=found.columns, keys=tuple(found.select(found.columns)))
        context.key_columns[item.relation] = found.columns
    context.changed = context.changed | {item.relation}
    return stage

"""From a query and the inputs that changed to the keys of the result that may be affected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from freshline.plan.affected.alone import Types
from freshline.plan.affected.lift import Lifted, lift
from freshline.plan.affected.qualified import qualify_query
from freshline.plan.affected.shapes import Context, find_keys, plain_columns, refuse_disorder
from freshline.plan.affected.tree import read_as, relations_in, sql, unsupported
from freshline.plan.affected.values import Affected, NotDerivedError, Reading, Stage, is_view
from freshline.plan.reason import Reason


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
        context = Context(frozenset(name.lower() for name in changed), known, types=types or {})
        stages = [_stage(item, context) for item in lifted.stages]
        found = find_keys(lifted.top.query, context)
        columns = found.columns or _chosen(lifted.top, primary_key)
        queries = found.select(columns)
        guards = {
            sql(read_as(query, reading, context.changed)): reason
            for query, reason in context.guards
            for reading in (Reading.NEW, Reading.OLD)
        }
    except NotDerivedError as error:
        return error.reason
    whole = sql(read_as(lifted.top.query, Reading.NEW, context.changed))
    return Affected(columns, whole, tuple(stages), tuple(queries), tuple(guards.items()))


def _require_free_names(relations: Iterable[str]) -> None:
    for relation in relations:
        if is_view(relation):
            raise unsupported(f"an input called {relation}, as freshline calls its views")


def _chosen(top: Lifted, primary_key: Sequence[str]) -> tuple[str, ...]:
    """The columns that changed rows are looked up by: the key, else what can be looked up, else all."""
    key = tuple(column.lower() for column in primary_key)
    if key and all(column in top.columns for column in key):
        return key
    return plain_columns(top.query) or top.columns


def _stage(item: Lifted, context: Context) -> Stage:
    new = sql(read_as(item.query, Reading.NEW, context.changed))
    if not relations_in(item.query) & context.changed:
        return Stage(item.relation, new)
    old = sql(read_as(item.query, Reading.OLD, context.changed))
    found = find_keys(item.query, context)
    # From here on the stage is a relation that changed.
    if found.columns is None:
        stage = Stage(item.relation, new, old, changed=tuple(found.select(item.columns)))
    else:
        stage = Stage(item.relation, new, old, key_columns=found.columns, keys=tuple(found.select(found.columns)))
        context.key_columns[item.relation] = found.columns
    context.changed = context.changed | {item.relation}
    return stage

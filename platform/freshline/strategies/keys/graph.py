"""The components of edges that came or went are computed again, and what differs is written.

The nodes of these components are closed under the edges: no edge that there is now leads out of them. So the graph
function over their edges gives the rows that it gives over all.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.commit.delta_log import newest_version
from freshline.compute.fold import as_stored
from freshline.compute.graph import GraphRun
from freshline.compute.graph_in_spark import NODE, SOURCE, TARGET, nodes_of
from freshline.compute.inputs import Pinned, read_signed, read_version, read_whole, shadow_inputs
from freshline.compute.keys import Keys, difference_by_bag, difference_by_key, keys_of
from freshline.compute.materialize import materialize_once
from freshline.query.query import read_query
from freshline.query.rules.algebra import SIGN
from freshline.query.rules.append import Branches, find_branches
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import check_key, check_key_against
from freshline.strategies.keys.changes import KeyChanges
from freshline.strategies.keys.components import RefreshComponents
from freshline.strategies.keys.write import write_of_changes
from freshline.values.names import TableName, quoted
from freshline.values.query import GraphCall, GraphFunction


def refresh_components(attempt: Attempt, step: RefreshComponents) -> Work:
    """The write of how the rows of affected components change. Raises GraphError."""
    spec = attempt.spec
    call = spec.sql.graph
    assert call is not None
    graph = GraphRun(attempt.spark, spec.sql, str(spec.written_at), attempt.cancellation.check)
    rows_in = sum(attempt.changes[name].rows for name in step.changed)
    changed, count = materialize_once(_changed_edges(attempt, step, graph), expected=rows_in)
    if count == 0:
        return attempt.nothing(rows_in)
    shadow_inputs({name: read_whole(attempt.spark, pinned) for name, pinned in attempt.inputs.items()})
    edges = graph.edges()
    version = newest_version(attempt.path)
    assert version is not None
    target = read_version(attempt.spark, attempt.path, version)
    nodes = keys_of(_affected(attempt, graph, edges, changed, target))
    # An edge has both ends in one component.
    inside = _renamed(nodes, SOURCE).restrict(edges)
    keys = _renamed(nodes, call.node)
    values = graph.values(inside, _stored_ranks(call, keys.restrict(target)))
    computed = attempt.constraint_check.rows(as_stored(graph.rows(values), spec), again=True)
    new, many = materialize_once(
        computed.select(*[F.col(quoted(name)) for name in target.columns]), expected=nodes.count
    )
    if spec.primary_key:
        check_key(new, spec)
        if call.node.lower() not in {key.lower() for key in spec.primary_key}:
            check_key_against(new, keys.leave(target), spec)
        differing = difference_by_key(new, keys.restrict(target), spec.primary_key)
    else:
        differing = difference_by_bag(new, keys.restrict(target), keys)
    rows, count = materialize_once(differing, expected=many)
    found = KeyChanges(keys, rows if count else None, count, step.reason, spec.primary_key)
    return write_of_changes(attempt, found, rows_in)


def _changed_edges(attempt: Attempt, step: RefreshComponents, graph: GraphRun) -> DataFrame:
    """The edges of which there are more, or fewer, than before."""
    spark, pins, changes = attempt.spark, attempt.inputs, attempt.changes
    came: dict[TableName, DataFrame] = {}
    went: dict[TableName, DataFrame] = {}
    by_row = _is_by_row(graph.call)
    for name, pinned in pins.items():
        whole = read_whole(spark, pinned)
        if by_row:
            nothing = whole.where(F.lit(False))
            came[name] = went[name] = nothing
            if name in step.changed:
                images = read_signed(spark, pinned, changes[name])
                came[name], went[name] = (images.where(F.col(SIGN) == sign).drop(SIGN) for sign in (1, -1))
            continue
        came[name] = went[name] = whole
        if name in step.changed:
            before = changes[name].before
            assert before is not None
            went[name] = read_whole(spark, Pinned(pinned.spec, pinned.path, before))
    signed = _edges(graph, came).withColumn(SIGN, F.lit(1)).unionAll(_edges(graph, went).withColumn(SIGN, F.lit(-1)))
    net = signed.groupBy(SOURCE, TARGET).agg(F.sum(SIGN).alias(SIGN)).where(F.col(SIGN) != 0)
    return net.drop(SIGN)


def _edges(graph: GraphRun, inputs: Mapping[TableName, DataFrame]) -> DataFrame:
    shadow_inputs(inputs)
    return graph.edges()


def _is_by_row(call: GraphCall) -> bool:
    """Whether each edge follows from one row of one input, so that changed rows give the changed edges.

    Otherwise the edges of both positions are compared.
    """
    branches = find_branches(read_query(call.edges))
    return isinstance(branches, Branches) and all(
        len(branch.products) == 1 and not branch.fixed for branch in branches.branches
    )


def _affected(attempt: Attempt, graph: GraphRun, edges: DataFrame, changed: DataFrame, target: DataFrame) -> DataFrame:
    """`node` of all components that had, or have, an end of a changed edge; each once."""
    call, ends = graph.call, nodes_of(changed)
    if not _has_all_components(attempt, call):
        return graph.within_reach(edges.unionAll(changed), ends)
    assert call.value is not None
    # New edges join only components of their ends, all of which are known here.
    stored = target.select(F.col(quoted(call.node)).alias(NODE), F.col(quoted(call.value)).alias("component"))
    known, _ = materialize_once(stored.join(F.broadcast(ends), NODE, "left_semi").select("component").distinct())
    return stored.join(F.broadcast(known), "component", "left_semi").select(NODE).unionAll(ends).distinct()


def _has_all_components(attempt: Attempt, call: GraphCall) -> bool:
    """Whether the table has the component of each node."""
    left_out = call.filtered or any(one.on_violation.leaves_out for one in attempt.spec.constraints)
    if attempt.receipt is None or attempt.receipt.valid_from_seq is not None:
        return False  # rows of an earlier declaration, perhaps of other edges
    return call.function is GraphFunction.CONNECTED_COMPONENTS and call.value is not None and not left_out


def _stored_ranks(call: GraphCall, stored: DataFrame) -> DataFrame | None:
    """The ranks that the table has of nodes, to begin with; None where there are none."""
    if call.function is not GraphFunction.PAGERANK or call.value is None:
        return None
    node, rank = F.col(quoted(call.node)).alias(NODE), F.col(quoted(call.value)).alias("rank")
    return stored.select(node, rank).dropDuplicates([NODE])


def _renamed(keys: Keys, name: str) -> Keys:
    """The nodes as a column of that name."""
    return Keys(keys.rows.toDF(name), (name,), keys.count, {name: keys.spans[NODE]})

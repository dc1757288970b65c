"""When the components of edges that came or went can be computed again, for a table of a graph function."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from freshline.plan.models import has_rows_of_other_models
from freshline.plan.step import Situation, Step
from freshline.query.exactness import inexact, read_exactness
from freshline.query.query import read_query
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.key_columns import order_of_reading
from freshline.query.tree import NotDerivedError
from freshline.values.names import TableName
from freshline.values.query import GraphCall
from freshline.values.reason import Reason
from freshline.values.result import Strategy


@dataclass(frozen=True)
class RefreshComponents(Step):
    """Compute the components of edges that came or went again, and write the rows that differ.

    `changed` are the inputs that changed, `node` is the column of the table by which rows are found.
    """

    changed: frozenset[TableName]
    node: str
    reason: Reason

    computed_by = "freshline.strategies.keys.graph:refresh_components"
    strategy = Strategy.KEYS
    activity = "computing the components of changed edges again"
    reads_changes = True
    is_priced = True

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.node,)


def _unsteady(graph: GraphCall, situation: Situation) -> Reason | None:
    """The reason why edges of unchanged rows may differ when read again, such as a condition on a sum of DOUBLE."""
    schema = {name.view.lower(): situation.columns.get(name, ()) for name in graph.edges.reads}
    types = {name.view.lower(): known for name, known in situation.types.items()}
    try:
        exactness = read_exactness(ResolvedQuery.of(graph.edges.text, schema, types))
        steady = exactness.is_steady(exactness.lifted.top.query)
    except NotDerivedError:
        # Where they are not derived, each sum counts as one of DOUBLE.
        steady = not any(read_query(graph.edges).tree.find_all(exp.Sum, exp.Avg, exp.Stddev, exp.Variance, exp.Corr))
    return None if steady else inexact(read_query(graph.edges).tree).reason


def find_components(graph: GraphCall, situation: Situation) -> RefreshComponents | Reason:
    """The step of a table of a graph, or why it is not right."""
    receipt, disorder = situation.receipt, order_of_reading(read_query(graph.edges))
    assert receipt is not None
    if disorder is not None:
        # The edges of unchanged rows may be others than those that were followed before.
        return disorder
    unsteady = _unsteady(graph, situation)
    if unsteady is not None:
        return unsteady
    if receipt.valid_from_seq is not None and graph.node not in situation.spec.primary_key:
        return Reason("UNSUPPORTED", "rows of an earlier declaration are kept, and are not found by a primary key")
    if has_rows_of_other_models(situation.spec, receipt):
        return Reason("UNSUPPORTED", "rows keep the prediction of an earlier model, and cannot be computed again")
    without = situation.without_change_feed
    if without is not None:
        return without
    return RefreshComponents(frozenset(situation.changed), graph.node, Reason("AFFECTED_COMPONENTS", graph.node))

"""The mode that keeps a table fresh (rule 3 of docs/rules.md), with its reason.

A pure function of freshness, the two thresholds, an explicit REFRESH_MODE and what the declaration can serve:

- below `continuous_below` continuous, below `incremental_below` incremental, else batch;
- CONTINUOUS is started by commits of an input that drives: a function in Python that promises nothing would compute
  everything at each of them, so it cannot be kept continuously;
- CONTINUOUS and INCREMENTAL bring in changes of inputs: a query that no input drives has none, so it is BATCH.

AUTO does without a mode that it cannot have, and says so. A mode that is asked for and cannot be had is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.spec import Mode, SourceSpec, Spec, TableSpec

# From the mode that starts refreshes soonest to the one that starts them latest.
_FASTEST_FIRST = (Mode.CONTINUOUS, Mode.INCREMENTAL, Mode.BATCH)


def driving_inputs(spec: TableSpec) -> tuple[TableName, ...]:
    """The inputs whose data the table's lag is measured by: no lookups, none of `non-driving`."""
    return tuple(name for name in spec.driving if name not in spec.non_driving)


def obstacles(spec: Spec) -> Mapping[Mode, str]:
    """The modes that the declaration cannot be kept in, each with what stands in the way."""
    if isinstance(spec, SourceSpec):
        return {}
    if not driving_inputs(spec):
        return {
            Mode.CONTINUOUS: "no input drives its query, so no commit could start a refresh",
            Mode.INCREMENTAL: "no input drives its query, so there are no changes to bring in",
        }
    if isinstance(spec.query, PythonQuery) and not spec.query.promise:
        return {Mode.CONTINUOUS: "its function promises neither keys nor append, so each commit would compute it all"}
    return {}


def resolve_mode(
    spec: Spec, freshness: Freshness, continuous_below: Freshness, incremental_below: Freshness
) -> tuple[Mode, str]:
    """The mode and the sentence that gives its reason; raises ValueError for a REFRESH_MODE that cannot be had."""
    hindered = obstacles(spec)
    explicit = spec.refresh_mode if isinstance(spec, TableSpec) else None
    if explicit is not None:
        if explicit in hindered:
            possible = [mode.name for mode in _FASTEST_FIRST if mode not in hindered]
            raise ValueError(
                f"REFRESH_MODE = {explicit.name} cannot be had: {hindered[explicit]}. "
                f"Take {' or '.join(possible)}, or AUTO."
            )
        return explicit, f"REFRESH_MODE = {explicit.name} is declared"
    wanted, reason = by_freshness(freshness, continuous_below, incremental_below)
    for mode in _FASTEST_FIRST[_FASTEST_FIRST.index(wanted) :]:
        if mode not in hindered:
            return mode, reason if mode is wanted else f"{reason}, but {hindered[wanted]}"
    raise AssertionError("every declaration can be kept in batch")


def by_freshness(freshness: Freshness, continuous_below: Freshness, incremental_below: Freshness) -> tuple[Mode, str]:
    """The mode that freshness alone asks for.

    >>> by_freshness(Freshness(10), Freshness(60), Freshness(1800))
    (<Mode.CONTINUOUS: 'continuous'>, 'freshness 10 seconds is below 1 minute')
    """
    stated = f"freshness {freshness.describe()}"
    if freshness < continuous_below:
        return Mode.CONTINUOUS, f"{stated} is below {continuous_below.describe()}"
    if freshness < incremental_below:
        return Mode.INCREMENTAL, f"{stated} is below {incremental_below.describe()}"
    return Mode.BATCH, f"{stated} is not below {incremental_below.describe()}"

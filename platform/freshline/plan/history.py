"""`requires-history`: a full refresh goes without what an input has lost, and some tables must not lose it."""

from __future__ import annotations

from collections.abc import Mapping

from freshline.errors import HistoryRequiredError
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.step import Step
from freshline.values.names import TableName
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

_GONE = {
    ChangeKind.SOURCE_REPLACED: "was replaced by another table or rolled back",
    ChangeKind.HISTORY_GONE: "no longer has the changes that the table did not read yet",
}


def ignores_deletes(spec: TableSpec) -> bool:
    """Whether the table keeps what it made of rows that an input no longer has (`upstream-deletes` = `ignore`)."""
    return spec.merge is not None and spec.merge.upstream_deletes == "ignore"


def inputs_short(receipt: Receipt | None) -> frozenset[TableName]:
    """The inputs that lack rows which the table is built from."""
    return frozenset() if receipt is None else receipt.inputs_with_lost_rows


def inputs_short_after(receipt: Receipt | None, step: Step) -> frozenset[TableName]:
    """The same after a step that is not a full refresh."""
    before = inputs_short(receipt)
    return before if step.keeps_rows_of is None else before | {step.keeps_rows_of}


def require_history(
    spec: TableSpec, receipt: Receipt | None, changes: Mapping[TableName, Changes], reason: Reason
) -> None:
    """Raise HistoryRequiredError where a full refresh would lack required history (rule 7 of docs/rules.md).

    `reason` is that of the full refresh: that changed rows are gone may show only when they are read, and then no input
    is named.

    That is lost with an input that was replaced, whose unread changes are gone, or that deleted rows which the table
    keeps. A table without a receipt has nothing to lose.
    """
    if receipt is None:
        return
    for name in spec.requires_history:
        kind = changes[name].kind if name in changes else ChangeKind.NOTHING
        why = _GONE.get(ChangeKind.HISTORY_GONE if reason.code == "HISTORY_GONE" else kind)
        if why is None and name in receipt.inputs_with_lost_rows:
            why = "deleted or updated rows since the table began, and the table keeps what it made of them"
        if why is None and ignores_deletes(spec) and kind in (ChangeKind.MUTATE, ChangeKind.REPLACE):
            why = "deleted or updated rows that the table keeps"
        if why is not None:
            raise HistoryRequiredError(
                f"a full refresh would lose rows: {name} {why}, and 'requires-history' names it. Nothing was changed. "
                "Bring the rows back into it, or take its name out of the option to compute the table from what is "
                "left.",
                where=str(spec.name),
            )

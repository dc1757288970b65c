"""A full refresh needs the rows of inputs that 'requires-history' names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from freshline.errors import HistoryRequiredError
from freshline.plan.changes import ChangeKind
from freshline.plan.history import require_history
from freshline.values.names import TableName
from freshline.values.reason import Reason

S = TableName.parse("s")


def check(kind: ChangeKind, code: str, *, required: bool = True, short: bool = False) -> None:
    spec: Any = SimpleNamespace(name=TableName.parse("t"), merge=None, requires_history=(S,) if required else ())
    receipt: Any = SimpleNamespace(inputs_with_lost_rows=frozenset({S} if short else ()))
    changes: Any = {S: SimpleNamespace(kind=kind)}
    require_history(spec, receipt, changes, Reason(code))


@pytest.mark.parametrize(
    ("kind", "code", "short"),
    [
        (ChangeKind.SOURCE_REPLACED, "SOURCE_REPLACED", False),
        (ChangeKind.HISTORY_GONE, "HISTORY_GONE", False),
        # Their files are gone, which the log does not show.
        (ChangeKind.MUTATE, "HISTORY_GONE", False),
        (ChangeKind.NOTHING, "REQUESTED", True),
    ],
)
def test_a_full_refresh_without_required_rows_is_refused(kind, code, short):
    with pytest.raises(HistoryRequiredError, match="'requires-history' names it"):
        check(kind, code, short=short)
    check(kind, code, short=short, required=False)


def test_deletes_that_the_table_follows_are_no_loss():
    check(ChangeKind.MUTATE, "REQUESTED")

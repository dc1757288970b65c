"""Steps: what a refresh does, as a value. Explaining and refreshing read the same one.

A step knows its reason and its strategy, and names the function that computes what it writes. That function needs Spark
and is loaded when a refresh takes the step. Doing nothing is a step too.

Here are the steps that a situation asks for whatever the query of the table does with changes. Those that follow from
changes of its inputs stand beside their rules in `freshline.strategies`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.request import RefreshRequest
from freshline.query.clock import ClockSpan
from freshline.query.query import Query, read_query
from freshline.query.rules.time_distance import TimeDistance
from freshline.sql.managing import NOW
from freshline.values.closing import Closing
from freshline.values.names import TableName
from freshline.values.partition import Interval
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec

# The strategy of a sink that follows the changes of its table.
SENT = "changes"


class Step(ABC):
    """One way to make a table fresh; subclasses are frozen dataclasses.

    `computed_by` names the function that computes what is written, as `module:function`; it takes the attempt and the
    step, and returns the work (`freshline.refresh.attempt`). `reads_changes` says that it reads the changes of inputs,
    which may be gone, and not only their newest versions. `is_priced` says that its cost grows with what it touches, so
    that a full refresh may be cheaper. `fills_gaps` says that it brings in only what was missing, so that another step
    follows.
    """

    reason: Reason
    computed_by: ClassVar[str]
    reads_changes: ClassVar[bool] = False
    is_priced: ClassVar[bool] = False
    fills_gaps: ClassVar[bool] = False

    @property
    @abstractmethod
    def strategy(self) -> str:
        """The name of its strategy, which receipts and EXPLAIN show."""

    @property
    @abstractmethod
    def activity(self) -> str:
        """The activity of the refresh, for people who watch it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which affected rows are found; empty where they are not found by columns."""
        return ()

    @property
    def reaches(self) -> tuple[TimeDistance, ...]:
        """The spans around the times of affected keys in which inputs are read; empty where no less is known to do."""
        return ()

    @property
    def uses_stored_values(self) -> bool:
        """Whether stored aggregates and the changed rows may be enough, without reading earlier rows of the inputs."""
        return False

    @property
    def partition_input(self) -> TableName | None:
        """The input whose rows decide which partitions are computed; None where partitions play no part."""
        return None

    @property
    def keeps_rows_of(self) -> TableName | None:
        """The input whose updated or deleted rows the table keeps as they were; None for none."""
        return None


@dataclass(frozen=True)
class Noop(Step):
    """Leave the table as it is; where positions moved far, an empty commit keeps them."""

    reason: Reason

    computed_by = "freshline.strategies.noop.write:carry_position"
    strategy = Strategy.NOOP
    activity = "writing the checked position to the log"


@dataclass(frozen=True)
class ReplaceNamedPartitions(Step):
    """Compute the partitions again that were asked for, at the positions that the situation gives."""

    partitions: tuple[tuple[tuple[str, str], ...], ...]
    reason: Reason

    computed_by = "freshline.strategies.partition.named:replace_named"
    strategy = Strategy.PARTITION
    activity = "computing partitions again"


@dataclass(frozen=True)
class FillPartitions(Step):
    """Compute these stretches of time, which are missing or of an older declaration, where the others stand already."""

    intervals: tuple[Interval, ...]
    reason: Reason

    computed_by = "freshline.strategies.partition.times:fill_missing"
    strategy = Strategy.PARTITION
    activity = "computing partitions that are missing"
    fills_gaps = True


@dataclass(frozen=True)
class Full(Step):
    """Compute everything again and overwrite."""

    reason: Reason

    computed_by = "freshline.strategies.full.write:full"
    strategy = Strategy.FULL

    @property
    def activity(self) -> str:
        return f"computing everything ({self.reason.code})"


@dataclass(frozen=True)
class SendChanges(Step):
    """Send to a sink what changed since the version that it has."""

    reason: Reason

    computed_by = "freshline.strategies.sink.write:send_changes"
    strategy = SENT
    activity = "sending what changed"
    reads_changes = True


@dataclass(frozen=True)
class SendWhole(Step):
    """Send all rows to a sink, and take away there whatever the table has not."""

    reason: Reason

    computed_by = "freshline.strategies.sink.write:send_whole"
    strategy = Strategy.FULL

    @property
    def activity(self) -> str:
        return f"comparing all rows with the sink ({self.reason.code})"


@dataclass(frozen=True)
class CloseWindows(Step):
    """Add the rows of the windows that the watermark has closed since the newest receipt."""

    reason: Reason

    computed_by = "freshline.strategies.append.write:close_windows"
    strategy = Strategy.APPEND
    activity = "adding closed windows"


@dataclass(frozen=True)
class AddTriggered(Step):
    """Add the rows of keys that are not there yet and for which the condition of WHEN is true now."""

    reason: Reason

    computed_by = "freshline.strategies.append.write:add_triggered"
    strategy = Strategy.APPEND
    activity = "adding rows whose condition is true for the first time"


@dataclass(frozen=True)
class AdoptDefinition(Step):
    """Let a changed declaration apply from here on: from `now`, or for the partitions from a date on."""

    start: str
    reason: Reason

    computed_by = "freshline.strategies.adopt.write:adopt_definition"

    @property
    def strategy(self) -> str:
        return Strategy.APPEND if self.start == NOW else Strategy.PARTITION

    @property
    def activity(self) -> str:
        return f"starting the changed declaration from {self.start}"


@dataclass(frozen=True)
class Situation:
    """All that a choice depends on.

    `changes` are those of every input, dimensions of lookup joins included. `columns` are those of every input, where
    they are known. `lookups_due` says that lookups which found no row of a dimension are due again. `types` are those
    of the columns of inputs, in lower case, where they are known. `redefined` is what changed in the declaration,
    where that can be taken up. `gaps` are the stretches of time that the table should have by now and does not.
    `closing` are the windows that are closed and not written, the watermarks between which timers run, and for WHEN
    those between which its condition was not evaluated; None for any other table. `clock` are the instant of the stored
    rows and that of the refresh, None for a table without temporal filters. `stands_still`: between the two, no row of
    the inputs enters or leaves.
    """

    spec: TableSpec
    receipt: Receipt | None
    foreign_write: bool
    changes: Mapping[TableName, Changes]
    request: RefreshRequest
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    lookups_due: bool = False
    types: Mapping[TableName, Mapping[str, str]] = field(default_factory=dict)
    redefined: str = ""
    gaps: tuple[Interval, ...] = ()
    closing: Closing | None = None
    clock: ClockSpan | None = None
    stands_still: bool = False

    @property
    def time_passed(self) -> bool:
        """Whether rows may enter or leave although no input changed."""
        return self.clock is not None and self.clock.before != self.clock.after and not self.stands_still

    @property
    def changed(self) -> Mapping[TableName, Changes]:
        """The inputs that drive the table and changed."""
        driving = {name: self.changes[name] for name in self.spec.driving}
        return {name: changes for name, changes in driving.items() if changes.kind is not ChangeKind.NOTHING}

    @property
    def timers_due(self) -> bool:
        """Whether the watermark moved since the timers of the table ran."""
        closing = self.closing
        return self.spec.has_timers and closing is not None and closing.until != closing.after

    @property
    def query(self) -> Query:
        """The query of a table in SQL."""
        return read_query(self.spec.sql)

    @property
    def without_change_feed(self) -> Reason | None:
        """The reason why changed rows cannot be read; None where every changed input has them."""
        for changes in self.changed.values():
            if not changes.log and not changes.change_feed:
                return Reason("CDF_DISABLED", str(changes.name))
        return None

    @property
    def other_dimension(self) -> Reason | None:
        """The reason why new rows of a function in Python do not fit the stored ones; None where they do.

        All rows have one version of a dimension. A check may have seen a newer one since, so the receipt counts.
        """
        for name in self.spec.lookups:
            changes, met = self.changes[name], None if self.receipt is None else self.receipt.table_position(name)
            stands = changes.kind is ChangeKind.NOTHING and met == changes.before
            if met is None or not (met == changes.after or stands):
                return Reason("UNSUPPORTED", f"the dimension {name} changed, which all rows meet at one version")
        return None

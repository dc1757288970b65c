"""Fill a control store that was lost, from the tables and the refresh log.

Nothing of it is needed for rows to be right: positions are in the tables' own receipts, and an engine begins above
every epoch that these name. The memory of refreshes comes back, and of the time that they take. Stopped half way, the
store is as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshline.commit.control_store import KEPT_REFRESHES, ControlStore
from freshline.commit.delta_log import newest_epoch, read_refreshes
from freshline.commit.refresh_log import NAME, read_newest_records
from freshline.commit.warehouse import Warehouse
from freshline.errors import FreshlineError
from freshline.freshness.alter import time_text
from freshline.plan.rebuild import newest_decisions, rebuilt_records
from freshline.values.result import RefreshResult
from freshline.values.settings import Settings


@dataclass(frozen=True)
class Rebuilt:
    """The result: `records` of refreshes of `tables`, and an epoch that no table is above.

    `decisions` are the newest changes of freshness and suspensions in the records; they are not in force.
    `problems` are sentences about logs that cannot be read.
    """

    tables: int
    records: int
    epoch: int
    decisions: tuple[RefreshResult, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        told = (
            f"rebuilt from the logs of {self.tables} tables: {self.records} records of refreshes that it did not have, "
            f"epoch {self.epoch}. Overrides, suspensions and open alerts cannot come back"
        )
        if self.decisions:
            shown = "; ".join(f"{one.table} at {time_text(one.at)}: {one.reason}" for one in self.decisions)
            told += f"; the newest that were decided, for you to state again: {shown}"
        return " ".join([f"{told.rstrip('.')}.", *self.problems])


def rebuild(settings: Settings, *, epoch_in_use: int = 0) -> Rebuilt:
    """Fill the control store of a project with what the tables know; what it has itself stays.

    `epoch_in_use` is that of an engine that runs, 0 for none. A second call changes nothing. Raises as
    ControlStore.open does.
    """
    warehouse = Warehouse(settings.warehouse)
    committed: list[RefreshResult] = []
    problems: list[str] = []
    epoch, tables = epoch_in_use, 0
    for path in warehouse.tables():
        if path == warehouse.root / NAME:
            continue
        try:
            epoch = max(epoch, newest_epoch(path))
            # A table beside another one has receipts of its own, under that table's name.
            of_table = [one for one in read_refreshes(path, KEPT_REFRESHES) if warehouse.path(one.table) == path]
        except FreshlineError as error:
            problems.append(f"{error} Its records are missing.")
            continue
        tables += bool(of_table)
        committed += of_table
    logged: list[RefreshResult] = []
    try:
        logged = read_newest_records(warehouse.root, KEPT_REFRESHES)
    except FreshlineError as error:
        problems.append(f"{error} Only commits tell of refreshes.")
    records = rebuilt_records(logged, committed, KEPT_REFRESHES)
    control = ControlStore.open(settings.control_store, settings.umask)
    try:
        restored = control.restore(records, epoch)
    finally:
        control.close()
    return Rebuilt(tables, restored, epoch, tuple(newest_decisions(records)), tuple(problems))

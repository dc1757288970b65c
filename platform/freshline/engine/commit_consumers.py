"""The consumers of a commit: the parts of an engine that follow a refresh, called from this place and no other.

Each is called for every refresh, whoever asked for it, in one order and before the asker gets the outcome. A sink is a
reader of its table, so the loops wake it. One consumer that fails keeps no other from its call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from freshline.engine.catalogs import CatalogKeeper
    from freshline.engine.loops import Loops
    from freshline.engine.maintenance import Maintenance
    from freshline.engine.metrics import Metrics
    from freshline.engine.telemetry import Lineage
    from freshline.engine.work import Job
    from freshline.values.names import TableName
    from freshline.values.result import RefreshResult

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommitConsumers:
    """The consumers of one engine; None for those that its settings do not ask for."""

    metrics: Metrics
    lineage: Lineage | None
    catalogs: CatalogKeeper | None
    loops: Loops
    maintenance: Maintenance

    def call_after_refresh(self, job: Job, outcome: RefreshResult | None) -> None:
        """Report a refresh that ended to all of them; without an outcome it ended in a way that it must not."""
        for name, consumer in self._calls(job, outcome):
            try:
                consumer()
            except Exception:  # a mistake in one must not keep the readers of the table asleep
                LOG.exception("%s: the %s did not take note of a refresh", job.table, name)

    def call_after_restore(self, tables: Collection[TableName]) -> None:
        """Report tables that have the columns of a savepoint again. Readers look by themselves."""
        if self.catalogs is not None:
            self.catalogs.on_restore(tables)

    def _calls(self, job: Job, outcome: RefreshResult | None) -> Iterator[tuple[str, Callable[[], object]]]:
        yield "metrics", partial(self.metrics.on_outcome, job.table, outcome)
        if self.lineage is not None:
            yield "lineage", partial(self.lineage.on_outcome, outcome)
        if self.catalogs is not None:
            yield "catalogs", partial(self.catalogs.on_outcome, outcome)
        yield "loops, which wake readers and sinks,", partial(self.loops.on_outcome, job, outcome)
        if outcome is not None and outcome.committed:
            yield "maintenance", partial(self.maintenance.committed, job.table, outcome.version)

"""Write the campaigns of each day to a Delta table, as the job of another team would.

The table is the source `campaign_load` of the reference deployment. It is written with delta-rs, which knows
nothing of freshline: a day at a time, each day at most once, and now and then a campaign of an earlier day gets
another name. Its change feed is on from the first version, because changes are what its readers ask for.

Every method ends in at most one commit; stopped half way it leaves the table as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

SCHEMA = pa.schema(
    [
        pa.field("campaign_id", pa.string()),
        pa.field("campaign_name", pa.string()),
        pa.field("channel", pa.string()),
        pa.field("ds", pa.date32()),
    ]
)


@dataclass(frozen=True)
class Campaign:
    """One campaign on one day."""

    campaign_id: str
    campaign_name: str
    channel: str
    ds: date


@dataclass(frozen=True)
class CampaignWriter:
    """The writer of one campaign table; `path` is the folder of the Delta table."""

    path: Path

    def create(self) -> None:
        """Make the table, empty and with its change feed on; one that exists is left alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self.path,
            schema=SCHEMA,
            mode="ignore",
            partition_by=["ds"],
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def days(self) -> frozenset[date]:
        """The days for which the table has campaigns; it only reads."""
        found = QueryBuilder().register("campaigns", DeltaTable(self.path))
        rows = pa.table(found.execute("SELECT DISTINCT ds FROM campaigns").read_all())
        return frozenset(rows.column("ds").to_pylist())

    def write_day(self, campaigns: Sequence[Campaign]) -> bool:
        """Append the campaigns of one day in one commit.

        A day that is already there is left alone and False is returned, so that a job that is started again after
        it was killed repeats nothing. Raises ValueError for campaigns of several days.
        """
        days = {campaign.ds for campaign in campaigns}
        if len(days) != 1:
            raise ValueError(f"one day at a time: got {sorted(days)}")
        if days <= self.days():
            return False
        rows = pa.Table.from_pylist([vars(campaign) for campaign in campaigns], schema=SCHEMA)
        write_deltalake(self.path, rows, mode="append")
        return True

    def rename(self, campaign_id: str, ds: date, name: str) -> int:
        """Give one campaign of one day another name; returns the number of rows that were changed."""
        result = DeltaTable(self.path).update(
            predicate=f"campaign_id = {_literal(campaign_id)} AND ds = DATE '{ds.isoformat()}'",
            updates={"campaign_name": _literal(name)},
        )
        return int(result["num_updated_rows"])


def _literal(text: str) -> str:
    # delta-rs does not quote `new_values`: a name with an apostrophe would end the literal.
    return "'" + text.replace("'", "''") + "'"

"""The decisions of people, and of freshline for them, about tables: freshness for a while, and suspensions.

They win over the files and survive restarts. Each change counts the generation up, so that an engine that reads one
number every moment sees it at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection, delete, func, select, update

from freshline.commit.control_reading import IntentionReader
from freshline.commit.control_rows import key_of, text_of, text_or_none, time_of
from freshline.commit.control_store.database import Database, put
from freshline.commit.control_store.schema import FAILURES, GENERATIONS, OVERRIDES, SUSPENSIONS
from freshline.freshness.intentions import FailureRow, FreshnessOverride, Suspension
from freshline.values.names import TableName


class IntentionStore(IntentionReader):
    """Overrides, suspensions and rows of failures in the control store."""

    _database: Database

    def generation(self) -> int:
        """A number that grows with every change of overrides and suspensions."""
        with self._database.read() as connection:
            return _generation(connection)

    def change(
        self,
        *,
        expected: int | None = None,
        set_overrides: Sequence[FreshnessOverride] = (),
        remove_overrides: Collection[TableName] = (),
        set_suspensions: Sequence[Suspension] = (),
        remove_suspensions: Collection[TableName] = (),
        also: Callable[[Connection], None] = lambda connection: None,
    ) -> bool:
        """Change them in one transaction; False, and nothing is changed, when `expected` is not the generation now.

        `also` is called with the connection of the transaction, to write what belongs to the change.
        """
        with self._database.write() as connection:
            if expected is not None and _generation(connection) != expected:
                return False
            connection.execute(update(GENERATIONS).values(generation=GENERATIONS.c.generation + 1))
            for table, names in ((OVERRIDES, remove_overrides), (SUSPENSIONS, remove_suspensions)):
                connection.execute(delete(table).where(table.c.key.in_([key_of(name) for name in names])))
            for override in set_overrides:
                put(
                    connection,
                    OVERRIDES,
                    key=key_of(override.table),
                    name=str(override.table),
                    freshness_seconds=override.freshness.seconds,
                    decided_by=override.by,
                    decided_at=text_of(override.at),
                    until=text_or_none(override.until),
                )
            for suspension in set_suspensions:
                put(
                    connection,
                    SUSPENSIONS,
                    key=key_of(suspension.table),
                    name=str(suspension.table),
                    decided_by=suspension.by,
                    decided_at=text_of(suspension.at),
                    until=text_or_none(suspension.until),
                    reason=suspension.reason,
                    automatic=suspension.automatic,
                )
            also(connection)
        return True

    # -- failures in a row (rule 12 of docs/rules.md)

    def failures(self) -> dict[TableName, FailureRow]:
        """Of each table that has failed in a row: how often, since when, and how the last time."""
        with self._database.read() as connection:
            found = [
                FailureRow(TableName.parse(name), count, time_of(first), time_of(last), json.loads(error))
                for _, name, count, first, last, error in connection.execute(select(FAILURES))
            ]
        return {one.table: one for one in found}

    def record_failures(self, row: FailureRow) -> None:
        """Remember a row of failures."""
        with self._database.write() as connection:
            put(
                connection,
                FAILURES,
                key=key_of(row.table),
                name=str(row.table),
                count=row.count,
                first_at=text_of(row.first_at),
                last_at=text_of(row.last_at),
                error=json.dumps(dict(row.error)),
            )

    def forget_failures(self, name: TableName) -> None:
        """Forget a row of failures, which a success or a person ended."""
        with self._database.write() as connection:
            connection.execute(delete(FAILURES).where(FAILURES.c.key == key_of(name)))


def _generation(connection: Connection) -> int:
    return int(connection.execute(select(func.max(GENERATIONS.c.generation))).scalar() or 0)

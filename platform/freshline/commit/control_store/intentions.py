"""The decisions of people, and of freshline for them, about tables: freshness for a while, and suspensions.

They win over the files and survive restarts. Each change counts the generation up, so that an engine that reads one
number every moment sees it at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import Connection, delete, func, insert, select, update

from freshline.commit.control_reading import IntentionReader
from freshline.commit.control_rows import key_of, text_of, time_of
from freshline.commit.control_store.database import Database
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
            gone = [*remove_overrides, *(override.table for override in set_overrides)]
            connection.execute(delete(OVERRIDES).where(OVERRIDES.c.key.in_([key_of(name) for name in gone])))
            for override in set_overrides:
                connection.execute(
                    insert(OVERRIDES).values(
                        key=key_of(override.table),
                        name=str(override.table),
                        freshness_seconds=override.freshness.seconds,
                        decided_by=override.by,
                        decided_at=text_of(override.at),
                        until=None if override.until is None else text_of(override.until),
                    )
                )
            gone = [*remove_suspensions, *(suspension.table for suspension in set_suspensions)]
            connection.execute(delete(SUSPENSIONS).where(SUSPENSIONS.c.key.in_([key_of(name) for name in gone])))
            for suspension in set_suspensions:
                connection.execute(
                    insert(SUSPENSIONS).values(
                        key=key_of(suspension.table),
                        name=str(suspension.table),
                        decided_by=suspension.by,
                        decided_at=text_of(suspension.at),
                        until=None if suspension.until is None else text_of(suspension.until),
                        reason=suspension.reason,
                        automatic=suspension.automatic,
                    )
                )
            also(connection)
        return True

    # -- failures in a row (rule 12 of docs/rules.md)

    def failures(self) -> dict[TableName, FailureRow]:
        """Of each table that has failed in a row: how often, since when, and how the last time."""
        with self._database.read() as connection:
            rows = connection.execute(select(FAILURES)).mappings().all()
        return {
            TableName.parse(row["name"]): FailureRow(
                TableName.parse(row["name"]),
                row["count"],
                time_of(row["first_at"]),
                time_of(row["last_at"]),
                json.loads(row["error"]),
            )
            for row in rows
        }

    def record_failures(self, row: FailureRow) -> None:
        """Remember a row of failures."""
        with self._database.write() as connection:
            connection.execute(delete(FAILURES).where(FAILURES.c.key == key_of(row.table)))
            connection.execute(
                insert(FAILURES).values(
                    key=key_of(row.table),
                    name=str(row.table),
                    count=row.count,
                    first_at=text_of(row.first_at),
                    last_at=text_of(row.last_at),
                    error=json.dumps(dict(row.error)),
                )
            )

    def forget_failures(self, name: TableName) -> None:
        """Forget a row of failures, which a success or a person ended."""
        with self._database.write() as connection:
            connection.execute(delete(FAILURES).where(FAILURES.c.key == key_of(name)))


def _generation(connection: Connection) -> int:
    return int(connection.execute(select(func.max(GENERATIONS.c.generation))).scalar() or 0)

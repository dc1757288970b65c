"""The formats of rows of a database. Their readers decode them, because they read them anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from freshline.values.change import CHANGE_METADATA
from freshline.values.column_types import refuses_of_database
from freshline.values.connector import Metadata
from freshline.values.format import Decoded, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec

# The column with the code of quarantine of a record whose values are not those of the declared types.
BROKEN = "_freshline_broken"


class DatabaseRows(Format):
    """Rows that are decoded already, and their changes."""

    metadata: ClassVar[Mapping[str, Metadata]] = CHANGE_METADATA
    is_change_feed: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_of_database(kind)

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from pyspark.sql import functions as F

        return Decoded(records, F.col(BROKEN))


@dataclass(frozen=True)
class QueryRows(DatabaseRows):
    """Rows as queries give them, and their changes."""

    name: ClassVar[str] = "rows"
    rejections: ClassVar[Mapping[str, str]] = {
        "VALUE_CHANGED": "a value of the row would be another one in the declared type",
    }


@dataclass(frozen=True)
class PgOutput(DatabaseRows):
    """Changes as the plug-in `pgoutput` of Postgres sends them, and rows as COPY does."""

    name: ClassVar[str] = "pgoutput"
    rejections: ClassVar[Mapping[str, str]] = {
        "VALUE_UNKNOWN": "a value was not sent, and no event since the row was inserted has it",
    }

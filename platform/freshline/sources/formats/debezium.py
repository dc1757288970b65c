"""Debezium's change events as JSON: an envelope with the images of a row before and after its change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from freshline.errors import ChangeOrderError, FreshlineError, MessageKeyError, TimeUnitError
from freshline.values.change import CHANGE_METADATA
from freshline.values.column_types import refuses_keys
from freshline.values.connector import Metadata
from freshline.values.format import Decoded, Format
from freshline.values.options import Kind, Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec

# Debezium writes this in the place of a value that the database did not send.
UNAVAILABLE = "__debezium_unavailable_value"
TIME_UNIT_OPTION = Option(
    "change.time-unit",
    "the unit of numbers for a TIMESTAMP that no schema explains",
    Kind.CHOICE,
    field="time_unit",
    choices=("milliseconds", "microseconds", "nanoseconds"),
)
UNAVAILABLE_OPTION = Option(
    "change.unavailable", "the text that stands for a value that was not sent", field="unavailable"
)
SOURCE_ORDER = "source"
ORDER_OPTION = Option(
    "change.order",
    "the order of the changes of a row: arrival in its partition, or the positions in the database",
    Kind.CHOICE,
    field="order",
    choices=("arrival", SOURCE_ORDER),
)


@dataclass(frozen=True)
class DebeziumJson(Format):
    """Records are envelopes of Debezium, with and without an inline schema.

    `time_unit` is that of numbers for a TIMESTAMP which no inline schema explains. `decimals` says what a text is that
    stands for a DECIMAL without a schema. `unavailable` stands for a value that was not sent. `order` is that of the
    changes of a row, `arrival` or `source`.
    """

    time_unit: str | None = None
    decimals: str | None = None
    unavailable: str = UNAVAILABLE
    order: str = "arrival"

    name: ClassVar[str] = "debezium-json"
    options: ClassVar[tuple[Option, ...]] = (
        TIME_UNIT_OPTION,
        Option(
            "change.decimals",
            "how texts for a DECIMAL are written that no inline schema explains",
            Kind.CHOICE,
            field="decimals",
            choices=("base64", "text"),
        ),
        UNAVAILABLE_OPTION,
        ORDER_OPTION,
    )
    rejections: ClassVar[Mapping[str, str]] = {
        "NOT_ENVELOPE": "the record is not one change event with values of the declared types",
        "VALUE_UNKNOWN": "a value was not sent, and no event since the row was inserted has it",
    }
    stopping: ClassVar[Mapping[str, Callable[..., FreshlineError]]] = {
        "TIME_UNIT": TimeUnitError,
        "CHANGE_ORDER": ChangeOrderError,
        "MESSAGE_KEY": MessageKeyError,
    }
    metadata: ClassVar[Mapping[str, Metadata]] = CHANGE_METADATA
    is_change_feed: ClassVar[bool] = True
    takes_tombstones: ClassVar[bool] = True

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        return refuses_keys(kind)

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.time_unit, self.decimals, self.unavailable, *order_meaning(self.order))

    @property
    def is_in_source_order(self) -> bool:
        return self.order == SOURCE_ORDER

    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        # Loads Spark.
        from freshline.sources.formats.debezium_rows import decode_debezium

        return decode_debezium(records, spec, self)


def order_meaning(order: str) -> tuple[str, ...]:
    """The part of an order in the meaning of a format. Arrival has none: sources are older than the option."""
    return (order,) if order == SOURCE_ORDER else ()

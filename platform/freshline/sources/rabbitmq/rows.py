"""Messages of any number in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.compute.inputs import FILE
from freshline.sources.rabbitmq.client import DeliveredMessage
from freshline.sources.rabbitmq.connector import (
    APP_ID,
    DIGEST,
    EXCHANGE,
    HEADERS,
    MESSAGE_ID,
    REDELIVERED,
    ROUTING_KEY,
    TIMESTAMP,
)
from freshline.sources.reader import VERDICT
from freshline.sources.spill import Spill
from freshline.values.connector import RECORD
from freshline.values.format import VALUE

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        (VALUE, pa.binary()),
        (RECORD, pa.int64()),
        (EXCHANGE, pa.string()),
        (ROUTING_KEY, pa.string()),
        (MESSAGE_ID, pa.string()),
        (APP_ID, pa.string()),
        (TIMESTAMP, pa.timestamp("us", tz="UTC")),
        (HEADERS, pa.list_(_HEADER)),
        (REDELIVERED, pa.bool_()),
        (DIGEST, pa.binary()),
        (VERDICT, pa.string()),
    ]
)


class MessageRows(Spill[tuple[Any, ...]]):
    """Messages in the order in which they are added; `bytes` is what they take."""

    # Bodies differ, so a dictionary of them helps nobody and costs memory. These columns repeat themselves.
    writing: ClassVar[Mapping[str, Any]] = {
        "use_dictionary": [EXCHANGE, ROUTING_KEY, APP_ID],
        "write_statistics": False,
    }

    def __init__(self, folder: Path | None) -> None:
        super().__init__(_SCHEMA, folder)
        self.bytes = 0

    def add(self, message: DeliveredMessage, number: int, digest: bytes | None, verdict: str | None) -> None:
        """Add a message under its number. Raises OSError where the disk is full."""
        properties = message.properties
        headers = None
        if properties.headers is not None:
            headers = [{"key": name, "value": value} for name, value in properties.headers]
        size = len(message.body) + 300
        self.bytes += size
        self.append(
            (
                message.body,
                number,
                message.exchange,
                message.routing_key,
                properties.message_id,
                properties.app_id,
                properties.timestamp,
                headers,
                message.is_redelivered,
                digest,
                verdict,
            ),
            size,
        )

    def messages(self, spark: SparkSession, place: str) -> DataFrame:
        """The messages as records of the loop, with their place."""
        return self.read(spark).withColumn(FILE, F.lit(place))

"""The reader of a source of RabbitMQ: a stream is read by its offsets, and a queue by what was acknowledged."""

from __future__ import annotations

from typing import Any

from freshline.sources.rabbitmq.connector import RabbitMq
from freshline.sources.rabbitmq.queue import QueueReader
from freshline.sources.rabbitmq.stream import StreamReader
from freshline.values.spec import SourceSpec


def open_reader(spec: SourceSpec, host: Any) -> QueueReader | StreamReader:
    """The reader that the declaration asks for."""
    assert isinstance(spec.connection, RabbitMq)
    return StreamReader(spec, host) if spec.connection.stream else QueueReader(spec, host)

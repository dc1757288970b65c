"""The schemas of a topic in a schema registry: registered under the subjects of the topic, and read by their numbers.

Subjects are `TOPIC-key` and `TOPIC-value`, as producers of Kafka name them. The registry decides whether a new schema
goes with those that it has of the subject.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from freshline.errors import RegistryError, RegistryRefusedError, SinkError, SinkRefusedError, SinkSchemaError
from freshline.sources.formats.registry import RegistryAddress
from freshline.sources.formats.registry_client import IncompatibleSchemaError, RegistryClient


class RegisteredSchemas:
    """The schemas of one topic. `address` has secrets, and is kept for one refresh."""

    def __init__(self, address: RegistryAddress, topic: str, where: str) -> None:
        self._address = address
        self._topic = topic
        self._where = where
        self._ids: dict[str, int] = {}

    def id_of(self, side: str) -> int:
        """The number of the schema of `key` or `value`, which is registered."""
        return self._ids[side]

    def register(self, side: str, text: str) -> None:
        """Register a schema; one that is there keeps its number. Raises the errors of sinks."""
        subject = f"{self._topic}-{side}"
        try:
            with self._asking() as client:
                self._ids[side] = client.register(subject, text)
        except IncompatibleSchemaError as error:
            raise SinkSchemaError(
                f"the schema registry at {self._address.url} does not take the schema of {subject}: {error}. Change "
                "the columns of the table, or the compatibility of the subject, or name another topic.",
                where=self._where,
            ) from error

    def texts(self, ids: Collection[int]) -> Mapping[int, str]:
        """The texts of schemas. Raises the errors of sinks, and ValueError for one that the registry does not know."""
        if not ids:
            return {}
        found = {}
        with self._asking() as client:
            for schema_id in sorted(ids):
                schema = client.schema(schema_id)
                if schema is None or schema.kind != "AVRO" or schema.references:
                    raise ValueError(f"the registry has no schema of Avro with the number {schema_id}")
                found[schema_id] = schema.text
        return found

    @contextmanager
    def _asking(self) -> Iterator[RegistryClient]:
        try:
            with RegistryClient(self._address, where=self._where) as client:
                yield client
        except RegistryRefusedError as error:
            raise SinkRefusedError(error.message, where=self._where) from error
        except RegistryError as error:
            raise SinkError(error.message, where=self._where) from error

"""The seam of lookups: systems outside that are asked for the row of a key, and whose rows are never read as a whole.

A lookup is a connector of sources with `'lookup' = 'true'`. A lookup join asks for those keys that it needs, and the
answers are kept in the Delta table `<source>__answer`, which is all that a query ever reads. Asking is done by a client
(`freshline.sources.lookups.client`), which `client` names and a refresh loads.

Shipped lookups and those of other packages (entry points `freshline.lookups`) are found by name
(`freshline.values.registry`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from freshline.values.connector import Connector, Metadata
from freshline.values.extension import calling
from freshline.values.options import Kind, Option

if TYPE_CHECKING:
    from freshline.values.spec import SourceSpec

# Columns of a table of answers beside those of the source.
ASKED_AT, FOUND, FAILED, ASKED_FOR, ASKED_OF = "asked_at", "found", "failed", "asked_for", "asked_of"
OF_EVERY_ANSWER = (ASKED_AT, FOUND, FAILED, ASKED_FOR, ASKED_OF)

# Types of which two values are equal in Spark, in Python and in a text, or in none of them.
KEY_TYPE = re.compile(r"(TINYINT|SMALLINT|INT|BIGINT|STRING|BOOLEAN|DATE|TIMESTAMP|TIMESTAMP_NTZ|DECIMAL\(\d+,\d+\))\Z")


class OnError(StrEnum):
    """The treatment of rows whose key has no answer, because the service failed or its answer does not fit."""

    FAIL = "fail"
    NULL = "null"
    QUARANTINE = "quarantine"


LOOKUP_OPTIONS = (
    Option("lookup.concurrency", "how many requests may be open at once", Kind.WHOLE, greatest=1024),
    Option("lookup.timeout", "how long one answer may take", Kind.SECONDS, greatest=3600),
    Option("lookup.rate-limit", "how many requests may begin in a second", Kind.WHOLE, greatest=1_000_000),
    Option("lookup.cache-ttl", "how long an answer may be used for new rows", Kind.SECONDS, least=0),
    Option(
        "lookup.on-error",
        "the treatment of rows whose key has no answer",
        Kind.CHOICE,
        choices=tuple(OnError),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Lookup(Connector):
    """A kind of system that is asked for rows by their key; subclasses are frozen dataclasses, as of any connector.

    Their `options` have LOOKUP_OPTIONS. `client` names the class or function that makes the client of a source, as
    `module:Class`. `rate_limit` is None for no limit.
    """

    lookup_concurrency: int = 8
    lookup_timeout: int = 10
    lookup_rate_limit: int | None = None
    lookup_cache_ttl: int = 0
    lookup_on_error: str = OnError.FAIL

    metadata: ClassVar[Mapping[str, Metadata]] = {}
    is_log: ClassVar[bool] = False
    is_lookup: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = LOOKUP_OPTIONS
    client: ClassVar[str] = ""

    def find_key_problems(self, key: Sequence[str], columns: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
        """Problems of the declaration with its key and columns, each as a rule, an option and a sentence."""
        return ()

    def open_client(self, spec: SourceSpec, host: Any, schema: Any) -> Any:
        """The client of a source, a `freshline.sources.lookups.client.LookupClient`.

        `host` is what it may use of the engine, and `schema` has the declared columns as Arrow has them (a
        `pyarrow.Schema`). By default that of `client`.
        """
        module, _, name = self.client.partition(":")
        with calling(type(self), "open_client", spec):
            return getattr(import_module(module), name)(spec, host, schema)

"""A server of Redis or Valkey that has a row for each key: as a hash, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.lookup import LOOKUP_OPTIONS, Lookup
from freshline.values.options import Kind, Option

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
HASH, JSON = "hash", "json"


@dataclass(frozen=True, kw_only=True)
class RedisLookup(TlsConnector, Lookup):
    """A server at `url`, a reference. `key` is the name under which a row is, with `{column}` for values of the key."""

    url: str
    key: str
    value: str = HASH

    name: ClassVar[str] = "redis"
    title: ClassVar[str] = "Redis"
    kind: ClassVar[str | None] = "redis"
    client: ClassVar[str] = "freshline.sources.redis.lookup_client:RedisLookupClient"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "the server", required="a reference to the server's address", secret=True),
        Option("key", "the name under which the row of a key is", Kind.RAW, required="such as customer:{id}"),
        Option("value", "what is under it", Kind.CHOICE, choices=(HASH, JSON)),
        *LOOKUP_OPTIONS,
        *TLS_OPTIONS,
    )

    def find_key_problems(self, key: Sequence[str], columns: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
        known = {name.lower() for name in key}
        named = {name.lower() for name in PLACEHOLDER.findall(self.key)}
        found = [
            ("OPTION_VALUE", "key", f"option 'key': {{{name}}} is no column of PRIMARY KEY ({', '.join(key)}).")
            for name in sorted(named - known)
        ]
        missing = [name for name in key if name.lower() not in named] if self.key else []
        found += [
            ("OPTION_NEEDS", "key", f"option 'key' needs {{{name}}}, a column of PRIMARY KEY.") for name in missing
        ]
        return tuple(found)

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.key, self.value)

    @property
    def shown(self) -> Mapping[str, str]:
        return {"key": self.key, "value": self.value}

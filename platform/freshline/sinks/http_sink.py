"""The light half that sinks of systems with an interface of HTTP share: the address, and the user who asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from freshline.sinks.http_client import read_hosts
from freshline.sources.tls import TlsSystem
from freshline.values.connector import Place
from freshline.values.options import Option, Options
from freshline.values.rules import declaration_error
from freshline.values.sink import Sink

# The options of the user who asks.
USER_OPTIONS = (
    Option("username", "the user"),
    Option("password", "the user's password", secret=True),
)


@dataclass(frozen=True, kw_only=True)
class HttpSink(TlsSystem, Sink):
    """A system at the hosts of `url`, as it is declared. `password` is a reference.

    `ports` are those of addresses without one, by http and https. `first_user` is the user of a password alone.
    """

    url: str
    username: str | None = None
    password: str | None = None

    ports: ClassVar[Mapping[str, int]]
    first_user: ClassVar[str]

    @classmethod
    def declare(cls, options: Options) -> Self:
        declared = super().declare(options)
        # With a reference in it, only the place of the declaration says what it is.
        if declared.url and "${" not in declared.url:
            try:
                read_hosts(declared.url, cls.ports)
            except ValueError as error:
                # The text may have a password.
                options.problems.add("OPTION_VALUE", f"option 'url': {error}.", options.at("url"))
        return declared

    def resolve(self, place: Place) -> Self:
        resolved = super().resolve(place)
        url = place.text("url", self.url)
        try:
            read_hosts(url, self.ports)
        except ValueError as error:
            raise declaration_error("OPTION_VALUE", f"option 'url': {error}.", place.at("url")) from error
        return replace(resolved, url=url)

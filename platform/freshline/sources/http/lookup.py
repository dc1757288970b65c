"""A service that is asked for the row of a key by HTTP, and answers with JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self
from urllib.parse import urlsplit

from freshline.sources.tls import TLS_OPTIONS, TlsConnector
from freshline.values.connector import Place
from freshline.values.lookup import LOOKUP_OPTIONS, Lookup
from freshline.values.options import Kind, Option, Options, Reference
from freshline.values.rules import declaration_error

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
# Headers whose values are secrets by their names; others may be written out.
_SECRET_HEADER = re.compile(r"auth|cookie|key|token|secret|password|signature", re.IGNORECASE)
_POINTER = re.compile(r"(/([^~]|~[01])*)?\Z")


@dataclass(frozen=True, kw_only=True)
class HttpLookup(TlsConnector, Lookup):
    """A service at `url`, in which `{column}` stands for a value of the key, or which `POST` sends the key to.

    `headers` are texts or references by their names. `row` is the JSON pointer (RFC 6901) to the object with the
    columns in an answer, empty for the whole of it.
    """

    url: str
    method: str = "get"
    headers: Mapping[str, str] = field(default_factory=dict)
    row: str = ""

    name: ClassVar[str] = "http"
    title: ClassVar[str] = "HTTP, as a lookup"
    kind: ClassVar[str | None] = "http"
    client: ClassVar[str] = "freshline.sources.http.lookup_client:HttpLookupClient"
    options: ClassVar[tuple[Option, ...]] = (
        Option("url", "where the row of a key is", required="where the row of a key is", reference=Reference.PART),
        Option("method", "how it is asked for", Kind.CHOICE, choices=("get", "post")),
        Option("header.", "a header of each request", field="headers", reference=Reference.WHOLE, is_beginning=True),
        Option("row", "where the row is in an answer", Kind.RAW),
        *LOOKUP_OPTIONS,
        *TLS_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        for name in options.beginning("header."):
            key = f"header.{name}"
            if not _HEADER.match(name):
                options.reject(key, "an option whose name is 'header.' and the name of a header")
            elif _SECRET_HEADER.search(name):
                options.require_reference(key, secret=True)
        text = options.raw("row")
        if text is not None and not _POINTER.match(text):
            options.reject("row", "a JSON pointer such as /data/0, or nothing for the whole answer")
        return super().declare(options)

    def find_key_problems(self, key: Sequence[str], columns: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
        # A reference is resolved after this, and has braces too.
        named = PLACEHOLDER.findall(re.sub(r"\$\{[^}]*\}", "", self.url))
        known = {name.lower() for name in key}
        found = [
            ("OPTION_VALUE", "url", f"option 'url': {{{name}}} is no column of PRIMARY KEY ({', '.join(key)}).")
            for name in named
            if name.lower() not in known
        ]
        missing = [name for name in key if name.lower() not in {each.lower() for each in named}]
        if missing and self.method == "get":
            said = f"option 'url' needs {{{missing[0]}}}, a column of PRIMARY KEY, or 'method' = 'post'."
            found.append(("OPTION_NEEDS", "url", said))
        return tuple(found)

    def resolve(self, place: Place) -> Self:
        resolved = super().resolve(place)
        assert isinstance(resolved, HttpLookup)
        url = place.text("url", self.url)
        _require_url(url, place)
        return replace(resolved, url=url)

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.url, self.method, self.row)

    @property
    def shown(self) -> Mapping[str, str]:
        return {"url": self.url}

    @property
    def dataset(self) -> tuple[str, str]:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}", parts.path or "/"


def _require_url(url: str, place: Place) -> None:
    """Raises DeclarationError for an address that is not one of HTTP, or has a password."""
    fits, netloc = False, ""
    with suppress(ValueError):
        parts = urlsplit(url)
        fits, netloc = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0, parts.netloc
    if not fits or not url.isascii() or any(sign.isspace() for sign in url):
        raise declaration_error(
            "OPTION_VALUE", "option 'url' is no address such as https://host/customers/{id}.", place.at("url")
        )
    if "@" in netloc or "{" in netloc:
        raise declaration_error(
            "OPTION_VALUE",
            "option 'url' has a user, a password or a column before its path. Give a password by "
            "'header.Authorization' = '${env:NAME}'.",
            place.at("url"),
        )

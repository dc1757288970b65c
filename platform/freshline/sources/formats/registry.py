"""A schema registry, as a source declares it. Nothing is asked here (see `registry_client`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from freshline.values.connector import Metadata
from freshline.values.format import Format
from freshline.values.options import Carrier, Kind, Option, Options, Reference
from freshline.values.secret import resolve_reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec

SCHEMA_ID = "_freshline_schema_id"
# The metadata of a record that names its schema.
SCHEMA_METADATA: Mapping[str, Metadata] = {"schema_id": Metadata("INT", SCHEMA_ID, quarantined=True)}

FAIL, QUARANTINE = "fail", "quarantine"

REGISTRY_OPTIONS = (
    Option(
        "registry.url",
        "the address of the schema registry",
        required="the address of the schema registry, as https://host:port",
        reference=Reference.WHOLE,
        carrier=Carrier.TOPICS,
    ),
    Option("registry.user", "the user of the schema registry", reference=Reference.WHOLE, carrier=Carrier.TOPICS),
    Option("registry.password", "the password of that user", secret=True, carrier=Carrier.TOPICS),
    Option("registry.token", "the bearer token of the schema registry", secret=True, carrier=Carrier.TOPICS),
    Option(
        "registry.tls.ca",
        "the file of the certificates that the registry's is checked by",
        reference=Reference.WHOLE,
        carrier=Carrier.TOPICS,
    ),
    Option(
        "registry.tls.certificate",
        "the file of the client's certificate",
        reference=Reference.WHOLE,
        carrier=Carrier.TOPICS,
    ),
    Option("registry.tls.key", "the file of its key", reference=Reference.WHOLE, carrier=Carrier.TOPICS),
    Option(
        "registry.unknown-id",
        "whether a record whose schema the registry does not know fails the refresh or goes to quarantine",
        Kind.CHOICE,
        choices=(FAIL, QUARANTINE),
        carrier=Carrier.TOPICS,
    ),
)


@dataclass(frozen=True)
class Registry:
    """A schema registry. All but `unknown_id` may be references, which are resolved where they are used."""

    url: str
    user: str | None = None
    password: str | None = None
    token: str | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    unknown_id: str = FAIL

    @classmethod
    def declare(cls, options: Options) -> Registry | None:
        """The registry that is declared, None without one; problems are added to those of `options`."""
        url = options.text("registry.url")
        for first, second in (
            ("registry.user", "registry.password"),
            ("registry.password", "registry.user"),
            ("registry.tls.certificate", "registry.tls.key"),
            ("registry.tls.key", "registry.tls.certificate"),
        ):
            options.require(first, f"'{second}'", second in options)
        if "registry.token" in options and "registry.user" in options:
            options.require("registry.token", "to be the only one of a token and a user", False)
        if url is None:
            return None
        if not url.startswith("${") and (problem := url_problem(url)):
            options.reject("registry.url", problem)
        return cls(
            url=url,
            user=options.text("registry.user"),
            password=options.text("registry.password"),
            token=options.text("registry.token"),
            tls_ca=options.text("registry.tls.ca"),
            tls_certificate=options.text("registry.tls.certificate"),
            tls_key=options.text("registry.tls.key"),
            unknown_id=options.choice("registry.unknown-id", (FAIL, QUARANTINE)) or FAIL,
        )

    def resolve(self, root: Path, environ: Mapping[str, str]) -> RegistryAddress:
        """The registry with its references resolved. Raises ValueError with a sentence that has no secret."""

        def text(option: str, written: str | None) -> str | None:
            if written is None:
                return None
            try:
                return resolve_reference(written, root, environ)
            except ValueError as error:
                raise ValueError(f"option '{option}': {error}") from error

        def file(option: str, written: str | None) -> Path | None:
            found = text(option, written)
            return None if found is None else root / Path(found).expanduser()

        url = text("registry.url", self.url) or ""
        if url_problem(url):
            raise ValueError(f"option 'registry.url': {self.url} does not stand for {url_problem(url)}.")
        return RegistryAddress(
            url.rstrip("/"),
            text("registry.user", self.user),
            text("registry.password", self.password),
            text("registry.token", self.token),
            file("registry.tls.ca", self.tls_ca),
            file("registry.tls.certificate", self.tls_certificate),
            file("registry.tls.key", self.tls_key),
        )


@dataclass(frozen=True)
class RegistryAddress:
    """A registry with its references resolved: what a client needs. Its text shows no secret."""

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None


@dataclass(frozen=True, kw_only=True)
class RegistryFormat(Format):
    """Records name their schemas, which a registry has.

    `registry` is None for records that have their own. `schemas` are those of the records that it was prepared for, by
    their ids, as descriptors of Protobuf with `has_descriptors`.
    """

    registry: Registry | None = None
    schemas: Mapping[int, Any] = field(default_factory=dict, compare=False, repr=False)

    has_text: ClassVar[bool] = False
    has_descriptors: ClassVar[bool] = False

    @property
    def has_bytes(self) -> bool:
        return self.registry is not None

    @property
    def is_prepared(self) -> bool:
        return self.registry is None

    def prepare(self, records: Sequence[DataFrame], spec: SourceSpec, host: Any) -> Format:
        # Loads Spark.
        from freshline.sources.formats.framed_rows import find_schemas

        assert self.registry is not None
        found = find_schemas(records, self.registry, spec, host, descriptors=self.has_descriptors)
        return replace(self, schemas=found)


def url_problem(url: str) -> str:
    """The form that a registry's address must have, where this one has another; empty where it has it."""
    expected = "http:// or https:// with a host, without a user, a query or a fragment"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return expected
    right = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and port != 0
    plain = url.isascii() and url.isprintable() and " " not in url
    return "" if right and plain and not parts.query and not parts.fragment else expected

"""The files by which a connection to a server is verified, as a declaration names them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from freshline.values.connector import Connector, OutsideSystem, Place
from freshline.values.options import Option, Reference

if TYPE_CHECKING:
    from ssl import SSLContext


class TlsFiles(Protocol):
    """The files of TLS that a declaration names, None where the address decides."""

    @property
    def tls_ca(self) -> str | None: ...

    @property
    def tls_certificate(self) -> str | None: ...

    @property
    def tls_key(self) -> str | None: ...


def tls_context(
    authorities: str | os.PathLike[str] | None,
    certificate: str | os.PathLike[str] | None,
    key: str | os.PathLike[str] | None,
) -> SSLContext:
    """A context that verifies servers, with these files. Raises OSError or ValueError for a file that is none."""
    # Loads OpenSSL, which declarations do without.
    from ssl import create_default_context

    context = create_default_context(cafile=authorities)
    if certificate is not None:
        # Without a word a key with a password would ask for it at the terminal.
        context.load_cert_chain(certificate, key, password="")
    return context


# The options of a connector whose server is verified, and asks for a certificate.
TLS_OPTIONS = (
    Option("tls.ca", "the file of the certificates that the server's is checked by", reference=Reference.PART),
    Option("tls.certificate", "the file of the client's certificate", reference=Reference.PART),
    Option("tls.key", "the file of its key", reference=Reference.PART),
)


@dataclass(frozen=True, kw_only=True)
class TlsSystem(OutsideSystem):
    """A system whose server is verified. The files are None where the address decides.

    Its options have TLS_OPTIONS.
    """

    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None

    def resolve(self, place: Place) -> Self:
        def file(option: str, text: str | None) -> str | None:
            return None if text is None else place.folder(option, place.text(option, text))

        return replace(
            self,
            tls_ca=file("tls.ca", self.tls_ca),
            tls_certificate=file("tls.certificate", self.tls_certificate),
            tls_key=file("tls.key", self.tls_key),
        )


@dataclass(frozen=True, kw_only=True)
class TlsConnector(TlsSystem, Connector):
    """A connector whose server is verified."""

"""The files by which a connection to a server is verified, as a declaration names them."""

from __future__ import annotations

from typing import Any, Protocol

from freshline.values.connector import Place
from freshline.values.options import Option, Reference


class TlsFiles(Protocol):
    """The files of TLS that a declaration names, None where the address decides."""

    @property
    def tls_ca(self) -> str | None: ...

    @property
    def tls_certificate(self) -> str | None: ...

    @property
    def tls_key(self) -> str | None: ...


# The options of a connector whose server is verified, and asks for a certificate.
TLS_OPTIONS = (
    Option("tls.ca", "the file of the certificates that the server's is checked by", reference=Reference.PART),
    Option("tls.certificate", "the file of the client's certificate", reference=Reference.PART),
    Option("tls.key", "the file of its key", reference=Reference.PART),
)


def tls_files(declared: TlsFiles, place: Place) -> dict[str, Any]:
    """The fields of a declaration that name such files, with their paths."""

    def file(option: str, text: str | None) -> str | None:
        return None if text is None else place.folder(option, place.text(option, text))

    return {
        "tls_ca": file("tls.ca", declared.tls_ca),
        "tls_certificate": file("tls.certificate", declared.tls_certificate),
        "tls_key": file("tls.key", declared.tls_key),
    }

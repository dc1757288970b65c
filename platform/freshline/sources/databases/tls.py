"""The files by which a connection to a database is verified, as a declaration names them."""

from __future__ import annotations

from typing import Protocol


class TlsFiles(Protocol):
    """What a declaration says of TLS: names of files, None for what the address says."""

    @property
    def tls_ca(self) -> str | None: ...

    @property
    def tls_certificate(self) -> str | None: ...

    @property
    def tls_key(self) -> str | None: ...

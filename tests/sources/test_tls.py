"""The files of TLS, as they are opened."""

from __future__ import annotations

import subprocess
from ssl import SSLContext

import pytest

from freshline.sources.tls import tls_context


@pytest.mark.security
@pytest.mark.seconds
def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path, monkeypatch):
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:hunter2", "-subj", "/CN=client",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    load, given = SSLContext.load_cert_chain, []

    def loads(self, certificate, key=None, password=None):
        given.append(password)
        load(self, certificate, key, password)

    monkeypatch.setattr(SSLContext, "load_cert_chain", loads)
    with pytest.raises(OSError, match=r"\[SSL"):
        tls_context(None, certificate, key)

    # OpenSSL asks at the terminal for one that is not given.
    assert given == [""]

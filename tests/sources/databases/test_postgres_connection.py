"""How a connection to Postgres is made: verified, unless the connection string says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from freshline.sources.databases.postgres_connection import connection_parameters


@dataclass(frozen=True)
class Declared:
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None


DECLARED = Declared()
MODES = [
    ({"host": "db"}, {}, ("verify-full", "system")),
    ({"host": "db", "sslmode": "require"}, {}, ("verify-full", "system")),
    ({"host": "db", "sslmode": "prefer"}, {}, ("prefer", None)),
    ({"host": "db", "sslmode": "verify-ca"}, {}, ("verify-ca", None)),
    ({"host": "db", "sslrootcert": "/own"}, {}, ("verify-full", "/own")),
    ({"host": "127.0.0.1"}, {}, (None, None)),
    ({"host": "127.example.com"}, {}, ("verify-full", "system")),
    ({"host": "/run/postgresql"}, {}, (None, None)),
    ({}, {}, (None, None)),
    ({"host": "localhost,db"}, {}, ("verify-full", "system")),
    ({"host": "localhost"}, {"tls_ca": "/ca"}, ("verify-full", "/ca")),
]


@pytest.mark.security
@pytest.mark.parametrize(("given", "options", "expected"), MODES)
def test_a_server_on_another_machine_is_verified_unless_the_url_says_otherwise(given, options, expected):
    found = connection_parameters(given, {}, replace(DECLARED, **options), "freshline", has_system_roots=True)

    assert (found.get("sslmode"), found.get("sslrootcert")) == expected


ENVIRONMENTS = [
    ({}, {"PGHOST": "db"}, "verify-full"),
    ({}, {"PGHOST": "/run/postgresql"}, None),
    ({"host": "localhost"}, {"PGHOST": "db"}, None),
    ({"host": "localhost"}, {"PGHOSTADDR": "10.0.0.5"}, "verify-full"),
    ({"host": "localhost"}, {"PGSERVICE": "shop"}, "verify-full"),
    ({"service": "shop"}, {}, "verify-full"),
    ({"service": "shop", "hostaddr": "127.0.0.1"}, {}, None),
    ({"service": "shop", "sslmode": "prefer"}, {}, "prefer"),
]


@pytest.mark.security
@pytest.mark.parametrize(("given", "environment", "expected"), ENVIRONMENTS)
def test_a_server_that_the_environment_or_a_service_names_is_verified_too(given, environment, expected):
    found = connection_parameters(given, environment, DECLARED, "freshline", has_system_roots=True)

    assert found.get("sslmode") == expected


def test_certificates_of_the_client_are_handed_on():
    declared = replace(DECLARED, tls_certificate="/c", tls_key="/k")
    found = connection_parameters({"host": "db"}, {}, declared, "freshline", has_system_roots=False)

    assert (found["sslcert"], found["sslkey"], found.get("sslrootcert")) == ("/c", "/k", None)

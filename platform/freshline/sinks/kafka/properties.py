"""Properties of Kafka's client in Java, as sources have them, in the words of librdkafka, which sinks write with.

So a sink takes the same options as a source for the same brokers. Properties of librdkafka itself are taken too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# One property of Java in the place of one or more of librdkafka.
_NAMES = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    # A file in PEM has the chain and the key.
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
    "max.request.size": ("message.max.bytes",),
}
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_STORES = ("ssl.truststore.location", "ssl.keystore.location")
_JAAS = "sasl.jaas.config"
_LOGIN = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def problem_of(name: str, client: Mapping[str, str]) -> str | None:
    """The reason why a property cannot be handed to librdkafka, as the end of a sentence; None where it can."""
    if name in _STORE_TYPES and client[name].strip().upper() != "PEM":
        return "is a store of Java, which this client cannot read. Convert it to PEM, with the type PEM"
    if name in _STORES and client.get(name.replace("location", "type"), "").strip().upper() != "PEM":
        return f"is a store of Java without '{name.replace('location', 'type')}' = 'PEM'. Convert it to PEM"
    if name in ("ssl.truststore.password", "ssl.keystore.password"):
        return "is of a store of Java, which this client cannot read. Convert it to PEM"
    return None


def for_librdkafka(client: Mapping[str, str]) -> dict[str, str]:
    """The properties in librdkafka's words, with their references resolved.

    Raises ValueError, whose sentence has no value, for a login that cannot be read.

    >>> for_librdkafka({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "linger.ms": "5"})
    {'ssl.ca.location': '/ca.pem', 'linger.ms': '5'}
    """
    found: dict[str, str] = {}
    for name, value in client.items():
        if name in _STORE_TYPES:
            continue
        if name == _JAAS:
            found.update(_login(value))
            continue
        for other in _NAMES.get(name, (name,)):
            found[other] = value
    return found


def _login(text: str) -> dict[str, str]:
    members = {match[1]: _plain(match) for match in _LOGIN.finditer(text)}
    if set(members) != {"username", "password"}:
        raise ValueError(
            f"option 'kafka.{_JAAS}': it has no username and password. Give those as 'kafka.sasl.username' and "
            "'kafka.sasl.password', or another mechanism in librdkafka's properties."
        )
    return {"sasl.username": members["username"], "sasl.password": members["password"]}


def _plain(match: re.Match[str]) -> str:
    quoted = match[2] if match[2] is not None else match[3]
    return match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)

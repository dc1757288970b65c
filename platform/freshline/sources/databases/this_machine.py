"""Whether a server is on this machine, so that what is said to it leaves the machine for nobody."""

from __future__ import annotations

from ipaddress import ip_address


def is_this_machine(host: str) -> bool:
    """Whether a name or an address is that of this machine whoever is asked. A name that begins with digits is a name.

    >>> [is_this_machine(host) for host in ("localhost", "127.0.0.9", "::1", "127.example.com", "0.0.0.0")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

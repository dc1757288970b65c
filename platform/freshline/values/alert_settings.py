"""Reading `[tool.freshline.alerts]`: when there is an alert, and the channels that report it.

Mistakes are refused when the settings are read, with a sentence: a channel that cannot work would be noticed only
when it is needed. Secrets are references (`${env:NAME}`, `${file:path}`) and stay references here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from freshline.errors import SettingsError
from freshline.values.freshness import parse_seconds
from freshline.values.rules import nearest
from freshline.values.secret import require_reference
from freshline.values.settings import AlertSettings, ChannelSettings, check_keys

ALERT_KEYS = ("remind-after", "quarantine-share", "quarantine-rows", "channels")
CHANNEL_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "log": (),
    "webhook": ("url", "secret", "private-addresses"),
    "slack": ("url", "private-addresses"),
    "email": ("host", "port", "encryption", "username", "password", "from", "to"),
}
ENCRYPTIONS = ("starttls", "tls", "none")

CHANNEL_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
CHANNEL_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]*\Z")


def merged_alerts(section: object, own: object) -> object:
    """The alerts of the project with those of one environment on top; channels one by one."""
    if not isinstance(section, dict) or not isinstance(own, dict):
        return own
    values = {**section, **own}
    if isinstance(section.get("channels"), dict) and isinstance(own.get("channels"), dict):
        values["channels"] = {**section["channels"], **own["channels"]}
    return values


def read_alerts(value: object, where: str) -> AlertSettings:
    """The settings of alerts; raises SettingsError."""
    return _Reader(where).alerts(value)


class _Reader:
    def __init__(self, where: str) -> None:
        self.where = where

    def alerts(self, value: object) -> AlertSettings:
        if not isinstance(value, dict):
            raise self.error("alerts is a table: [tool.freshline.alerts].")
        check_keys(value, ALERT_KEYS, "[tool.freshline.alerts]", self.where)
        default = AlertSettings()
        remind, share, rows = (value.get(key) for key in ALERT_KEYS[:3])
        channels = value.get("channels", {})
        if not isinstance(channels, dict):
            raise self.error("channels are tables: [tool.freshline.alerts.channels.<name>].")
        return AlertSettings(
            default.remind_after_seconds if remind is None else self.duration(remind),
            default.quarantine_share if share is None else self.share(share),
            default.quarantine_rows if rows is None else self.whole("quarantine-rows", rows, 1, 10**9),
            tuple(self.channel(name, own) for name, own in channels.items()) or default.channels,
        )

    def channel(self, name: str, value: object) -> ChannelSettings:
        shown = f"[tool.freshline.alerts.channels.{name}]"
        if not CHANNEL_NAME.match(name):
            raise self.error(f"channel {name!r}: a name has letters, digits, _ and - only, up to 100.")
        if not isinstance(value, dict):
            raise self.error(f"channels are tables: {shown}.")
        kind, options = value.get("type"), {key: item for key, item in value.items() if key != "type"}
        if isinstance(kind, str) and CHANNEL_CLASS.match(kind):
            return ChannelSettings(name, kind, options)
        known = tuple(CHANNEL_OPTIONS)
        if not isinstance(kind, str) or kind not in CHANNEL_OPTIONS:
            raise self.error(
                f"{shown}: type is {kind!r}.{nearest(str(kind), known)} Accepted is {', '.join(known)}, or "
                "module:Class of a channel of your own."
            )
        check_keys(options, ("type", *CHANNEL_OPTIONS[kind]), shown, self.where)
        if kind in ("webhook", "slack"):
            self.check_web(options, shown, needs_secret=kind == "webhook")
        elif kind == "email":
            self.check_email(options, shown)
        return ChannelSettings(name, kind, options)

    def check_web(self, options: Mapping[str, Any], shown: str, *, needs_secret: bool) -> None:
        private = options.get("private-addresses", False)
        if not isinstance(private, bool):
            raise self.refuse(shown, "private-addresses", private, "true or false")
        url = self.text(options, "url", shown)
        if url.startswith("${"):
            self.check_reference(url, "url", shown)
        else:
            problem = web_problem(url, private=private)
            if problem is not None:
                raise self.error(f"{shown}: url {problem}")
        if needs_secret and "secret" in options:
            self.check_reference(self.text(options, "secret", shown), "secret", shown)

    def check_email(self, options: Mapping[str, Any], shown: str) -> None:
        host = self.text(options, "host", shown)
        if not _HOST.match(host):
            raise self.refuse(shown, "host", host, "the name of a mail server")
        if "port" in options:
            self.whole(f"{shown}: port", options["port"], 1, 65_535)
        encryption = options.get("encryption", "starttls")
        if encryption not in ENCRYPTIONS:
            raise self.refuse(shown, "encryption", encryption, ", ".join(ENCRYPTIONS))
        if ("username" in options) != ("password" in options):
            raise self.error(f"{shown}: username and password go together. Write both, or none.")
        if "password" in options:
            self.text(options, "username", shown)
            self.check_reference(self.text(options, "password", shown), "password", shown)
            if encryption == "none":
                raise self.error(f"{shown}: a password is not sent without encryption. Take starttls or tls.")
        self.check_address(self.text(options, "from", shown), "from", shown)
        to = options.get("to")
        if not isinstance(to, list) or not to:
            raise self.refuse(shown, "to", to, 'a list of addresses such as ["data@example.com"]')
        for address in to:
            self.check_address(address, "to", shown)

    def check_address(self, address: object, key: str, shown: str) -> None:
        # Few projects have a mail channel, and every command reads the settings.
        from email.errors import MessageError
        from email.headerregistry import Address

        try:
            # Raises on line ends, on lists of addresses, and on what is no address at all.
            valid = isinstance(address, str) and bool(Address(addr_spec=address).domain)
        except (ValueError, IndexError, MessageError):
            valid = False
        if not valid:
            raise self.refuse(shown, key, address, "an address such as data@example.com")

    def check_reference(self, text: str, key: str, shown: str) -> None:
        require_reference(text, f"{shown}: {key}", self.where)

    def text(self, options: Mapping[str, Any], key: str, shown: str) -> str:
        value = options.get(key)
        if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
            raise self.error(f"{shown} needs {key}: one line of text.")
        return value

    def duration(self, value: object) -> int:
        try:
            return parse_seconds(value, "length of time for remind-after", least=60)
        except ValueError as error:
            raise self.error(str(error)) from error

    def share(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise self.error(f"quarantine-share is {value!r}. Accepted is a number above 0 and up to 1, such as 0.05.")
        return float(value)

    def whole(self, key: str, value: object, least: int, greatest: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
            raise self.error(f"{key} is {value!r}. Accepted is a whole number from {least} to {greatest}.")
        return value

    def refuse(self, shown: str, key: str, value: object, accepted: str) -> SettingsError:
        return self.error(f"{shown}: {key} is {value!r}. Accepted is {accepted}.")

    def error(self, sentence: str) -> SettingsError:
        return SettingsError(sentence, where=self.where)


def web_problem(url: str, *, private: bool) -> str | None:
    """The problem of the address of a channel, without showing it: its path may be a secret. None if there is none.

    >>> web_problem("https://hooks.example.com/a", private=False)
    >>> web_problem("http://127.0.0.1:9000/a", private=True)
    >>> web_problem("http://hooks.example.com/a", private=False)
    'does not begin with https://. Without encryption it is accepted only with private-addresses = true.'
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not an address. Write https://host/path."
    if not url.isascii() or not url.isprintable() or " " in url or not parts.hostname or port == 0:
        return "is not an address. Write https://host/path."
    if parts.scheme not in ("https", "http"):
        return "does not begin with https://."
    if parts.scheme == "http" and not private:
        return "does not begin with https://. Without encryption it is accepted only with private-addresses = true."
    if parts.username is not None or parts.password is not None:
        return "holds a user or password. Take them out."
    return None

"""From the settings of channels to channels.

A channel that cannot be opened is no reason to keep the others silent: it counts as one that takes no message, and
every delivery tries first to open it. So messages wait for it, as for one that is down, and a class that was mended on
disk is taken up.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from freshline.errors import DeliveryError, SettingsError
from freshline.report.alerts.channels.channel import Channel, Resolve, resolver
from freshline.report.alerts.message import Message
from freshline.values.secret import REFERENCE
from freshline.values.settings import ChannelSettings, Settings

# How long `plan` and others wait for the class of a channel, which is code of the project.
PATIENCE_SECONDS = 10.0


class ConfiguredChannel:
    """A channel of the settings, opened with the first message or before, and tried again until it can be opened."""

    def __init__(self, settings: ChannelSettings, resolve: Resolve, root: Path) -> None:
        self._settings = settings
        self._resolve = resolve
        self._root = root
        self._channel: Channel | None = None

    def open(self) -> None:
        """Load the class and what its options refer to. Raises SettingsError, which names the channel."""
        if self._channel is None:
            self._channel = _open(self._settings, self._resolve, self._root)

    def deliver(self, message: Message) -> None:
        """Raises DeliveryError, as every channel, also where there is none yet."""
        try:
            self.open()
        except SettingsError as error:
            raise DeliveryError(error.message) from error
        assert self._channel is not None
        self._channel.deliver(message)


def open_channels(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, ConfiguredChannel]:
    """The channels of the project by name. None is open yet: `open` and `deliver` open them."""
    resolve = resolver(settings.root, environ)
    return {channel.name: ConfiguredChannel(channel, resolve, settings.root) for channel in settings.alerts.channels}


def channel_problems(settings: Settings, environ: Mapping[str, str] = os.environ) -> list[SettingsError]:
    """The mistakes of channels: each is opened once, and sends nothing.

    A class whose constructor has not returned within PATIENCE_SECONDS is wrong too.
    """
    opened = open_channels(settings, environ)
    found: dict[str, SettingsError] = {}

    def attempt(name: str, channel: ConfiguredChannel) -> None:
        try:
            channel.open()
        except SettingsError as error:
            found[name] = error

    threads = {
        name: threading.Thread(target=attempt, args=(name, channel), daemon=True) for name, channel in opened.items()
    }
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(PATIENCE_SECONDS)
        if thread.is_alive():
            found[name] = SettingsError(
                f"its class has not loaded within {PATIENCE_SECONDS:.0f} seconds. Connect in deliver(message), not "
                "before.",
                where=_where(name),
            )
    return [found[name] for name in opened if name in found]


def _open(settings: ChannelSettings, resolve: Resolve, root: Path) -> Channel:
    try:
        for reference in _references(settings.options):
            resolve(reference)
    except DeliveryError as error:
        raise SettingsError(error.message, where=_where(settings.name)) from error
    # Each is loaded where it is used: a plan of a project without them needs neither HTTP nor mail.
    match settings.type:
        case "log":
            from freshline.report.alerts.channels.log import LogChannel

            return LogChannel()
        case "webhook":
            from freshline.report.alerts.channels.webhook import WebhookChannel

            return WebhookChannel(settings.options, resolve)
        case "slack":
            from freshline.report.alerts.channels.slack import SlackChannel

            return SlackChannel(settings.options, resolve)
        case "email":
            from freshline.report.alerts.channels.email import EmailChannel

            return EmailChannel(settings.options, resolve)
        case _:
            return _own(settings, resolve, root)


def _own(settings: ChannelSettings, resolve: Resolve, root: Path) -> Channel:
    """A channel of the project's own."""
    module, _, name = settings.type.partition(":")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    known = module in sys.modules
    where = _where(settings.name)
    secrets: list[str] = []

    def resolve_noted(text: str) -> str:
        found = resolve(text)
        if found != text:
            secrets.append(found)
        return found

    try:
        made: Channel = getattr(importlib.import_module(module), name)(dict(settings.options), resolve_noted)
    except (Exception, SystemExit) as error:
        if not known:
            # It is read again by the next try, when the file may be another.
            sys.modules.pop(module, None)
            importlib.invalidate_caches()
        said = f"{type(error).__name__}: {error}"
        for secret in filter(None, secrets):
            # The sentence is shown on the board too.
            said = said.replace(secret, "***")
        raise SettingsError(
            f"{settings.type} cannot be used: {said}. It is a class that is called with the options of its table and "
            "a function that resolves references.",
            where=where,
        ) from error
    if not callable(getattr(made, "deliver", None)):
        raise SettingsError(f"{settings.type} has no method deliver(message).", where=where)
    return made


def _references(value: Any) -> Iterator[str]:
    """The references to secrets among options, which are values of TOML."""
    if isinstance(value, str):
        if REFERENCE.match(value):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _where(channel: str) -> str:
    return f"[tool.freshline.alerts.channels.{channel}]"

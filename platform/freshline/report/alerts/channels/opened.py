"""From the settings of channels to channels."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from freshline.declare.settings import ChannelSettings, Settings
from freshline.errors import SettingsError
from freshline.report.alerts.channels.channel import Channel, Resolve, resolver
from freshline.report.alerts.channels.email import EmailChannel
from freshline.report.alerts.channels.log import LogChannel
from freshline.report.alerts.channels.slack import SlackChannel
from freshline.report.alerts.channels.webhook import WebhookChannel


def open_channels(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, Channel]:
    """The channels of the project by name; raises SettingsError for a class that cannot be had."""
    resolve = resolver(settings.root, environ)
    return {channel.name: _open(channel, resolve, settings.root) for channel in settings.alerts.channels}


def _open(settings: ChannelSettings, resolve: Resolve, root: Path) -> Channel:
    match settings.type:
        case "log":
            return LogChannel()
        case "webhook":
            return WebhookChannel(settings.options, resolve)
        case "slack":
            return SlackChannel(settings.options, resolve)
        case "email":
            return EmailChannel(settings.options, resolve)
        case _:
            return _own(settings, resolve, root)


def _own(settings: ChannelSettings, resolve: Resolve, root: Path) -> Channel:
    """A channel of the project's own."""
    module, _, name = settings.type.partition(":")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    where = f"channel {settings.name}"
    try:
        made: Channel = getattr(importlib.import_module(module), name)(dict(settings.options), resolve)
    except Exception as error:
        raise SettingsError(
            f"{settings.type} cannot be used: {type(error).__name__}: {error}. It is a class that is called with the "
            "options of its table and a function that resolves references.",
            where=where,
        ) from error
    if not callable(getattr(made, "deliver", None)):
        raise SettingsError(f"{settings.type} has no method deliver(message).", where=where)
    return made

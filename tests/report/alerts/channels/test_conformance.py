"""The channels of freshline, and one that exists only here, checked against the claims of `freshline.testing`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

import pytest

from freshline.errors import DeliveryError
from freshline.report.alerts.channels.email import EmailChannel
from freshline.report.alerts.channels.log import LogChannel
from freshline.report.alerts.channels.slack import SlackChannel
from freshline.report.alerts.channels.webhook import WebhookChannel
from freshline.testing import ClaimsError, Service, check_channel
from freshline.testing.channels import ChannelConformance
from tests.report.alerts.servers import MailServer, WebServer, mail_server, web_server


class Web(Service):
    """A webhook on loopback."""

    secret = "secret"

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.server = self.stack.enter_context(web_server(WebServer()))

    @property
    def options(self) -> Mapping[str, Any]:
        return {"url": self.server.url, "private-addresses": True, "secret": "${env:SERVICE_SECRET}"}

    def received(self) -> list[str]:
        return [each.body.decode() for each in self.server.received]

    def take_away(self) -> None:
        self.server.hang_up = True

    def bring_back(self) -> None:
        self.server.hang_up = False
        # It came to a server that never answered.
        self.server.received.pop()

    def close(self) -> None:
        self.stack.close()


class Slack(Web):
    """An incoming webhook of Slack, whose address is the secret."""

    secret = "url"

    @property
    def options(self) -> Mapping[str, Any]:
        return {"url": "${env:SERVICE_SECRET}", "private-addresses": True}

    def held(self, secret: str) -> str:
        return self.server.url.replace("hunter2", secret)


class Mail(Service):
    """A mail server on loopback."""

    secret = "password"

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.server = self.stack.enter_context(mail_server(MailServer(starttls=False)))

    @property
    def options(self) -> Mapping[str, Any]:
        own = {"encryption": "none", "username": "me", "password": "${env:SERVICE_SECRET}"}
        return {"host": "localhost", "port": self.server.port, "from": "a@example.com", "to": ["b@example.com"], **own}

    def received(self) -> list[str]:
        return [each.decode() for each in self.server.mails]

    def take_away(self) -> None:
        self.server.answer = 451

    def bring_back(self) -> None:
        self.server.answer = 250

    def close(self) -> None:
        self.stack.close()


class Log(Service, logging.Handler):
    """The log of this process."""

    can_be_away = False

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.lines: list[str] = []
        self.logger = logging.getLogger("freshline.report.alerts.channels.log")
        self.before = self.logger.level
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(self)

    @property
    def options(self) -> Mapping[str, Any]:
        return {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def received(self) -> list[str]:
        return self.lines

    def close(self) -> None:
        self.logger.removeHandler(self)
        self.logger.setLevel(self.before)


CHANNELS: dict[str, tuple[Any, Any]] = {
    "webhook": (WebhookChannel, Web),
    "slack": (SlackChannel, Slack),
    "email": (EmailChannel, Mail),
    "log": (lambda options, resolve: LogChannel(), Log),
}


@pytest.mark.seconds
@pytest.mark.security
@pytest.mark.parametrize("name", CHANNELS)
def test_a_channel_of_freshline_is_checked_against_the_claims(name):
    channel, service = CHANNELS[name]

    check_channel(channel, service)


class Pager:
    """A channel of somebody, with the mistakes that are made most."""

    sent: ClassVar[list[str]] = []
    is_there = True

    def __init__(self, options, resolve):
        self.key = resolve(options["key"])

    def __repr__(self):
        return f"Pager({self.key})"

    def deliver(self, message):
        if not self.is_there:
            raise ConnectionError(f"no answer from https://pager.example?key={self.key}")
        message.cause.encode("ascii")
        if message.link.startswith("http"):
            self.sent.append(message.headline)


class PagerService(Service):
    secret = "key"

    @property
    def options(self):
        return {"key": "${env:SERVICE_SECRET}"}

    def received(self):
        return Pager.sent

    def take_away(self):
        Pager.is_there = False

    def bring_back(self):
        Pager.is_there = True

    def close(self):
        Pager.sent, Pager.is_there = [], True


def test_the_mistakes_of_a_channel_are_found():
    with pytest.raises(ClaimsError) as raised:
        check_channel(Pager, PagerService)

    broken = {name.removeprefix("test_"): str(error) for name, error in raised.value.broken.items()}
    assert broken.keys() == {
        "each_kind_of_news_comes_once_with_its_headline",
        "text_from_outside_is_text_whatever_it_has",
        "a_service_that_is_away_is_a_delivery_error_and_costs_nothing",
        "a_secret_is_read_when_it_is_used_and_shown_nowhere",
    }
    assert "ConnectionError: no answer from" in str(raised.value)
    assert "for the channel tests.report.alerts.channels.test_conformance:Pager" in str(raised.value)


def test_a_channel_without_its_method_is_found():
    with pytest.raises(ClaimsError, match="it has no method deliver"):
        check_channel(
            lambda options, resolve: object(),  # type: ignore[arg-type,return-value]
            Log,
            leave_out=[name for name in vars(ChannelConformance) if name.startswith("test_") and "made" not in name],
        )


def test_an_error_that_says_that_a_retry_would_do_harm_is_no_answer_to_a_service_that_is_away():
    class Final(Pager):
        def deliver(self, message):
            if not Pager.is_there:
                raise DeliveryError("it is away.", final=True)
            Pager.sent.append(f"{message.headline} {message.id}")

    with pytest.raises(ClaimsError, match="whether the error of a service that is away is `final`"):
        check_channel(Final, PagerService)

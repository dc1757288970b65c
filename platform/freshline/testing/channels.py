"""The claims that every channel of alerts must fulfil, whoever wrote it.

`check_channel` tries all of them on a `Service`: the system that people read, with what the claims need to do to it. No
Spark is needed. With pytest, a class that derives from `ChannelConformance` and has the fixture `service` has a test of
each.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from freshline.errors import DeliveryError
from freshline.freshness.alert import AlertEvent, AlertKind, AlertLevel
from freshline.report.alerts.channels.channel import Channel, Resolve, resolver
from freshline.report.alerts.message import Message
from freshline.testing.claims import SECRET as SECRET
from freshline.testing.claims import ClaimSubject, environment, refused, require, require_that, try_claims

_CAUSES = ("\r\nBcc: all@example.com", "<!channel> & <b>", "\x1b[2J\u2028\u202e", '"};\\', "\u00e9\U0001f600", "")
_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Service(ClaimSubject, ABC):
    """A service outside that a channel sends to.

    `secret` is the option for a secret; `options` have it as `${env:SERVICE_SECRET}`, and the value of the variable is
    what `held` makes of SECRET. `can_be_away` says that `take_away` does something: a log on this machine cannot be
    away.
    """

    secret_variable = "SERVICE_SECRET"
    can_be_away: ClassVar[bool] = True

    @property
    @abstractmethod
    def options(self) -> Mapping[str, Any]:
        """The options of the channel's table in pyproject.toml, without `type`."""

    @abstractmethod
    def received(self) -> Sequence[str]:
        """The messages that came, one text for each, in the order in which they came."""

    def take_away(self) -> None:
        """The service cannot be reached any more."""
        raise NotImplementedError

    def bring_back(self) -> None:
        """The service is there again."""
        raise NotImplementedError


def check_channel(
    channel: Callable[[Mapping[str, Any], Resolve], Channel],
    service: Callable[[], Service],
    *,
    leave_out: Collection[str] = (),
) -> None:
    """Try on a channel every claim about channels, each with a service of its own.

    `channel` is the class that `type` names in pyproject.toml, and `service` makes the service outside. Raises
    ClaimsError with all claims that fail.
    """

    def try_claim(name: str) -> None:
        suite = ChannelConformance()
        suite.channel = channel
        made = service()
        with ExitStack() as stack:
            stack.callback(made.close)
            for variable, value in made.variables.items():
                stack.enter_context(environment(variable, value))
            getattr(suite, name)(made)

    title = f"the channel {channel.__module__}:{getattr(channel, '__qualname__', channel)}"
    try_claims(ChannelConformance, title, try_claim, leave_out=leave_out)


def message_for(event: AlertEvent = AlertEvent.RAISED, **fields: Any) -> Message:
    """A message as a channel gets it; `fields` take the place of those that it has."""
    recovered = _AT + timedelta(minutes=5) if event is AlertEvent.RECOVERED else None
    message = Message(
        id="0123456789abcdef0123456789abcdef",
        event=event,
        level=AlertLevel.FAIL,
        subject="sales.orders",
        kind=AlertKind.LATE,
        cause="the lag is 12 minutes, and 5 are allowed",
        since=_AT - timedelta(minutes=7),
        at=_AT,
        recovered_at=recovered,
        link="http://127.0.0.1:3000/assets/sales/orders",
        environment="local",
        project="shop",
    )
    return replace(message, **fields)


class ChannelConformance:
    """The claims about every channel. `channel` is the class that is tried."""

    channel: Any

    def open(self, service: Service) -> Any:
        return self.channel(dict(service.options), resolver(Path.cwd(), os.environ))

    def test_it_is_made_with_its_options_and_reaches_nobody_before_there_is_news(self, service: Service) -> None:
        made = self.open(service)

        require_that(callable(getattr(made, "deliver", None)), "it has no method deliver(message)")
        require(list(service.received()), [], "the messages that came before there was news")

    def test_each_kind_of_news_comes_once_with_its_headline(self, service: Service) -> None:
        made = self.open(service)
        kinds = [message_for(event) for event in AlertEvent]
        kinds += [message_for(kind=kind, subject="engine") for kind in AlertKind]
        kinds += [message_for(level=level) for level in AlertLevel]
        kinds.append(message_for(link=None))
        for number, message in enumerate(kinds):
            made.deliver(replace(message, id=f"{number:032x}"))
            came = list(service.received())
            require(len(came), number + 1, f"the messages after {message.headline!r}")
            words = {"headline": message.headline, "id": f"{number:032x}", "subject": message.subject}
            said = " or ".join(words)
            require_that(any(word in came[-1] for word in words.values()), f"{came[-1]!r} has neither {said}")

    def test_text_from_outside_is_text_whatever_it_has(self, service: Service) -> None:
        made = self.open(service)
        for cause in _CAUSES:
            made.deliver(message_for(cause=cause, project=cause or "shop"))
        require(len(service.received()), 6, "the messages whose cause has other signs than letters")

    def test_news_that_comes_again_has_the_same_id_and_is_no_error(self, service: Service) -> None:
        made = self.open(service)
        for _ in range(2):
            made.deliver(message_for())

        require_that(service.received(), "the message did not come")

    def test_a_service_that_is_away_is_a_delivery_error_and_costs_nothing(self, service: Service) -> None:
        if not service.can_be_away:
            return
        made = self.open(service)
        made.deliver(message_for())
        service.take_away()
        with refused(DeliveryError) as refusal:
            made.deliver(message_for(AlertEvent.REMINDER, id="2" * 32))
        require_that(refusal.error.message, "the error has no sentence")
        require(refusal.error.final, False, "whether the error of a service that is away is `final`")
        service.bring_back()
        made.deliver(message_for(AlertEvent.REMINDER, id="2" * 32))
        require(len(service.received()), 2, "the messages once the service is there again")

    def test_a_secret_is_read_when_it_is_used_and_shown_nowhere(self, service: Service) -> None:
        if not service.secret:
            return
        made = self.open(service)
        shown = [repr(made), str(made)]
        if service.can_be_away:
            service.take_away()
            with refused(DeliveryError) as refusal:
                made.deliver(message_for())
            shown += [str(refusal.error), repr(refusal.error.as_json())]
            service.bring_back()
        require([text for text in shown if SECRET in text], [], "texts that show the secret")
        with environment("SERVICE_SECRET", None), refused(DeliveryError, "SERVICE_SECRET"):
            made.deliver(message_for())
        # It is there again, as after a new secret: the channel goes on without another engine.
        made.deliver(message_for())
        require_that(service.received(), "the message did not come once the secret was there again")

"""The message that each channel sends, and that nothing in a message can be more than text."""

from __future__ import annotations

import email
import email.policy
import hashlib
import hmac
import json
import logging
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freshline.errors import DeliveryError, SettingsError
from freshline.freshness.alert import AlertEvent, AlertLevel
from freshline.report.alerts.channels.channel import resolver
from freshline.report.alerts.channels.configured import channel_problems, open_channels
from freshline.report.alerts.channels.email import EmailChannel
from freshline.report.alerts.channels.slack import SlackChannel
from freshline.report.alerts.channels.webhook import WebhookChannel
from freshline.report.alerts.message import Message
from freshline.values.settings import AlertSettings, ChannelSettings, Settings
from tests.report.alerts.servers import MailServer, WebServer, mail_server

pytestmark = pytest.mark.security

ENVIRON = {"SECRET": "key", "PASSWORD": "swordfish"}
RESOLVE = resolver(Path("/"), ENVIRON)


# -- webhook and Slack


def test_a_webhook_gets_the_message_as_json_with_its_id(web: WebServer, message: Message) -> None:
    channel = WebhookChannel({"url": web.url, "private-addresses": True}, RESOLVE)
    channel.deliver(message)
    (found,) = web.received
    told = json.loads(found.body)

    assert told == message.as_json()
    assert (told["table"], told["kind"], told["level"], told["event"]) == ("sales.orders", "late", "FAIL", "raised")
    assert found.headers["Freshline-Event"] == told["id"] == message.id
    assert "Freshline-Signature" not in found.headers


def test_a_signature_can_be_checked_by_who_has_the_secret(web: WebServer, message: Message) -> None:
    options = {"url": web.url, "private-addresses": True, "secret": "${env:SECRET}"}
    WebhookChannel(options, RESOLVE, clock=lambda: 1_800_000_000.9).deliver(message)
    (found,) = web.received
    expected = hmac.new(b"key", b"1800000000." + found.body, hashlib.sha256).hexdigest()

    assert found.headers["Freshline-Signature"] == f"t=1800000000,v1={expected}"


def test_slack_gets_text_in_which_nothing_is_markup(web: WebServer, message: Message) -> None:
    SlackChannel({"url": web.url, "private-addresses": True}, RESOLVE).deliver(message)
    text = json.loads(web.received[0].body)["text"]
    lines = text.splitlines()

    assert lines[0] == "*FAIL: sales.orders is late*"
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|x&gt;" in lines[1]
    assert lines[-1] == "<http://127.0.0.1:3000/assets/sales/orders|open in Dagster>"
    assert text.count("<") == text.count(">") == 1


# -- references


def test_a_secret_is_read_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    resolve = resolver(tmp_path, {"NAME": "from the environment"})

    assert resolve("${env:NAME}") == "from the environment"
    assert resolve("${file:secret}") == "from a file"
    assert resolve("https://example.com") == "https://example.com"


@pytest.mark.parametrize(
    ("reference", "said"),
    [("${env:OTHER}", "no environment variable OTHER"), ("${file:none}", "cannot be read"), ("${x}", "a reference is")],
)
def test_a_reference_that_leads_nowhere_is_reported(tmp_path: Path, reference: str, said: str) -> None:
    with pytest.raises(DeliveryError, match=said):
        resolver(tmp_path, {})(reference)


# -- log


def test_the_log_has_one_line(message: Message, caplog: pytest.LogCaptureFixture, settings: Settings) -> None:
    channel = open_channels(settings)["log"]
    with caplog.at_level(logging.INFO):
        channel.deliver(message)
        channel.deliver(replace(message, level=AlertLevel.WARN))
        channel.deliver(replace(message, event=AlertEvent.RECOVERED))

    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING, logging.INFO]
    line = caplog.records[0].getMessage()
    assert line.startswith("FAIL: sales.orders is late; cause: ")
    # Neither line ends nor what moves a cursor.
    assert line.isprintable()
    assert line.endswith("; http://127.0.0.1:3000/assets/sales/orders")


# -- email


def email_options(server: MailServer, **more: Any) -> dict[str, Any]:
    options = {"host": "localhost", "port": server.port, "from": "freshline@example.com", "to": ["a@example.com"]}
    return {**options, **more}


@pytest.mark.parametrize("encryption", ["starttls", "tls"])
def test_a_mail_is_sent_encrypted_with_a_login(
    encryption: str, certificate: tuple[Path, Path], message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with mail_server(MailServer(certificate, tls=encryption == "tls")) as server:
        options = email_options(
            server,
            encryption=encryption,
            username="me",
            password="${env:PASSWORD}",
            to=["a@example.com", "b@example.com"],
        )
        EmailChannel(options, RESOLVE).deliver(message)

    assert (server.encrypted, server.recipients) == ([True], ["a@example.com", "b@example.com"])
    assert len(server.logins) == 1
    mail = email.message_from_bytes(server.mails[0], policy=email.policy.default)
    assert mail["Subject"] == "[freshline] FAIL: sales.orders is late"
    assert mail["To"] == "a@example.com, b@example.com"
    assert mail["Message-ID"] == f"<{message.id}@freshline.invalid>"
    # Text like a header in the cause is text of the body.
    assert mail["Bcc"] is None
    body = mail.get_content()
    assert "\\r\\nBcc: everybody@example.com" in body
    assert "open in Dagster: http://127.0.0.1:3000/assets/sales/orders" in body


def test_a_header_cannot_be_injected(message: Message) -> None:
    evil = replace(message, subject="orders\r\nBcc: everybody@example.com")
    with mail_server(MailServer(starttls=False)) as server:
        EmailChannel(email_options(server, encryption="none"), RESOLVE).deliver(evil)

    mail = email.message_from_bytes(server.mails[0], policy=email.policy.default)
    assert mail["Bcc"] is None
    assert server.recipients == ["a@example.com"]
    assert "Bcc" in mail["Subject"]


def refused(server: MailServer, message: Message, **more: Any) -> DeliveryError:
    with pytest.raises(DeliveryError) as raised:
        EmailChannel(email_options(server, **more), RESOLVE).deliver(message)
    assert "swordfish" not in str(raised.value)
    return raised.value


def test_nothing_is_sent_where_encryption_is_not_offered(message: Message) -> None:
    with mail_server(MailServer(starttls=False)) as server:
        found = refused(server, message, username="me", password="${env:PASSWORD}")

    assert "does not offer STARTTLS" in str(found)
    assert (server.mails, server.logins) == ([], [])


@pytest.mark.parametrize("encryption", ["starttls", "tls"])
def test_nothing_is_sent_to_a_server_whose_certificate_is_not_accepted(
    encryption: str, certificate: tuple[Path, Path], message: Message
) -> None:
    with mail_server(MailServer(certificate, tls=encryption == "tls")) as server:
        found = refused(server, message, encryption=encryption, username="me", password="${env:PASSWORD}")

    assert "certificate that is not accepted" in str(found)
    assert (server.mails, server.logins) == ([], [])


def test_a_mail_server_that_is_not_ready_is_tried_again(message: Message) -> None:
    with mail_server(MailServer(starttls=False, answer=451)) as server:
        found = refused(server, message, encryption="none")

    assert str(found) == "the mail server localhost answered 451."
    assert not found.final


def test_a_mail_that_some_got_is_not_sent_again(message: Message) -> None:
    with mail_server(MailServer(starttls=False, refused=("gone@example.com",))) as server:
        found = refused(server, message, encryption="none", to=["a@example.com", "gone@example.com"])

    assert found.final
    assert len(server.mails) == 1


# -- a channel of one's own

OWN = """
class Pager:
    told = []

    def __init__(self, options, resolve):
        self.key = resolve(options["key"])

    def deliver(self, message):
        self.told.append((self.key, message.headline))
"""


def with_channel(settings: Settings, kind: str, **options: Any) -> Settings:
    return replace(settings, alerts=AlertSettings(channels=(ChannelSettings("own", kind, options),)))


def test_a_channel_of_the_project_is_a_class_with_one_method(
    settings: Settings, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.root / "pager_of_the_shop.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (name,) = (channel.name for channel in with_channel(settings, "pager_of_the_shop:Pager").alerts.channels)
    channels = open_channels(with_channel(settings, "pager_of_the_shop:Pager", key="${env:SECRET}"), ENVIRON)
    channels[name].deliver(message)

    told = sys.modules["pager_of_the_shop"].Pager.told
    assert told == [("key", "FAIL: sales.orders is late")]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("no_such_module:Pager", "No module named"),
        ("json:Pager", "has no attribute 'Pager'"),
        ("builtins:zip", "is not iterable|must be iterable|object is not"),
        ("pathlib:no.x", "has no attribute"),
    ],
)
def test_a_class_that_cannot_be_a_channel_is_refused(
    settings: Settings, kind: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (problem,) = channel_problems(with_channel(settings, kind), ENVIRON)
    assert re.search(said, problem.message)
    assert problem.where == "[tool.freshline.alerts.channels.own]"
    with pytest.raises(SettingsError, match=said):
        open_channels(with_channel(settings, kind), ENVIRON)["own"].open()


TELLS = "def Pager(options, resolve):\n    raise ValueError(f'no such key: {resolve(options[\"key\"])}')\n"


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("chatty_pager", TELLS, "ValueError: no such key: ***. It is a class"),
        ("ending_pager", "raise SystemExit(3)\n", "SystemExit: 3"),
    ],
    ids=["a sentence about a secret does not show it", "a module that ends the process is an error like others"],
)
def test_a_class_that_fails_is_an_error_without_its_secrets(
    settings: Settings, module: str, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.root / f"{module}.py").write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (problem,) = channel_problems(with_channel(settings, f"{module}:Pager", key="${env:PASSWORD}"), ENVIRON)
    assert said in problem.message

"""The channel `email`: a mail in plain text.

Mails are made by `email.message.EmailMessage`, which refuses line ends in headers: a name or a cause can never become a
header or a recipient.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

from freshline.errors import DeliveryError
from freshline.report.alerts.channels.channel import Resolve
from freshline.report.alerts.channels.web import what_happened
from freshline.report.alerts.message import Message

TIMEOUT_SECONDS = 20.0
PORTS = {"starttls": 587, "tls": 465, "none": 25}
_LONGEST_SUBJECT = 200


class EmailChannel:
    """Sends through the mail server of its options."""

    def __init__(self, options: Mapping[str, Any], resolve: Resolve) -> None:
        self._options = options
        self._resolve = resolve

    def deliver(self, message: Message) -> None:
        options = self._options
        host, encryption = str(options["host"]), str(options.get("encryption", "starttls"))
        port = int(options.get("port", PORTS[encryption]))
        password = self._resolve(options["password"]) if "password" in options else None
        mail = mail_of(message, options["from"], options["to"])
        try:
            with _connect(host, port, encryption) as server:
                if encryption == "starttls":
                    # Raises where the server does not offer it: nothing is sent without encryption then.
                    server.starttls(context=ssl.create_default_context())
                if password is not None:
                    server.login(str(options["username"]), password)
                refused = server.send_message(mail)
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"the mail server {host} {_what_happened(error)}.") from error
        if refused:
            # The others have it; a mail that is sent again would reach them twice.
            first = sorted(refused)[0]
            raise DeliveryError(
                f"the mail server {host} refused {len(refused)} of the recipients, such as {first}.", final=True
            )


def mail_of(message: Message, sender: str, to: list[str]) -> EmailMessage:
    """The mail; its Message-ID is that of the event, so that a reader can recognize one that comes twice."""
    mail = EmailMessage(policy=SMTP)
    mail["Subject"] = f"[freshline] {message.headline}"[:_LONGEST_SUBJECT]
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = format_datetime(message.at)
    mail["Message-ID"] = f"<{message.id}@freshline.invalid>"
    # No out-of-office answers to a machine.
    mail["Auto-Submitted"] = "auto-generated"
    lines = [message.headline, "", *message.lines]
    if message.link:
        lines.append(f"open in Dagster: {message.link}")
    mail.set_content("\n".join(lines) + "\n")
    return mail


def _connect(host: str, port: int, encryption: str) -> smtplib.SMTP:
    if encryption == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())
    return smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)


def _what_happened(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return "refused the login"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "refused all recipients"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "does not offer STARTTLS, and nothing is sent without encryption"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"answered {error.smtp_code}"
    return what_happened(error)

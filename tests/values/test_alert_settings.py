"""The settings of alerts: what is read, and what is refused before anything needs it."""

from __future__ import annotations

import pytest

from freshline.values.settings import AlertSettings, ChannelSettings
from tests.declared_project import settings_of, settings_refused

WEBHOOK = """
[tool.freshline.alerts.channels.pager]
type = "webhook"
url = "https://pager.example.com/in"
"""
EMAIL = """
[tool.freshline.alerts.channels.team]
type = "email"
host = "mail.example.com"
from = "freshline@example.com"
to = ["data@example.com"]
"""


def test_without_channels_alerts_go_to_the_log(project):
    assert settings_of(project, "").alerts == AlertSettings(21_600, 0.05, 20, (ChannelSettings("log", "log"),))


def test_every_setting_is_read(project):
    found = settings_of(
        project,
        f"""
dagster-url = "https://dagster.example.com/prod/"
[tool.freshline.alerts]
remind-after = "1 hour"
quarantine-share = 0.5
quarantine-rows = 3
{WEBHOOK}
secret = "${{env:PAGER_SECRET}}"
{EMAIL}
[tool.freshline.alerts.channels.own]
type = "shop.alerts:Pager"
anything = 3
""",
    )

    assert found.dagster_url == "https://dagster.example.com/prod"
    assert (found.alerts.remind_after_seconds, found.alerts.quarantine_share, found.alerts.quarantine_rows) == (
        3600,
        0.5,
        3,
    )
    assert [(channel.name, channel.type) for channel in found.alerts.channels] == [
        ("pager", "webhook"),
        ("team", "email"),
        ("own", "shop.alerts:Pager"),
    ]
    # A secret stays a reference.
    assert found.alerts.channels[0].options["secret"] == "${env:PAGER_SECRET}"
    assert found.alerts.channels[2].options == {"anything": 3}


def test_an_environment_changes_what_it_names(project):
    text = f"""
[tool.freshline.alerts]
remind-after = "1 hour"
{WEBHOOK}
{EMAIL}
[tool.freshline.environments.production.alerts.channels.pager]
type = "log"
"""
    found = settings_of(project, text, FRESHLINE_ENV="production").alerts

    assert found.remind_after_seconds == 3600
    assert [(channel.name, channel.type) for channel in found.channels] == [("pager", "log"), ("team", "email")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alerts = 3", "alerts is a table"),
        ("alerts = {remind = 3}", "has no setting remind. Did you mean remind-after"),
        ("alerts = {remind-after = '5 seconds'}", "below 60 seconds"),
        ("alerts = {quarantine-share = 5}", "quarantine-share is 5. Accepted is a number above 0 and up to 1"),
        ("alerts = {quarantine-rows = 0}", "quarantine-rows is 0"),
        ("alerts = {channels = []}", "channels are tables"),
        ("alerts = {channels = {x = 3}}", "channels are tables"),
        ("alerts = {channels = {'a b' = {type = 'log'}}}", "letters, digits"),
        ("alerts = {channels = {x = {}}}", "type is None"),
        ("alerts = {channels = {x = {type = 'slak'}}}", "type is 'slak'. Did you mean slack"),
        ("alerts = {channels = {x = {type = 'log', url = 'x'}}}", "has no setting url"),
        ("alerts = {channels = {x = {type = 'slack'}}}", "needs url"),
        ("alerts = {channels = {x = {type = 'slack', url = '${HOOK}'}}}", "url is not a reference"),
        ("dagster-url = 'dagster.example.com'", "Accepted is an address such as https://"),
        ("dagster-url = 'https://user:password@example.com'", "Accepted is an address"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(project, text, said):
    assert said in settings_refused(project, text)


@pytest.mark.security
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("url = 'ftp://example.com'", "does not begin with https://"),
        ("url = 'http://example.com'", "accepted only with private-addresses"),
        ("url = 'https://u:p@example.com'", "holds a user or password"),
        ("url = 'https://example.com:99999'", "is not an address"),
        ('url = "https://example.com/\\r\\nHost: x"', "one line of text"),
        ("url = 'https://example.com'\nsecret = 'hunter2'", "secret is not a reference"),
        ("url = 'https://example.com'\nsecret = '${env:A}${env:B}'", "secret is not a reference"),
        ("url = 'https://example.com'\nprivate-addresses = 'yes'", "Accepted is true or false"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused_without_its_secret(project, options, said):
    found = settings_refused(project, f"[tool.freshline.alerts.channels.pager]\ntype = 'webhook'\n{options}\n")

    assert said in found
    assert "hunter2" not in found


@pytest.mark.security
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("port = 0", "port is 0"),
        ("encryption = 'ssl'", "encryption is 'ssl'. Accepted is starttls, tls, none"),
        ("username = 'me'", "username and password go together"),
        ("username = 'me'\npassword = 'hunter2'", "password is not a reference"),
        ("encryption = 'none'\nusername = 'me'\npassword = '${env:P}'", "not sent without encryption"),
    ],
)
def test_a_mail_server_that_cannot_be_used_is_refused(project, options, said):
    found = settings_refused(project, EMAIL + options)

    assert said in found
    assert "hunter2" not in found


@pytest.mark.parametrize("address", ["nobody", "@", "a@b.c, d@e.f", "Ann <a@b.c>", "a@b.c\\nBcc: x@y.z", ""])
def test_an_address_is_one_address(project, address):
    assert "Accepted is an address" in settings_refused(project, EMAIL.replace('"data@example.com"', f'"{address}"'))

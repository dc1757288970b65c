"""Where lineage events and traces go: an address by the rules of webhooks, a token by reference, or a file."""

from __future__ import annotations

import pytest

from freshline.values.settings import Destination, OpenLineageSettings
from tests.declared_project import settings_of, settings_refused


def test_without_the_settings_nothing_leaves(project):
    settings = settings_of(project, "")

    assert settings.openlineage is None
    assert settings.otel is None


def test_an_address_and_a_file_are_read(project):
    settings = settings_of(
        project,
        "[tool.freshline.openlineage]\nurl = 'https://lineage.example.com/api/v1/lineage'\ntoken = '${env:LINEAGE}'\n"
        "file = 'lineage/events.jsonl'\nnamespace = 'shop'\n"
        "[tool.freshline.otel]\nurl = 'http://127.0.0.1:4318/v1/traces'\nprivate-addresses = true\n",
    )

    assert settings.openlineage == OpenLineageSettings(
        Destination("https://lineage.example.com/api/v1/lineage", "${env:LINEAGE}"),
        project.root / "lineage" / "events.jsonl",
        "shop",
    )
    assert settings.otel == Destination("http://127.0.0.1:4318/v1/traces", None, True)


def test_a_file_needs_no_address(project):
    found = settings_of(project, "[tool.freshline.openlineage]\nfile = '/data/events.jsonl'\n").openlineage

    assert found is not None
    assert found.destination is None
    assert str(found.file) == "/data/events.jsonl"


@pytest.mark.security
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("openlineage = 1", "openlineage is a table"),
        ("otel = []", "otel is a table"),
        ("[tool.freshline.openlineage]", "needs url"),
        ("[tool.freshline.otel]\nfile = 'x'", "no setting file"),
        ("[tool.freshline.otel]\nurls = 'x'", "Did you mean url"),
        ("[tool.freshline.otel]\nurl = 'http://collector.example.com'", "does not begin with https://"),
        ("[tool.freshline.otel]\nurl = 'https://me:hunter2@collector.example.com'", "holds a user or password"),
        ("[tool.freshline.otel]\nurl = 'ftp://collector.example.com'", "does not begin with https://"),
        ("[tool.freshline.otel]\nurl = '${hunter2}'", "url is not a reference"),
        ("[tool.freshline.otel]\nurl = 'https://a.example.com'\ntoken = 'hunter2'", "token is not a reference"),
        (
            "[tool.freshline.otel]\nurl = 'https://a.example.com'\nprivate-addresses = 'yes'",
            "Accepted is true or false",
        ),
        ("[tool.freshline.openlineage]\nfile = ''", "file is no line of text"),
        ('[tool.freshline.openlineage]\nfile = "a\\nb"', "file is no line of text"),
        ("[tool.freshline.openlineage]\nfile = 7", "file is no line of text"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_without_its_secret(project, text, said):
    message = settings_refused(project, text)

    assert said in message
    assert "hunter2" not in message.replace("${hunter2}", "")

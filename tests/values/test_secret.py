"""Secrets: where they are read from, and that no message shows one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.declare.project_settings import read_settings
from freshline.errors import SettingsError
from freshline.values.secret import read_dagster_token, resolve_reference

pytestmark = pytest.mark.security

TOKEN = "0123456789abcdef"


@pytest.fixture
def settings(project):
    project.settings("")
    return read_settings(project.root, {})


def test_a_token_is_read_where_its_reference_says(settings):
    (settings.root / "token").write_text(f"{TOKEN}\n")

    assert read_dagster_token(settings, {}) is None
    assert read_dagster_token(replace(settings, dagster_token="${env:UI}"), {"UI": TOKEN}) == TOKEN
    assert read_dagster_token(replace(settings, dagster_token="${file:token}"), {}) == TOKEN


@pytest.mark.parametrize(
    ("reference", "value", "said"),
    [
        ("${env:OTHER}", TOKEN, "there is no environment variable OTHER"),
        ("${file:none}", TOKEN, "the file none of a secret cannot be read"),
        ("${env:UI}", TOKEN[1:], "is no token. It has 16 to 512"),
        ("${env:UI}", f"{TOKEN} ", "is no token"),
        ("${env:UI}", f"{TOKEN}ä", "is no token"),
        ("${env:UI}", f"{TOKEN}+/=", "is no token"),
        ("${env:UI}", f"{TOKEN}\n", "is no token"),
    ],
)
def test_a_text_that_is_no_token_is_reported_without_showing_it(settings, reference, value, said):
    with pytest.raises(SettingsError) as raised:
        read_dagster_token(replace(settings, dagster_token=reference), {"UI": value})

    assert said in str(raised.value)
    assert TOKEN[1:] not in str(raised.value)


def test_the_home_of_somebody_unknown_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="the file ~nobody-here/x of a secret names the home of somebody unknown"):
        resolve_reference("${file:~nobody-here/x}", tmp_path, {})

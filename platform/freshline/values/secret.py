"""Secrets are not written in pyproject.toml: a setting names where one is, and it is read when it is used.

A reference is `${env:NAME}`, a variable of the process, or `${file:path}`, the content of a file without the line end
at its end. The secret that is read is kept nowhere, and no message shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from freshline.errors import SettingsError
from freshline.values.settings import Settings

REFERENCE = re.compile(r"\$\{(env:[A-Za-z_][A-Za-z0-9_]*|file:[^{}\r\n]+)\}\Z")
# The path in a reference to a file.
FILE_REFERENCE = re.compile(r"\$\{file:([^{}\r\n]+)\}\Z")

LEAST_TOKEN = 16
# A token of characters that need no escape in an address and a header.
_TOKEN = re.compile(rf"[A-Za-z0-9._~-]{{{LEAST_TOKEN},512}}\Z")


def require_reference(value: object, key: str, where: str) -> str:
    """The reference that a setting is; raises SettingsError for anything else, which is not shown."""
    if not isinstance(value, str) or not REFERENCE.match(value):
        # It may be the secret itself.
        raise SettingsError(
            f"{key} is not a reference. Secrets are not written here: give ${{env:NAME}} or ${{file:path}}.",
            where=where,
        )
    return value


def resolve_reference(text: str, root: Path, environ: Mapping[str, str]) -> str:
    """The text that a reference stands for; other texts are returned as they are. Paths are relative to the project.

    Raises ValueError with a sentence that has no secret.
    """
    if not (text.startswith("${") and text.endswith("}")):
        return text
    kind, _, what = text[2:-1].partition(":")
    if kind == "env":
        value = environ.get(what, "")
        if not value:
            raise ValueError(f"there is no environment variable {what}. Set it for the process that needs the secret.")
        return value
    if kind == "file":
        try:
            return (root / Path(what).expanduser()).read_text(encoding="utf-8").rstrip("\r\n")
        except RuntimeError as error:
            raise ValueError(f"the file {what} of a secret names the home of somebody unknown.") from error
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8"
            raise ValueError(f"the file {what} of a secret cannot be read: {reason}.") from error
    raise ValueError("a reference is ${env:NAME} or ${file:path}.")


def resolve_token(text: str, root: Path, environ: Mapping[str, str]) -> str:
    """As `resolve_reference`, of what others must bear to be let in. Raises ValueError also where it is no token."""
    token = resolve_reference(text, root, environ)
    if not _TOKEN.match(token):
        raise ValueError(
            f"what {text} holds is no token. It has {LEAST_TOKEN} to 512 letters, digits and signs of ._~-; "
            "`openssl rand -hex 24` makes one."
        )
    return token


def read_dagster_token(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The token that the Dagster UI asks for, None without one; raises SettingsError."""
    if settings.dagster_token is None:
        return None
    try:
        return resolve_token(settings.dagster_token, settings.root, environ)
    except ValueError as error:
        raise SettingsError(f"dagster-token: {error}") from error

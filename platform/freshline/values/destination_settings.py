"""Reading the settings of what travels: `[tool.freshline.openlineage]` and `[tool.freshline.otel]`.

An address is judged as that of a webhook is, and a token is a reference. Both are checked when the settings are read,
because a destination that cannot work would be noticed only when somebody misses what it should have.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshline.errors import SettingsError
from freshline.values.alert_settings import web_problem
from freshline.values.secret import require_reference
from freshline.values.settings import Destination, OpenLineageSettings, check_keys

DESTINATION_KEYS = ("url", "token", "private-addresses")
OPENLINEAGE_KEYS = (*DESTINATION_KEYS, "file", "namespace")
OTEL_KEYS = DESTINATION_KEYS


def read_openlineage(value: object, root: Path, where: str) -> OpenLineageSettings:
    """The settings of lineage events; raises SettingsError."""
    reader = _Reader("openlineage", OPENLINEAGE_KEYS, value, where)
    file, namespace = reader.text("file"), reader.text("namespace")
    destination = reader.destination() if file is None or "url" in reader.values else None
    return OpenLineageSettings(
        destination,
        None if file is None else Path(root / Path(file).expanduser()).absolute(),
        namespace or OpenLineageSettings.namespace,
    )


def read_otel(value: object, where: str) -> Destination:
    """The destination of traces; raises SettingsError."""
    return _Reader("otel", OTEL_KEYS, value, where).destination()


class _Reader:
    def __init__(self, name: str, keys: tuple[str, ...], value: object, where: str) -> None:
        self.name = f"[tool.freshline.{name}]"
        self.where = where
        if not isinstance(value, dict):
            raise self.error(f"{name} is a table: {self.name}.")
        self.values: Mapping[str, Any] = value
        check_keys(value, keys, self.name, where)

    def destination(self) -> Destination:
        private = self.values.get("private-addresses", False)
        if not isinstance(private, bool):
            raise self.error(f"{self.name}: private-addresses is {private!r}. Accepted is true or false.")
        url = self.text("url")
        if url is None:
            raise self.error(f"{self.name} needs url: one line of text.")
        if not url.startswith("${"):
            problem = web_problem(url, private=private)
            if problem is not None:
                raise self.error(f"{self.name}: url {problem}")
        else:
            require_reference(url, f"{self.name}: url", self.where)
        token = self.text("token")
        if token is not None:
            require_reference(token, f"{self.name}: token", self.where)
        return Destination(url, token, private)

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip() or value != value.strip() or not value.isprintable():
            raise self.error(f"{self.name}: {key} is no line of text.")
        return value

    def error(self, sentence: str) -> SettingsError:
        return SettingsError(sentence, where=self.where)

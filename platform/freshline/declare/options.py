"""The options in WITH: the complete list, and what each accepts.

An option that is not in the list is an error with the nearest name; one that is in the list and not in this
version is refused with a sentence. Nothing is ever ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from freshline.declare.clauses import Written
from freshline.declare.freshness import parse_seconds
from freshline.declare.location import Location
from freshline.declare.names import TableName
from freshline.declare.rules import Problems, nearest

TABLE_OPTIONS = (
    "merge",
    "merge.order",
    "merge.sequence",
    "merge.tie-breaker",
    "merge.late",
    "merge.delete-when",
    "upstream-deletes",
    "lookup.on-duplicate",
    "lookup.retry-on-miss.attempts",
    "lookup.retry-on-miss.delay",
    "delta-join.strategy",
    "delta-join.cache-enable",
    "delta-join.left-cache-size",
    "delta-join.right-cache-size",
    "incremental",
    "history",
    "non-driving",
    "requires-history",
    "partition.unit",
    "partition.start",
    "partition.time-zone",
    "partition.values",
    "alert.warn-after",
    "alert.fail-after",
    "python.time-limit",
    "owner",
    "group",
)
TABLE_OPTIONS_NOT_BUILT = ()
SOURCE_OPTIONS = (
    "connector",
    "format",
    "path",
    "topic",
    "bootstrap.servers",
    "starting",
    "rate-limit",
    "accept-gap",
    "accept-topic",
    "settle",
    "follow-links",
    "header",
    "null-value",
    "deduplicate",
    "max-record-bytes",
    "watermark.max-ahead",
    "history",
    "alert.warn-after",
    "alert.fail-after",
    "owner",
    "group",
)
SOURCE_OPTIONS_NOT_BUILT = ()
# Options that begin like this are handed to the client of Kafka as they are, without these letters.
KAFKA_OPTION = "kafka."

_REFERENCE = re.compile(r"\$\{[^}]*\}")


class Options:
    """The options of one declaration, read one by one; what is wrong goes to `problems`."""

    def __init__(
        self,
        options: Mapping[str, Written[str]],
        written_at: Location,
        problems: Problems,
        known: tuple[str, ...],
        not_built: tuple[str, ...],
        passed_on: tuple[str, ...] = (),
    ) -> None:
        """`passed_on` are the first letters of options that somebody else knows."""
        self._options = options
        self._written_at = written_at
        self._problems = problems
        for key in options:
            if key in not_built:
                problems.add("NOT_BUILT", f"option '{key}' is not built yet. Remove it.", self.at(key))
            elif key not in known and not key.startswith(passed_on):
                problems.add(
                    "UNKNOWN_OPTION",
                    f"there is no option '{key}'.{nearest(key, known)} Options are {', '.join(known)}.",
                    self.at(key),
                )

    def __contains__(self, key: str) -> bool:
        return key in self._options

    def at(self, key: str) -> Location:
        written = self._options.get(key)
        return Location(self._written_at.path, written.line if written else self._written_at.line)

    def beginning(self, letters: str) -> dict[str, str]:
        """The options that begin with these letters, without them, as they are written."""
        return {
            key.removeprefix(letters): written.value
            for key, written in self._options.items()
            if key.startswith(letters)
        }

    def refuse(self, key: str, expected: str) -> None:
        self._problems.add(
            "OPTION_VALUE", f"option '{key}' is '{self._options[key].value}'. Accepted is {expected}.", self.at(key)
        )

    def text(self, key: str) -> str | None:
        written = self._options.get(key)
        if written is None:
            return None
        if not written.value.strip():
            self.refuse(key, "a text that is not empty")
            return None
        return written.value.strip()

    def raw(self, key: str) -> str | None:
        """The value as it was written, blanks and all."""
        written = self._options.get(key)
        return written.value if written else None

    def choice(self, key: str, accepted: tuple[str, ...], not_built: tuple[str, ...] = ()) -> str | None:
        written = self._options.get(key)
        if written is None:
            return None
        value = written.value.strip().lower()
        if value in accepted:
            return value
        if value in not_built:
            self._problems.add(
                "NOT_BUILT", f"'{key}' = '{value}' is not built yet. Built is {_or(accepted)}.", self.at(key)
            )
        else:
            self.refuse(key, _or(accepted))
        return None

    def boolean(self, key: str) -> bool | None:
        value = self.choice(key, ("true", "false"))
        return None if value is None else value == "true"

    def seconds(self, key: str, *, least: int = 1) -> int | None:
        written = self._options.get(key)
        if written is None:
            return None
        try:
            return parse_seconds(written.value, f"length of time for option '{key}'", least=least)
        except ValueError as error:
            self._problems.add("OPTION_VALUE", str(error), self.at(key))
            return None

    def alert_seconds(self) -> tuple[int | None, int | None]:
        """The lags above which an alert warns and fails, None where they are not stated."""
        warn, fail = self.seconds("alert.warn-after"), self.seconds("alert.fail-after")
        if warn is not None and fail is not None and fail < warn:
            self.refuse("alert.fail-after", "a length of time that is not below 'alert.warn-after'")
        return warn, fail

    def whole(self, key: str, least: int, greatest: int) -> int | None:
        written = self._options.get(key)
        if written is None:
            return None
        value = written.value.strip()
        if not re.fullmatch(r"[0-9]{1,15}", value) or not least <= int(value) <= greatest:
            self.refuse(key, f"a whole number from {least} to {greatest}")
            return None
        return int(value)

    def names(self, key: str) -> tuple[TableName, ...]:
        written = self._options.get(key)
        if written is None:
            return ()
        names: list[TableName] = []
        for part in written.value.split(","):
            try:
                names.append(TableName.parse(part.strip()))
            except ValueError as error:
                self._problems.add("OPTION_VALUE", f"option '{key}': {error}", self.at(key))
        return tuple(dict.fromkeys(names))

    def needs(self, key: str, needed: str, met: bool) -> bool:
        """Refuse an option whose condition is not met; True if it is there and in place."""
        if key not in self._options:
            return False
        if not met:
            self._problems.add(
                "OPTION_NEEDS", f"option '{key}' needs {needed}. Add that, or remove the option.", self.at(key)
            )
        return met

    def refuse_references(self, *, but: tuple[str, ...] = ()) -> None:
        """References are resolved where they are used, which is nowhere else than in options that begin like `but`."""
        for key, written in self._options.items():
            if not key.startswith(but) and _REFERENCE.search(written.value):
                self._problems.add(
                    "REFERENCE",
                    f"option '{key}' cannot take a reference such as ${{env:NAME}}. Write the value.",
                    self.at(key),
                )

    @property
    def as_written(self) -> dict[str, str]:
        return {key: written.value for key, written in self._options.items()}

    @property
    def lines(self) -> dict[str, int]:
        return {key: written.line for key, written in self._options.items()}


def _or(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

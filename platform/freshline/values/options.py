"""The options in WITH: the complete list, and what each accepts.

An option that is not in the list is an error with the nearest name. Nothing is ever ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from freshline.values.freshness import parse_seconds
from freshline.values.location import Location, Written
from freshline.values.names import TableName
from freshline.values.rules import Problems, nearest
from freshline.values.secret import REFERENCE

# Those of merges are in their own classes.
TABLE_OPTIONS = (
    "merge",
    "upstream-deletes",
    "lookup.on-duplicate",
    "lookup.retry-on-miss.attempts",
    "lookup.retry-on-miss.delay",
    "as-of.tie-breaker",
    "as-of.delete-when",
    "delta-join.strategy",
    "delta-join.cache-enable",
    "delta-join.left-cache-size",
    "delta-join.right-cache-size",
    "incremental",
    "strategies",
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


class Kind(StrEnum):
    """The kind of value that an option has."""

    TEXT = "text"  # not empty, without the blanks around it
    RAW = "raw"  # as it is written
    SECONDS = "seconds"  # a length of time
    WHOLE = "whole"
    BOOLEAN = "boolean"
    CHOICE = "choice"


class Reference(StrEnum):
    """The places where an option may name something outside of the declaration, as `${env:NAME}`."""

    NO = "no"
    PART = "part"  # anywhere in the text
    WHOLE = "whole"  # the whole text


class Carrier(StrEnum):
    """The carrier of the records that an option of a format is about."""

    ANY = "any"
    FILES = "files"
    TOPICS = "topics"


@dataclass(frozen=True)
class Option:
    """An option of a source, as CREATE SOURCE WITH has it.

    `help` is one sentence. `field` is the field of the connector or format that has the value, by default the name with
    underscores. `required` says what the option is where a source must have it. A `secret` is never written in a
    declaration: its value is a reference. `least` and `greatest` are of SECONDS and WHOLE, `choices` of CHOICE.
    `is_beginning` says that all options that begin like `name` are meant, which are handed on as they are. `carrier`
    says that an option of a format is for records of files, or of topics, alone; such a one is `required` for these.
    """

    name: str
    help: str
    kind: Kind = Kind.TEXT
    field: str = ""
    required: str = ""
    secret: bool = False
    reference: Reference = Reference.NO
    least: int = 1
    greatest: int = 10**15 - 1
    choices: tuple[str, ...] = ()
    is_beginning: bool = False
    carrier: Carrier = Carrier.ANY

    @property
    def may_refer(self) -> bool:
        return self.secret or self.reference is not Reference.NO

    @property
    def field_name(self) -> str:
        return self.field or self.name.replace("-", "_").replace(".", "_")


# The options that sources of every connector have; `LOG_OPTIONS` are for those whose rows arrive in a log table.
LOG_OPTIONS = (
    Option("format", "how records are written"),
    Option("key.format", "how the keys of records are written"),
    Option("key.columns", "the columns that the key of a record has"),
    Option("changes", "whether each record is the newest state of the row that its key names"),
    Option("tombstones", "what a record without a value is"),
    Option("deduplicate", "how long an event is recognized when it arrives again", Kind.SECONDS),
    Option("max-record-bytes", "larger records go to quarantine", Kind.WHOLE, greatest=1024**3),
    Option("watermark.max-ahead", "how far rows may be ahead of the clock", Kind.SECONDS, least=0),
    Option("watermark.idle", "how long a partition has nothing to read before it holds no watermark up", Kind.SECONDS),
    Option(
        "watermark.when-idle",
        "whether the watermark follows the clock while all partitions are idle",
        Kind.CHOICE,
        choices=("stand", "advance"),
    ),
    Option("alert.watermark-after", "how long the watermark may stand still before an alert warns", Kind.SECONDS),
    Option("alert.late-rows-above", "the share of late rows within an hour above which an alert warns"),
    Option("history", "how long old versions are kept", Kind.SECONDS),
)
SOURCE_OPTIONS = (
    Option("connector", "the kind of system outside"),
    Option("lookup", "whether the system is asked for rows by their key", Kind.BOOLEAN),
    *LOG_OPTIONS,
    Option("as-of.tie-breaker", "columns whose greatest values win where two versions of one key have one time"),
    Option("as-of.delete-when", "the condition of a version that ends its key until the next one"),
    Option("alert.warn-after", "the lag above which an alert warns", Kind.SECONDS),
    Option("alert.fail-after", "the lag above which an alert fails", Kind.SECONDS),
    Option("owner", "who is asked about it"),
    Option("group", "the group in Dagster"),
)

_REFERENCE = re.compile(r"\$\{[^}]*\}")


class Options:
    """The options of one declaration, read one by one; what is wrong goes to `problems`."""

    def __init__(
        self,
        options: Mapping[str, Written[str]],
        written_at: Location,
        problems: Problems,
        known: tuple[str, ...],
        passed_on: tuple[str, ...] = (),
        page: str = "Declarations",
    ) -> None:
        """`passed_on` are the first letters of options that somebody else knows, `page` is that which lists them."""
        self._options = options
        self._written_at = written_at
        self._problems = problems
        for key in options:
            if key not in known and not key.startswith(passed_on):
                problems.add(
                    "UNKNOWN_OPTION",
                    f"there is no option '{key}'.{nearest(key, known)} {_near(key, known, page)}",
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

    def reject(self, key: str, expected: str) -> None:
        self._problems.add(
            "OPTION_VALUE", f"option '{key}' is '{self._options[key].value}'. Accepted is {expected}.", self.at(key)
        )

    def matching(self, key: str, pattern: re.Pattern[str], expected: str) -> str | None:
        """The text of an option from its beginning on as the pattern has it, None where it is not written or not so."""
        text = self.text(key)
        if text is not None and not pattern.match(text):
            self.reject(key, expected)
            return None
        return text

    def written(self, option: Option) -> list[str]:
        """The options that are written and meant by one of a table."""
        if option.is_beginning:
            return [key for key in self._options if key.startswith(option.name)]
        return [option.name] if option.name in self._options else []

    @property
    def problems(self) -> Problems:
        """The collection to which problems with options are added."""
        return self._problems

    def values(self, table: tuple[Option, ...]) -> dict[str, Any]:
        """The declared values, by the fields of the options; a required option that is missing has the empty text."""
        found: dict[str, Any] = {}
        for option in table:
            if option.is_beginning:
                found[option.field_name] = self.beginning(option.name)
            elif option.name in self._options or option.required:
                value = self.value(option)
                if value is not None or option.required:
                    found[option.field_name] = "" if value is None else value
        return found

    def value(self, option: Option) -> Any:
        """The value of an option, None where it is not written or not accepted."""
        match option.kind:
            case Kind.TEXT:
                return self.text(option.name)
            case Kind.RAW:
                return self.raw(option.name)
            case Kind.SECONDS:
                return self.seconds(option.name, least=option.least)
            case Kind.WHOLE:
                return self.whole(option.name, option.least, option.greatest)
            case Kind.BOOLEAN:
                return self.boolean(option.name)
            case Kind.CHOICE:
                return self.choice(option.name, option.choices)
        assert_never(option.kind)

    def require_all(self, table: Iterable[Option], of: str, at: Location) -> None:
        """Refuse that a required option of a table is missing; the sentence begins with `of`, which needs it."""
        for option in table:
            if option.required and option.name not in self._options:
                self._problems.add("OPTION_NEEDS", f"{of} needs the option '{option.name}': {option.required}.", at)

    def require_references(self, table: Iterable[Option]) -> None:
        """Refuse secrets of a table that are written out, and references that are only part of a value."""
        for option in table:
            if option.secret or option.reference is Reference.WHOLE:
                for key in self.written(option):
                    self.require_reference(key, secret=option.secret)

    def require_reference(self, key: str, *, secret: bool) -> None:
        """Refuse a secret that is written out, and a reference that is only part of the value."""
        written = self._options.get(key)
        if written is None or REFERENCE.match(written.value):
            return
        if secret:
            self._problems.add(
                "REFERENCE",
                f"option '{key}' is a secret and is not written in a declaration. "
                "Write ${env:NAME} or ${file:path}, which names where it is.",
                self.at(key),
            )
        elif "${" in written.value:
            self._problems.add(
                "REFERENCE",
                f"option '{key}': a reference is the whole value, ${{env:NAME}} or ${{file:path}}.",
                self.at(key),
            )

    def text(self, key: str) -> str | None:
        written = self._options.get(key)
        if written is None:
            return None
        if not written.value.strip():
            self.reject(key, "a text that is not empty")
            return None
        return written.value.strip()

    def raw(self, key: str) -> str | None:
        """The value as it was written, blanks and all."""
        written = self._options.get(key)
        return written.value if written else None

    def choice(self, key: str, accepted: tuple[str, ...]) -> str | None:
        written = self._options.get(key)
        if written is None:
            return None
        value = written.value.strip().lower()
        if value in accepted:
            return value
        self.reject(key, join_words(accepted))
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
            self.reject("alert.fail-after", "a length of time that is not below 'alert.warn-after'")
        return warn, fail

    def share(self, key: str) -> float | None:
        written = self._options.get(key)
        if written is None:
            return None
        value = written.value.strip()
        if not re.fullmatch(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?", value):
            self.reject(key, "a share from 0 to 1, such as 0.05")
            return None
        return float(value)

    def whole(self, key: str, least: int, greatest: int) -> int | None:
        written = self._options.get(key)
        if written is None:
            return None
        value = written.value.strip()
        if not re.fullmatch(r"[0-9]{1,15}", value) or not least <= int(value) <= greatest:
            self.reject(key, f"a whole number from {least} to {greatest}")
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

    def require(self, key: str, needed: str, met: bool) -> bool:
        """Refuse an option whose condition is not true; True if it is there and in place."""
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


def _near(key: str, known: Sequence[str], page: str) -> str:
    """The three options that are most like one that is not there: sixty would hide them."""
    from difflib import get_close_matches  # loaded only when something is wrong

    close = get_close_matches(key, known, n=3, cutoff=0.0)
    return f"The nearest options are {', '.join(close)}; the page {page} lists all {len(known)}."


def join_words(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"

"""The seam of connectors: everything that freshline knows of a kind of system outside.

A connector is one class. Its attributes describe the kind: the options, the metadata columns, the positions. An
instance is what one CREATE SOURCE says of it, and stands in the SourceSpec as `connection`. Neither loads anything
heavy: `freshline plan` and `--help` read declarations without Spark. Reading is done by the connector's reader
(`freshline.sources.reader`), which `open` loads.

Shipped connectors and those of other packages are found by name (`freshline.values.registry`).
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.values.extension import Extension, calling
from freshline.values.location import Location
from freshline.values.options import Option, Options
from freshline.values.rules import declaration_error

if TYPE_CHECKING:
    from freshline.values.spec import SourceSpec

_REFERENCE = re.compile(r"\$\{([^}]*)\}")


class Position(Extension, ABC):
    """The position up to which a table has read one of its inputs.

    A connector has a class of its own, a frozen value. Its JSON form stands in receipts, with `kind`, the name of the
    connector.
    """

    kind: ClassVar[str]

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """A JSON object, which has `kind`."""

    @classmethod
    @abstractmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`. Raises KeyError, TypeError or ValueError for another value."""


@dataclass(frozen=True)
class Metadata:
    """A fact that a connector knows of a record beside its values, for METADATA FROM.

    `type` is its Spark type, `stored` the column of the log table that has it. `ordered` says that later records have
    greater values, so that Delta keeps statistics of it. `quarantined` says that the quarantine table has it too, where
    it takes the place of `file` and `line`; `in_place` is then the pattern that finds it in the text of a record's
    place, which is all that is left of it in a table that reads the log.
    """

    type: str
    stored: str
    ordered: bool = False
    quarantined: bool = False
    in_place: str = ""


# Columns of every log table. The place of a record is a text, FILE, and a number in it, RECORD.
SEQ = "_freshline_seq"
INGESTED_AT = "_freshline_ingested_at"
FILE = "_freshline_file"
RECORD = "_freshline_record"
HASH = "_freshline_hash"
# In a quarantine table: the batch with which a record became a row of the log; NULL while it is in quarantine.
RETRIED_IN = "retried_in"
WATERMARK = "_freshline_watermark"
OF_EVERY_LOG = (SEQ, INGESTED_AT, FILE, RECORD, HASH, WATERMARK)
WHEN_INGESTED: Mapping[str, Metadata] = {"ingested_at": Metadata("TIMESTAMP", INGESTED_AT)}
# The metadata of every log with a WATERMARK, beside its connector's.
WITH_WATERMARK: Mapping[str, Metadata] = {"watermark": Metadata("TIMESTAMP", WATERMARK)}


@dataclass(frozen=True)
class Place:
    """The place of a declaration: what its references stand for, and what its paths are relative to.

    `at` gives the line of an option.
    """

    root: Path
    environment: str
    environ: Mapping[str, str]
    warehouse: Path
    at: Callable[[str], Location]

    def text(self, option: str, text: str) -> str:
        """An option's text with its references replaced.

        Raises DeclarationError for a reference to something that is not there.
        """
        return _REFERENCE.sub(lambda match: self._resolved(match, self.at(option)), text)

    def folder(self, option: str, path: str) -> str:
        """A path relative to the project, in which `~` is a home, as an absolute one. Raises DeclarationError."""
        try:
            return os.path.normpath(self.root / Path(path).expanduser())
        except RuntimeError as error:
            raise declaration_error(
                "OPTION_VALUE",
                f"option '{option}': '{path}' names the home of somebody unknown. Write the whole path.",
                self.at(option),
            ) from error

    def is_file(self, option: str, path: str) -> bool:
        """Whether there is a file in the place of a folder. Raises DeclarationError for a path that no system takes."""
        try:
            return Path(path).is_file()
        except OSError as error:
            raise declaration_error(
                "OPTION_VALUE",
                f"option '{option}': {path[:200]!r} is not a path that can be used here: {error.strerror}.",
                self.at(option),
            ) from error

    def _resolved(self, match: re.Match[str], at: Location) -> str:
        if match[1] == "environment":
            return self.environment
        kind, _, name = match[1].partition(":")
        if kind == "env" and name:
            value = self.environ.get(name)
            if not value:
                raise declaration_error(
                    "REFERENCE", f"${{env:{name}}}: there is no environment variable {name}. Set it.", at
                )
            return value
        if kind == "file" and name:
            file = self.root / name
            try:
                return file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8"
                raise declaration_error(
                    "REFERENCE", f"${{file:{name}}}: {file} cannot be read: {reason}.", at
                ) from error
        raise declaration_error(
            "REFERENCE",
            f"{match[0]} is not a reference. References are ${{environment}}, ${{env:NAME}} and ${{file:path}}.",
            at,
        )


class OutsideSystem(Extension, ABC):
    """A kind of system outside; subclasses are frozen dataclasses, whose fields are what one declaration says.

    `title` is the name in sentences (`a source of Kafka`). `options` are those of this kind alone.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()

    @classmethod
    def declare(cls, options: Options) -> Self:
        """The system as it is declared; problems are added to those of `options`.

        By default each option is read by its own kind, and given to the field of its name.
        """
        with calling(cls, "declare"):
            return cls(**options.values(cls.options))

    def resolve(self, place: Place) -> Self:
        """The same with its references and paths resolved. Raises DeclarationError.

        References to secrets stay as they are until they are used: what is resolved here is shown and kept.
        """
        return self

    @property
    def meaning(self) -> tuple[object, ...]:
        """The part of the fingerprint: another value is another system, whose rows are other rows."""
        return ()

    @property
    def shown(self) -> Mapping[str, str]:
        """The place of the system, for people: facts by name, never a secret."""
        return {}

    @property
    def dataset(self) -> tuple[str, str]:
        """The namespace and the name by which lineage tools know the system, as OpenLineage names it."""
        return self.name, ", ".join(self.shown.values()) or self.title

    @property
    def left_behind(self) -> str:
        """A sentence on what stays in the system when the file of the declaration is removed; empty for nothing."""
        return ""


class Connector(OutsideSystem):
    """A kind of system that rows come from.

    `has_lines` says that records are lines of files, so that formats that need a file's first line can be read.
    `is_log` says that rows arrive in a log table of ours, else the Delta table at `table_path` is read in place.
    `is_lookup` says that rows are asked for by their key (`freshline.values.lookup`). `position` is how far a log
    table has read, None where there is none. `reader` names the class or function that makes the reader of a source
    and a host, as `module:Class`. It is loaded with the first refresh, because it may load Spark. `partition` is
    the stored column that says which part of the source a record is of, where each part has an order of its own, as
    in Kafka; None where the source is one. The watermark follows the slowest part. `kind` is what Dagster shows at
    the asset, None for the format's name. `record_format` is the name of the format that all records have, where no
    declaration says it. `record_key` is the stored column that has the bytes of a record's key, and `record_time`
    that of the time which the system gave it. `delivers_again` says that the system may send an event of a change
    feed a second time, so that events are compared with those that came before.
    """

    metadata: ClassVar[Mapping[str, Metadata]] = WHEN_INGESTED
    has_lines: ClassVar[bool] = False
    is_log: ClassVar[bool] = True
    is_lookup: ClassVar[bool] = False
    position: ClassVar[type[Position] | None] = None
    reader: ClassVar[str | None] = None
    partition: ClassVar[str | None] = None
    kind: ClassVar[str | None] = None
    record_format: ClassVar[str | None] = None
    record_key: ClassVar[str | None] = None
    record_time: ClassVar[str | None] = None
    delivers_again: ClassVar[bool] = True

    def find_problems(self, *, has_key: bool) -> tuple[tuple[str, str, str], ...]:
        """The problems of the declaration as a whole, each as a rule, an option and a sentence.

        `has_key` says whether the source has a PRIMARY KEY.
        """
        return ()

    @property
    def retained_above(self) -> int | None:
        """The bytes that the system may retain for the source before an alert warns; None for no limit."""
        return None

    @property
    def table_path(self) -> str:
        """The Delta table of a source that is read in place."""
        raise NotImplementedError(f"{self.name} is not read in place")

    def open(self, spec: SourceSpec, host: Any) -> Any:
        """The reader of a source, a `freshline.sources.reader.Reader`; `host` is what it may use of the engine.

        By default that of `reader`. Raises NotImplementedError for a source that is read in place.
        """
        if self.reader is None:
            raise NotImplementedError(f"{self.name} is read in place")
        module, _, name = self.reader.partition(":")
        with calling(type(self), "open", spec):
            return getattr(import_module(module), name)(spec, host)

    @classmethod
    def quarantined_metadata(cls) -> dict[str, Metadata]:
        """The metadata that the quarantine table has, in their order."""
        return {name: each for name, each in cls.metadata.items() if each.quarantined}

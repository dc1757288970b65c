"""The seam of formats: how the bytes of a record become values of the declared columns.

As with connectors, a format is one class: its attributes describe the format, an instance is what one declaration says
of it. Declaring loads nothing heavy; `decode` may load Spark.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.errors import FreshlineError
from freshline.values.connector import Connector, Metadata
from freshline.values.extension import Extension, calling
from freshline.values.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from freshline.values.spec import SourceSpec

# The columns that `decode` is given and adds.
VALUE = "value"
PARSED = "_freshline_parsed"


@dataclass(frozen=True)
class Decoded:
    """Records with the column PARSED, a struct of the declared columns.

    `error` is NULL for a record that could be decoded, else one of the format's rejections. `written` says how values
    were written, for formats whose values are read as texts first and compared with what is stored
    (`freshline.sources.formats.exact.RecordOrigin`). None: the values in PARSED have the declared types and are stored
    so. `needed` are the columns of `rows`, beside PARSED and VALUE, that it reads.
    """

    rows: DataFrame
    error: SparkColumn
    written: Any = None
    needed: Sequence[str] = ()


class Format(Extension, ABC):
    """A way to write records; subclasses are frozen dataclasses, whose fields are what one declaration says.

    `rejections` are its codes of quarantine, each with a sentence; the first is that of a record that is no record.
    `of_files` says that it can be read from files alone, `of_topics` that it cannot be read from files. `lines` says
    which lines of a file are no record, or have a limit: those of `json` may be blanks, those of `csv` have fields;
    `text` is neither. Of `every` empty ones are records too.

    `metadata` are facts of a record, for METADATA FROM beside those of the connector: `decode` adds their columns.
    `stopping` are codes that fail the refresh instead of rejecting a record, because the declaration lacks what is
    needed to read it, each with its error, which takes `where`, and `about` for what stands in brackets behind the
    code. `is_change_feed` says that records are changes of rows
    (see `freshline.values.change`): PRIMARY KEY names the row then, and not the record. `takes_tombstones` says that
    a record without a value is left out, and no poison.

    `has_text` says that a record is a text; else it is bytes where `has_bytes` says so, or `container` reads values of
    the declared types, and the quarantine shows them as JSON. `of_keys` says that the keys of records may have this
    format.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    rejections: ClassVar[Mapping[str, str]]
    of_files: ClassVar[bool] = False
    of_topics: ClassVar[bool] = False
    lines: ClassVar[str] = "text"
    metadata: ClassVar[Mapping[str, Metadata]] = {}
    stopping: ClassVar[Mapping[str, Callable[..., FreshlineError]]] = {}
    is_change_feed: ClassVar[bool] = False
    takes_tombstones: ClassVar[bool] = False
    has_text: ClassVar[bool] = True
    of_keys: ClassVar[bool] = False

    @classmethod
    def declare(cls, options: Options) -> Self:
        """The format as it is declared; problems are added to those of `options`."""
        with calling(cls, "declare"):
            return cls(**options.values(cls.options))

    @classmethod
    def find_problems(cls, columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """The reasons why this format cannot give the columns of the record, each with its type, in sentences."""
        return ()

    @classmethod
    def refuses(cls, kind: str) -> str | None:
        """The reason why no record gives a value of a type, in the spelling of declarations; None where one does.

        It is a clause, behind the column and its type, that says what to declare instead.
        """
        return None

    @classmethod
    def metadata_with(cls, connector: type[Connector]) -> Mapping[str, Metadata]:
        """The `metadata` of records that a connector of this kind brings."""
        return cls.metadata

    @property
    def meaning(self) -> tuple[object, ...]:
        """The part of the fingerprint: another value makes other rows of the same records."""
        return ()

    @property
    def is_in_source_order(self) -> bool:
        """Whether changes are in the order of their positions in the database, and not in that of their arrival."""
        return False

    @property
    def has_bytes(self) -> bool:
        """Whether a record is bytes, which only `decode` can read."""
        return False

    @property
    def is_prepared(self) -> bool:
        """Whether records can be decoded as it is. If not, `prepare` is called with the records of each batch."""
        return True

    def prepare(self, records: Sequence[DataFrame], spec: SourceSpec, host: Any) -> Format:
        """The same format with what it needs of a system outside to decode these records, such as their schemas.

        `records` have the column `value`, and `host` is what it may use of the engine, a
        `freshline.sources.reader.Host`. Raises errors of sources: then nothing of the batch is committed.
        """
        return self

    def undeclared(self, spec: SourceSpec) -> Mapping[str, str]:
        """The fields of the records that it was prepared for which no column takes, each with its type in SQL.

        The type is empty where no column can have it.
        """
        return {}

    def of_key(self) -> Format:
        """The same for the keys of records, whose options are those of values too."""
        return self

    @property
    def has_header(self) -> bool:
        """Whether the first line of a file names its columns."""
        return False

    def names_in(self, line: str) -> tuple[str, ...] | None:
        """The names in the first line of a file, where that names its columns; None for a line of another kind."""
        try:
            return tuple(name.strip() for name in next(csv.reader([line]), []))
        except csv.Error:
            return None

    def container(self, spec: SourceSpec) -> Any:
        """The reader of files whose records are not lines, a `freshline.sources.formats.container.Container`.

        None for files of lines. It may load Spark, and needs a session of it.
        """
        return None

    @classmethod
    def rejection(cls) -> str:
        """The code of a record that is no record of this format."""
        return next(iter(cls.rejections))

    @abstractmethod
    def decode(self, records: DataFrame, spec: SourceSpec, columns: Sequence[str]) -> Decoded:
        """Decode records, whose text is in the column `value` (NULL where there is none, not always UTF-8).

        The other columns are kept. `columns` are the names of a line's fields in their order: those of the file's
        header where the format has one, else the declared ones.
        """

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str | bytes:
        """The text or the bytes of a file with these rows, for a Lab."""
        raise NotImplementedError(f"rows cannot be written as {self.name}; give the text of the file")

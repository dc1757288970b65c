"""Files as a sink: each version of the table is a folder of files, complete when it gets its name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from freshline.values.connector import Place
from freshline.values.options import Kind, Option, Reference
from freshline.values.rules import declaration_error
from freshline.values.sink import PLAIN_TYPES, Sink, refuse_type

HDFS = "hdfs://"
# Two letters at least, so that no drive of Windows is one.
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:(?=/)", re.IGNORECASE)
_NESTED = ("ARRAY", "MAP", "STRUCT")
# A type within another one; a field of this name has a colon behind it.
_VARIANT = re.compile(r"\bVARIANT\b(?!:)")


class FileFormat(StrEnum):
    """The kind of files."""

    PARQUET = "parquet"
    CSV = "csv"


@dataclass(frozen=True)
class FilesSink(Sink):
    """A folder of versions. `path` is absolute once it is resolved, or an address of HDFS.

    `keep` is how many complete versions stay there, and `rows_per_file` the most rows of a file.
    """

    path: str
    format: str = FileFormat.PARQUET
    keep: int = 3
    rows_per_file: int = 1_000_000

    name: ClassVar[str] = "files"
    title: ClassVar[str] = "files"
    delivery: ClassVar[str] = "exactly once: a version is there as a whole, by the name of its folder"
    needs_key: ClassVar[bool] = False
    takes_changes: ClassVar[bool] = False
    writer: ClassVar[str] = "freshline.sinks.files.writer:FilesWriter"
    options: ClassVar[tuple[Option, ...]] = (
        Option("path", "the folder of the versions", required="where its files go", reference=Reference.PART),
        Option("format", "the kind of files", Kind.CHOICE, choices=tuple(FileFormat)),
        Option("keep", "how many versions are kept", Kind.WHOLE, greatest=10_000),
        Option("rows-per-file", "the most rows of a file", Kind.WHOLE),
    )

    @property
    def takes_nested(self) -> bool:  # type: ignore[override]  # it follows from the format
        return self.format == FileFormat.PARQUET

    @property
    def is_remote(self) -> bool:
        """Whether the folder is in HDFS."""
        return self.path.startswith(HDFS)

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.path, str(self.format))

    @property
    def shown(self) -> Mapping[str, str]:
        return {"path": self.path}

    @property
    def dataset(self) -> tuple[str, str]:
        if not self.is_remote:
            return "file", self.path
        parts = urlsplit(self.path)
        return f"{HDFS}{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}", parts.path

    @property
    def left_behind(self) -> str:
        return f"The files in {self.path} stay as they are."

    def resolve(self, place: Place) -> Self:
        path, at = place.text("path", self.path).strip(), place.at("path")
        if path.lower().startswith(HDFS):
            return replace(self, path=HDFS + path[len(HDFS) :].rstrip("/"))
        if _SCHEME.match(path):
            raise declaration_error(
                "OPTION_VALUE",
                f"option 'path': '{self.path}' is neither a folder of this machine nor an address such as "
                "hdfs://name:8020/folder. Other stores have no folder that gets its name at once.",
                at,
            )
        if not path or "\0" in path:
            raise declaration_error("OPTION_VALUE", "option 'path' names no folder. Write the folder of the files.", at)
        folder = place.folder("path", path)
        if Path(folder).is_relative_to(place.warehouse) or place.is_file("path", folder):
            raise declaration_error(
                "OPTION_VALUE",
                f"option 'path': {folder} is a file, or in the warehouse. Name a folder outside.",
                at,
            )
        return replace(self, path=folder)

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        simple = column_type.partition("(")[0]
        if simple in PLAIN_TYPES:
            return None
        if self.format == FileFormat.CSV:
            return refuse_type(column_type, is_key=False)
        if simple.partition("<")[0] in _NESTED and not _VARIANT.search(column_type):
            return None
        return f"it has {', '.join((*PLAIN_TYPES, *_NESTED)).lower()}"

    def find_column_problems(self, columns: Sequence[str]) -> str | None:
        if self.format == FileFormat.CSV and len(columns) == 1:
            return f"a NULL in {columns[0]} alone would be an empty line of CSV. Send a second column, or Parquet"
        return None

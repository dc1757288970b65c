"""Files that land in a folder of this machine. A file is read once, when it has not changed for a while."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from freshline.sources.files.position import FilesPosition
from freshline.values.connector import FILE, RECORD, WHEN_INGESTED, Connector, Metadata, Place
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.options import Kind, Option, Reference
from freshline.values.rules import declaration_error

# Two letters at least, so that no drive of Windows is one; what follows is no part of a name with a colon in it.
_SCHEME = re.compile(
    r"(?:[a-z][a-z0-9+.-]+:(?=/)|(?:file|dbfs|hdfs|s3|s3a|s3n|gs|abfs|abfss|wasb|wasbs):)", re.IGNORECASE
)


@dataclass(frozen=True)
class Files(Connector):
    """A landing folder. `path` is absolute once it is resolved."""

    path: str
    settle_seconds: float = 2.0
    follow_links: bool = False

    name: ClassVar[str] = "files"
    title: ClassVar[str] = "files"
    options: ClassVar[tuple[Option, ...]] = (
        Option("path", "the folder in which files land", required="where its data is", reference=Reference.PART),
        Option("settle", "how long a complete file has not changed", Kind.SECONDS, field="settle_seconds", least=0),
        Option("follow-links", "whether links are followed", Kind.BOOLEAN),
    )
    metadata: ClassVar[Mapping[str, Metadata]] = {
        **WHEN_INGESTED,
        "file": Metadata("STRING", FILE),
        "record": Metadata("BIGINT", RECORD),
    }
    has_lines: ClassVar[bool] = True
    position: ClassVar[type[FilesPosition]] = FilesPosition
    reader: ClassVar[str | None] = "freshline.sources.files.reader:FilesReader"

    @property
    def shown(self) -> Mapping[str, str]:
        return {"path": self.path}

    @property
    def dataset(self) -> tuple[str, str]:
        return "file", self.path

    def folder_of(self, source: TableName) -> Path:
        """The folder in which the files of a source are."""
        return Path(self.path)

    def resolve(self, place: Place) -> Self:
        path, at = place.text("path", self.path), place.at("path")
        _check_path(path, self.path, at)
        folder = place.folder("path", path)
        if Path(folder).is_relative_to(place.warehouse):
            raise declaration_error(
                "OPTION_VALUE",
                f"option 'path': {folder} is in the warehouse {place.warehouse}. Let files land in a folder outside.",
                at,
            )
        if place.is_file("path", folder):
            raise declaration_error(
                "OPTION_VALUE", f"option 'path': {folder} is a file. Write the folder in which files land.", at
            )
        return replace(self, path=folder)


def _check_path(path: str, written: str, at: Location) -> None:
    """Refuse a path that would be taken for another one: landing files are read from folders of this machine."""
    scheme = _SCHEME.match(path)
    if scheme is not None:
        local = (
            path[scheme.end() :].removeprefix("//localhost") if scheme[0].lower() == "file:" and path == written else ""
        )
        mounted = "the path at which it is mounted, or move complete files into a folder of this machine"
        instead = f"'{'/' + local.lstrip('/')}'" if local.strip("/") else mounted
        raise declaration_error(
            "OPTION_VALUE",
            f"option 'path': '{written}' begins with {scheme[0]}, and files are read from folders of this machine. "
            f"Write {instead}.",
            at,
        )
    if not path.strip():
        raise declaration_error("OPTION_VALUE", "option 'path' is empty. Write the folder in which files land.", at)
    if "\0" in path:
        raise declaration_error("OPTION_VALUE", "option 'path' has a NUL character, which no path has. Remove it.", at)

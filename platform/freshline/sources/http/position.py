"""The position of a log table in the posts of a source: the files that it has read, as with landing files."""

from __future__ import annotations

from dataclasses import dataclass

from freshline.sources.files.position import FilesPosition


@dataclass(frozen=True)
class HttpPosition(FilesPosition):
    """The files of the posts that a log table has read."""

    kind = "http"

"""Events that other programs post to the engine: the body of each post becomes a landing file, which is read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from freshline.sources.files.connector import Files
from freshline.sources.http.position import HttpPosition
from freshline.values.names import TableName
from freshline.values.options import Option, Options, Reference, join_words

# One value of JSON, or a list of them; the other types are lines, which are stored as they come.
ONE_VALUE = "application/json"
MEDIA_TYPES: Mapping[str, tuple[str, ...]] = {
    "json": ("application/x-ndjson", "application/jsonl", ONE_VALUE),
    "csv": ("text/csv",),
    "text": ("text/plain",),
}


@dataclass(frozen=True)
class Http(Files):
    """A source that is posted to. `path` is absolute once it is resolved; `token` is a reference.

    A file appears whole and under its last name, so no file has to rest first.
    """

    settle_seconds: float = 0.0
    token: str = ""

    name: ClassVar[str] = "http"
    title: ClassVar[str] = "HTTP"
    options: ClassVar[tuple[Option, ...]] = (
        Option("path", "the folder of the posted files", required="where posts are stored", reference=Reference.PART),
        Option("token", "what a post must bear", required="a reference to what posts must bear", secret=True),
    )
    position: ClassVar[type[HttpPosition]] = HttpPosition
    reader: ClassVar[str | None] = "freshline.sources.http.reader:HttpReader"
    kind: ClassVar[str | None] = "http"

    @classmethod
    def declare(cls, options: Options) -> Self:
        record_format = (options.raw("format") or "").strip().lower()
        if record_format and record_format not in MEDIA_TYPES:
            options.problems.add(
                "NOT_BUILT",
                f"'format' = '{record_format}' is not built for posts. Built is {join_words(tuple(MEDIA_TYPES))}. "
                "Let other files land in a folder with 'connector' = 'files'.",
                options.at("format"),
            )
        return super().declare(options)

    def folder_of(self, source: TableName) -> Path:
        # A folder of its own in that of the option: two sources that name one path do not read each other's posts.
        return Path(self.path) / str(source).lower()

    @property
    def left_behind(self) -> str:
        return f"When its file is removed, nobody can post to it, and its posts stay in {self.path}."

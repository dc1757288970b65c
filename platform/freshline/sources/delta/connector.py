"""A Delta table that something else writes: its rows are not copied, each refresh reads a version of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from freshline.values.connector import Connector, Metadata, Place
from freshline.values.folders import unfit
from freshline.values.options import Option, Reference
from freshline.values.rules import declaration_error

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True)
class Delta(Connector):
    """A table at a path of this machine, or at a URI. `path` is absolute once it is resolved."""

    path: str

    name: ClassVar[str] = "delta"
    title: ClassVar[str] = "Delta"
    options: ClassVar[tuple[Option, ...]] = (
        Option("path", "where its data is", required="where its data is", reference=Reference.PART),
    )
    metadata: ClassVar[Mapping[str, Metadata]] = {}
    is_log: ClassVar[bool] = False

    @property
    def table_path(self) -> str:
        return self.path

    @property
    def shown(self) -> Mapping[str, str]:
        return {"path": self.path}

    def resolve(self, place: Place) -> Self:
        path = place.text("path", self.path)
        return replace(self, path=path if _SCHEME.match(path) else _folder(path, place))


def _folder(path: str, place: Place) -> str:
    folder = place.folder("path", path)
    character = unfit(folder, written=False)
    if character is not None:
        raise declaration_error(
            "OPTION_VALUE",
            f"option 'path': {folder} has {character!r} in it, and would be taken for another folder. Read the table "
            "by a path without it.",
            place.at("path"),
        )
    return folder

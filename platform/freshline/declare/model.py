"""CREATE MODEL: a file that queries predict with, and what a table does when the file changes.

A model is known by the SHA-256 of its file, so what a table means follows from bytes and never from a path or a time.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import BinaryIO

from freshline.declare.cache import DeclarationCache
from freshline.sql.clauses import ModelClauses
from freshline.values.connector import Place
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.onnx_file import UNKNOWN, Signature, read_signature
from freshline.values.options import Options
from freshline.values.query import KnownModel, ModelCall, SqlQuery
from freshline.values.rules import Problems, declaration_error, nearest
from freshline.values.spec import TableSpec

OPTIONS = ("path", "on-change")
_BLOCK = 1024 * 1024
# A file that was written this recently may be written again without another time.
_SETTLED_SECONDS = 2


class OnChange(StrEnum):
    """The treatment of a table's rows when a model's file is another one."""

    RECOMPUTE = "recompute"
    NEW_ROWS = "new-rows"


@dataclass(frozen=True)
class ModelFile:
    """The content of a model's file."""

    sha256: str
    signature: Signature


@dataclass(frozen=True)
class ModelSpec:
    """A declared model. `path` is as it was written until the project is read, and absolute from then on.

    `facts` are those of the file that was read, by `facts_of`.
    """

    name: TableName
    written_at: Location
    path: str
    path_line: int
    on_change: OnChange = OnChange.RECOMPUTE
    comment: str | None = None
    file: ModelFile | None = None
    facts: tuple[int, ...] = field(default=(), compare=False)

    def at(self, option: str) -> Location:
        """The place of an option that a problem is about."""
        return Location(self.written_at.path, self.path_line if option == "path" else self.written_at.line)

    @property
    def known(self) -> KnownModel:
        """The model as queries see it."""
        assert self.file is not None
        keeps = self.on_change is OnChange.NEW_ROWS
        return KnownModel(self.name, self.file.sha256, self.path, self.file.signature, keeps)


def declare_model(clauses: ModelClauses) -> ModelSpec:
    """Judge a model as it is written; raises DeclarationErrors with all that is wrong with it."""
    problems = Problems()
    options = Options(clauses.options, clauses.written_at, problems, OPTIONS)
    options.refuse_references(but=("path",))
    path = options.text("path")
    if "path" not in options:
        problems.add("OPTION_NEEDS", "a model needs WITH ('path' = '..onnx'), the file.", clauses.written_at)
    on_change = options.choice("on-change", tuple(OnChange))
    problems.raise_all()
    assert path is not None
    chosen = OnChange.RECOMPUTE if on_change is None else OnChange(on_change)
    line = options.at("path").line
    return ModelSpec(clauses.name, clauses.written_at, path, line, chosen, clauses.comment)


def read_model(spec: ModelSpec, place: Place, cache: DeclarationCache[ModelFile] | None) -> ModelSpec:
    """The model with what its file has. Raises DeclarationError: MODEL, REFERENCE, OPTION_VALUE.

    `cache` has what files had that are as they were by all that the file system knows of them.
    """
    at = spec.at("path")
    path = place.folder("path", place.text("path", spec.path))
    try:
        # A pipe would keep whoever opens it waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            status = os.fstat(file.fileno())
            return replace(spec, path=path, file=_content(file, status, cache), facts=facts_of(status))
    except OSError as error:
        raise declaration_error(
            "MODEL",
            f"model {spec.name}: {path} cannot be read: {error.strerror or error}. Write the path of an ONNX file, "
            "relative to the project.",
            at,
        ) from error
    except ValueError as error:
        raise declaration_error(
            "MODEL", f"model {spec.name}: {path} {error}. Write the path of a model that was saved as ONNX.", at
        ) from error


def facts_of(status: os.stat_result) -> tuple[int, ...]:
    """All that the file system knows of what a file has: a file in the place of another has other facts."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _content(file: BinaryIO, known: os.stat_result, cache: DeclarationCache[ModelFile] | None) -> ModelFile:
    if not stat.S_ISREG(known.st_mode):
        raise ValueError("is no file")
    key = None if cache is None else cache.key("model", str(facts_of(known)))
    found = None if cache is None or key is None else cache.get(key)
    if found is None:
        found = ModelFile(sha256_of(file), read_signature(_rewound(file)))
        if cache is not None and key is not None and time.time() - known.st_ctime > _SETTLED_SECONDS:
            cache.put(key, found)
    return found


def _rewound(file: BinaryIO) -> BinaryIO:
    file.seek(0)
    return file


def sha256_of(file: BinaryIO) -> str:
    """The SHA-256 of what a file has from here on."""
    found = hashlib.sha256()
    while block := file.read(_BLOCK):
        found.update(block)
    return found.hexdigest()


def check_calls(
    calls: Iterable[ModelCall], models: Mapping[TableName, KnownModel], path: str, broken: frozenset[TableName]
) -> tuple[KnownModel, ...]:
    """The models that a query calls, each once. Raises DeclarationErrors for calls that do not fit.

    `path` is the file of the query, `broken` are names whose declarations have errors of their own.
    """
    problems, found = Problems(), dict[TableName, KnownModel]()
    for call in calls:
        at = Location(path, call.line)
        model = models.get(call.model)
        if model is None:
            if call.model not in broken:
                near = nearest(str(call.model), map(str, models))
                problems.add(
                    "MODEL", f"{call.function} names {call.model}, which is no declared model.{near} Declare it.", at
                )
            continue
        found.setdefault(model.name, model)
        expected = model.signature.arguments
        if call.predicts and call.arguments not in ((call.arguments,) if expected == UNKNOWN else (expected,)):
            problems.add(
                "MODEL",
                f"ml_predict({call.model}, ..) is given {call.arguments} values of a row, and the model takes "
                f"{expected}: {model.signature.text}. Write one argument for each.",
                at,
            )
        elif call.predicts and not call.arguments:
            problems.add("MODEL", f"ml_predict({call.model}) is given no values. Write the model's inputs.", at)
    problems.raise_all()
    return tuple(found.values())


def check_kept_models(spec: TableSpec, problems: Problems, *, has_side_outputs: bool = False) -> None:
    """Check that rows which keep the prediction of an earlier file are only ever added, and to one table.

    With `has_side_outputs` some rows of the query go to other tables, which ask the model again at times of their own.
    """
    if not isinstance(spec.query, SqlQuery):
        return
    for model in spec.query.kept_models:
        others = {
            "a merge": spec.merge,
            "EMIT FINAL": spec.final or spec.late_rows_of,
            "time partitions": spec.time_partitions,
            "a temporal filter": spec.is_temporal or None,
            # With another file between the refreshes of two tables a row would be in both, or in none, for good.
            "SIDE OUTPUT": has_side_outputs or None,
        }
        named = [name for name, value in others.items() if value is not None]
        if named:
            problems.add(
                "MODEL",
                f"{spec.name} has {named[0]}, and model {model.name} has 'on-change' = 'new-rows'. Rows of several "
                "files of a model can only stand in a table to which rows are added. Declare 'recompute', or remove "
                f"{named[0]}.",
                spec.written_at,
            )

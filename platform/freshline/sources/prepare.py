"""Formats that need something of a system outside to decode records, such as their schemas, get it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.errors import FreshlineError, UndeclaredFieldsError
from freshline.sources.reader import MOST_UNDECLARED, Host
from freshline.values.format import VALUE
from freshline.values.spec import SourceSpec


def prepare_formats(spec: SourceSpec, read: Callable[[], Sequence[DataFrame]], host: Host) -> SourceSpec:
    """The source with formats that can decode the records that `read` gives. Raises errors of sources.

    Formats that need nothing stay as they are, and then no record is read.
    """
    if all(each.is_prepared for each in spec.formats):
        return spec
    assert spec.format is not None
    rows, ready = read(), spec
    if not spec.format.is_prepared:
        ready = replace(ready, format=spec.format.prepare(rows, spec, host))
    if spec.key is not None and not spec.key.format.is_prepared:
        keys = [_keys(each, spec) for each in rows]
        ready = replace(ready, key=replace(spec.key, format=spec.key.format.prepare(keys, spec, host)))
    return ready


def _keys(rows: DataFrame, spec: SourceSpec) -> DataFrame:
    assert spec.connection.record_key is not None
    return rows.select(F.col(spec.connection.record_key).alias(VALUE))


def undeclared_of(ready: SourceSpec) -> Mapping[str, str]:
    """The fields of the records that formats were prepared for which no column takes, each with its type in SQL.

    The type is empty where no column can have it.
    """
    return {} if ready.format is None else ready.format.undeclared(ready.of_values())


def note_undeclared(
    known: tuple[str, ...], fields: Mapping[str, str], *, is_first: bool, where: str
) -> tuple[tuple[str, ...], tuple[FreshlineError, ...]]:
    """The names that a position notes, and what to report of `fields` that no column takes, each once.

    `known` are those that it noted before. Fields of the first batch were left out on purpose, and are noted only.
    """
    new = {name: kind for name, kind in fields.items() if name not in known}
    # With very many nobody knows which were reported.
    if not new or len(known) >= MOST_UNDECLARED:
        return known, ()
    noted = tuple(sorted({*known, *new})[:MOST_UNDECLARED])
    return noted, () if is_first else (UndeclaredFieldsError(list(new.items()), where),)

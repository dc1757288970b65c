"""The declarations whose fingerprints are in receipts: one small file each, beside the tables.

A file is named by its fingerprint and never changes. It is there before the first commit that names it, and is moved to
its place in one step, so that a process that is stopped in between leaves a file that nobody reads.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from freshline.commit.delta_log import exists, read_newest
from freshline.commit.notes import keep_file
from freshline.commit.warehouse import Warehouse
from freshline.errors import UNREADABLE_FILE
from freshline.plan.definition import ChangeClass, Definition, DefinitionChange, classify_change, definition_of
from freshline.values.spec import SourceSpec, TableSpec

FOLDER = "_freshline_definitions"
_PLAIN_TYPE = re.compile(
    r"TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|STRING|BINARY|BOOLEAN|DATE|TIMESTAMP|TIMESTAMP_NTZ"
)


def keep_definition(warehouse: Path, definition: Definition) -> None:
    """Keep the definition of a fingerprint. Raises StorageError where the warehouse cannot be written."""
    keep_file(_file(warehouse, definition.fingerprint), json.dumps(definition.as_json()).encode())


def read_definition(warehouse: Path, fingerprint: str) -> Definition | None:
    """The definition that a fingerprint stood for; None where nobody kept it, or the file is damaged."""
    try:
        value = json.loads(_file(warehouse, fingerprint).read_text(encoding="utf-8"))
        return Definition.from_json(value)
    except UNREADABLE_FILE:
        return None


def change_of(warehouse: Warehouse, spec: TableSpec) -> DefinitionChange | None:
    """How a declaration differs from the one that the table's rows follow; None for a table without a receipt."""
    newest = read_newest(warehouse.path(spec.name))
    if newest is None or newest.receipt is None:
        return None
    fingerprint = newest.receipt.fingerprint
    if fingerprint == spec.fingerprint:
        return DefinitionChange(ChangeClass.UNCHANGED)
    return classify_change(read_definition(warehouse.root, fingerprint), definition_of(spec))


def source_change_of(warehouse: Warehouse, spec: SourceSpec) -> DefinitionChange | None:
    """How the declaration of a log table differs from what it stores; None for one that stores nothing yet."""
    from freshline.commit.columns import column_types

    path = warehouse.path(spec.name)
    if not spec.is_log or not exists(path):
        return None
    stored = {name.lower(): (name, kind) for name, kind in column_types(path).items()}
    declared = {column.name.lower(): column for column in spec.record_columns}
    other = [
        f"column {column.name} was {stored[key][1]}, is {column.type.upper()}"
        for key, column in declared.items()
        if key in stored and _is_other_type(stored[key][1], column.type)
    ]
    if other:
        return DefinitionChange(ChangeClass.BREAKING, tuple(other))
    about = [f"new column {column.name}" for key, column in declared.items() if key not in stored]
    about += [f"column {name} is no longer read" for key, (name, _) in stored.items() if key not in declared]
    return DefinitionChange(ChangeClass.ADDITIVE, tuple(about) or ("its format, its key or where it is read from",))


def _is_other_type(stored: str, declared: str) -> bool:
    """Whether two plain types are surely not one; of others, and of texts of a length, nothing is said."""
    names = {"INTEGER": "INT", "LONG": "BIGINT", "SHORT": "SMALLINT", "BYTE": "TINYINT", "TIMESTAMP_LTZ": "TIMESTAMP"}
    before, after = (kind.upper().replace(" ", "") for kind in (stored, declared))
    after = names.get(after, after)
    return _PLAIN_TYPE.fullmatch(before) is not None and _PLAIN_TYPE.fullmatch(after) is not None and before != after


def _file(warehouse: Path, fingerprint: str) -> Path:
    return warehouse / FOLDER / f"{fingerprint}.json"

"""The rows of a version and its net changes in parts of bounded size, however large the version is. Without Spark.

Parts have the same rows in the same order whenever they are read, so who got some of them goes on with the next one.
Changes that are more than fit in memory go to files first, each with the rows of some hashes of the key: the old and
the new row of a key are in one of them, and so are changes that undo each other.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd  # type: ignore[import-untyped] # its stubs are a package of their own, for one function
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from freshline.commit.data_files import Masks, fit, is_plain, is_served, masked, read_file, read_masks, read_pieces
from freshline.commit.delta_log import Commit, open_table, read_commit
from freshline.errors import ReadError
from freshline.reads.rows import CHANGE, changed_pieces, gone, net_changes

# A part has at most so many rows, and about so many bytes as Arrow holds them.
ROWS_OF_PART, BYTES_OF_PART = 2_000, 1 << 20
# Changes that are in memory at once, in rows and in bytes of their files, which are compressed.
ROWS_IN_MEMORY, BYTES_IN_MEMORY = 100_000, 32 << 20
_PIECE = 16_384
_MOST_FILES = 256


@dataclass(frozen=True)
class Part:
    """Some of the net changes of a version. Row n of `before` became row n of `after`."""

    inserts: pa.Table
    before: pa.Table
    after: pa.Table
    deletes: pa.Table
    last: bool


@dataclass(frozen=True)
class Limits:
    """The sizes by which a version is cut, as the constants of this module have them."""

    rows_of_part: int = ROWS_OF_PART
    rows_in_memory: int = ROWS_IN_MEMORY
    bytes_in_memory: int = BYTES_IN_MEMORY

    @property
    def cut(self) -> str:
        """The sizes, and the libraries whose hashes and texts decide which part a row is in."""
        return f"{self} {BYTES_OF_PART} {pd.__version__} {pa.__version__}"


def row_parts(path: Path, table: str, version: int, columns: Sequence[str], limits: Limits) -> Iterator[Part]:
    """The rows of a version as inserts; one empty part where it has none. Raises ReadError where a file is gone."""
    opened = open_table(path, version)
    schema = _schema_of(opened, table, columns)
    masks = read_masks(opened) if not is_plain(opened) and is_served(opened) else {}
    if masks is None or not (is_plain(opened) or is_served(opened)):
        raise _for_spark(table)
    empty = schema.empty_table()

    with _readable(table, f"version {version}"):
        parts = (
            Part(rows, empty, empty, empty, last=False)
            for rows in _in_steps(_rows_of(opened, path, schema, masks), limits)
        )
        yield from _with_last(parts, Part(empty, empty, empty, empty, last=True))


def change_parts(
    path: Path, table: str, version: int, columns: Sequence[str], key: Sequence[str], folder: Path, limits: Limits
) -> Iterator[Part]:
    """The net changes that the commit of a version made to these columns; nothing where it changed none of them.

    With a `key` of these columns a row of the same key before and after is an update. Large ones are in files below
    `folder` meanwhile. Raises ReadError where the commit or a file of it is gone.
    """
    opened = open_table(path, version)
    commit = read_commit(path, version)
    if commit is None:
        raise gone(table, f"the changes of version {version}", "its commit is no longer in the log")
    schema = _schema_of(opened, table, columns)
    with _readable(table, f"the changes of version {version}"):
        pieces = changed_pieces(opened, path, commit, rows=_PIECE) if is_plain(opened) or is_served(opened) else None
        if pieces is None:
            raise _for_spark(table)
        changed = (_with_kind(rows, kind, schema) for rows, kind in pieces)
        rows, size = _size_of(path, commit)
        files = max(-(-rows // limits.rows_in_memory), -(-size // limits.bytes_in_memory))
        found = _in_memory(changed, schema, key, limits)
        if files > 1:
            found = _in_files(changed, schema, key, limits, folder, min(2 * files, _MOST_FILES))
        yield from _with_last(found, None)


def _schema_of(opened: DeltaTable, table: str, columns: Sequence[str]) -> pa.Schema:
    whole = pa.schema(opened.schema().to_arrow())
    missing = [name for name in columns if name not in whole.names]
    if missing:
        raise ReadError(f"version {opened.version()} has no column {missing[0]}.", where=table)
    return pa.schema([whole.field(name) for name in columns])


def _rows_of(opened: DeltaTable, path: Path, schema: pa.Schema, masks: Masks) -> Iterator[pa.Table]:
    """The rows of a version, in the order of the names of its files."""
    files = pa.table(opened.get_add_actions(flatten=False))
    values = files["partition"].to_pylist() if "partition" in files.column_names else [{}] * files.num_rows
    for file, partition in sorted(zip(files["path"].to_pylist(), values, strict=True), key=lambda each: str(each[0])):
        name = unquote(file).rpartition("/")[2]
        if name in masks:
            yield fit(masked(read_file(opened, path / unquote(file), partition), masks[name]), schema)
        else:
            for piece in read_pieces(opened, path / unquote(file), partition, _PIECE):
                yield fit(piece, schema)


def _with_kind(rows: pa.Table, kind: str | None, schema: pa.Schema) -> pa.Table:
    kinds = rows[CHANGE] if kind is None else pa.array([kind] * rows.num_rows, pa.string())
    return fit(rows, schema).append_column(CHANGE, kinds)


def _size_of(path: Path, commit: Commit) -> tuple[int, int]:
    """The rows and bytes of the files that have the changes of a commit."""
    actions: list[Mapping[str, Any]] = [action["cdc"] for action in commit.actions if "cdc" in action]
    actions = actions or [*commit.data_actions("add"), *commit.data_actions("remove")]
    files = [path / unquote(str(action["path"])) for action in actions]
    return sum(pq.read_metadata(file).num_rows for file in files), sum(file.stat().st_size for file in files)


def _in_memory(changed: Iterator[pa.Table], schema: pa.Schema, key: Sequence[str], limits: Limits) -> Iterator[Part]:
    empty = schema.append(pa.field(CHANGE, pa.string())).empty_table()
    yield from _parts_of(net_changes(pa.concat_tables([empty, *changed]), in_order=True), key, limits)


def _in_files(
    changed: Iterator[pa.Table], schema: pa.Schema, key: Sequence[str], limits: Limits, folder: Path, number: int
) -> Iterator[Part]:
    folder.mkdir(parents=True, exist_ok=True)
    whole = schema.append(pa.field(CHANGE, pa.string()))
    with tempfile.TemporaryDirectory(dir=folder, prefix="changes-") as name:
        files = [Path(name) / str(each) for each in range(number)]
        with ExitStack() as stack:
            writers = [
                stack.enter_context(pa.ipc.new_stream(stack.enter_context(pa.OSFile(str(each), "wb")), whole))
                for each in files
            ]
            for rows in changed:
                place = _hashes(rows, key or schema.names) % np.uint64(number)
                order = np.argsort(place, kind="stable")
                sorted_rows, ends = rows.take(pa.array(order)), np.searchsorted(place[order], np.arange(number + 1))
                for each in range(number):
                    if ends[each] < ends[each + 1]:
                        writers[each].write_table(sorted_rows.slice(ends[each], ends[each + 1] - ends[each]))
        for file in files:
            with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                net = net_changes(reader.read_all(), in_order=True)
                yield from _parts_of(net, key, limits)
            file.unlink()


def _hashes(rows: pa.Table, names: Sequence[str]) -> Any:
    """A number for each row, the same for equal values, in whichever piece of whichever process."""
    found = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        # By their texts: the same number is of another type for pandas beside a NULL.
        texts = column if pa.types.is_binary(column.type) else column.cast(pa.string())
        hashed = pd.util.hash_array(texts.to_numpy(zero_copy_only=False).astype(object), categorize=False)
        found = found * np.uint64(31) + hashed
    return found


def _parts_of(net: pa.Table, key: Sequence[str], limits: Limits) -> Iterator[Part]:
    """Net changes of whole keys in parts, the deleted ones of a key paired with its inserted ones."""
    rows, kinds = net.drop_columns([CHANGE]), net[CHANGE].to_pylist()
    pairs = _pairs(rows, kinds, key)
    step = _step(rows, limits)

    def taken(numbers: Sequence[int]) -> pa.Table:
        return rows.take(pa.array(numbers, pa.int64()))

    for start in range(0, len(pairs), step):
        some = pairs[start : start + step]
        yield Part(
            inserts=taken([new for old, new in some if old is None and new is not None]),
            before=taken([old for old, new in some if old is not None and new is not None]),
            after=taken([new for old, new in some if old is not None and new is not None]),
            deletes=taken([old for old, new in some if old is not None and new is None]),
            last=False,
        )


def _pairs(rows: pa.Table, kinds: Sequence[str], key: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """The places of the row before and after of each change; one of them is None for rows that came or went."""
    if not key:
        return [(number, None) if kind == "delete" else (None, number) for number, kind in enumerate(kinds)]
    keys = list(zip(*(map(repr, rows[name].to_pylist()) for name in key), strict=True))
    deleted: defaultdict[Any, deque[int]] = defaultdict(deque)
    for number, kind in enumerate(kinds):
        if kind == "delete":
            deleted[keys[number]].append(number)
    found: list[tuple[int | None, int | None]] = []
    for number, kind in enumerate(kinds):
        if kind != "delete":
            old = deleted[keys[number]]
            found.append((old.popleft() if old else None, number))
    return found + [(number, None) for numbers in deleted.values() for number in numbers]


def _in_steps(pieces: Iterator[pa.Table], limits: Limits) -> Iterator[pa.Table]:
    """The rows of pieces, of which many may be small, as many at once as a part has."""
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if (
            sum(each.num_rows for each in held) < limits.rows_of_part
            and sum(each.nbytes for each in held) < BYTES_OF_PART
        ):
            continue
        rows = pa.concat_tables(held)
        step, start = _step(rows, limits), 0
        while rows.num_rows - start >= step:
            yield rows.slice(start, step)
            start += step
        held = [rows.slice(start)] if start < rows.num_rows else []
    if held:
        rows = pa.concat_tables(held)
        if rows.num_rows:
            yield rows


def _step(rows: pa.Table, limits: Limits) -> int:
    """How many of these rows a part has."""
    bytes_of_row = rows.nbytes / max(1, rows.num_rows)
    return max(1, min(limits.rows_of_part, int(BYTES_OF_PART / max(1.0, bytes_of_row))))


def _with_last(parts: Iterator[Part], empty: Part | None) -> Iterator[Part]:
    """The parts, the last of which says so; `empty` where there is none."""
    held = next(parts, empty)
    for part in parts:
        assert held is not None
        yield held
        held = part
    if held is not None:
        yield Part(held.inserts, held.before, held.after, held.deletes, last=True)


@contextmanager
def _readable(table: str, what: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise gone(table, what, error) from error


def _for_spark(table: str) -> ReadError:
    return ReadError(
        "its changes are read with Spark alone, because other programs gave it features that freshline gives no table. "
        "Read them with `freshline sql` and `read_changes`.",
        where=table,
    )

"""Delta tables as delta-rs has read them. A refresh asks a dozen times for what the log of one version says.

A log without a checkpoint is read commit by commit, which takes milliseconds each time. Most questions are about
columns and settings, which few commits change: these are known of the next version without opening it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable, Metadata, Schema
from deltalake.table import ProtocolVersions

# The newest versions of the tables of one refresh, and of those that are refreshed beside it.
MOST_KEPT = 32
# Descriptions are small.
MOST_DESCRIBED = 1_000
_Key = tuple[str, int, int, int, int]
_kept: OrderedDict[_Key, DeltaTable] = OrderedDict()
_described: OrderedDict[str, tuple[_Key, Description]] = OrderedDict()
_lock = threading.Lock()
# The actions that change a description.
_CHANGING = (b'"metaData"', b'"protocol"')
# So many commits, of so many bytes each, are read rather than the table.
_MOST_COMMITS, _MOST_BYTES = 20, 1 << 20


@dataclass(frozen=True)
class Description:
    """The columns and settings of a table at a version."""

    schema: Schema
    metadata: Metadata
    protocol: ProtocolVersions


def shared_table(path: Path, version: int) -> DeltaTable:
    """A version of a table, to be read only: others have the same object. Raises what DeltaTable raises.

    A version is another one where its commit was written anew, as after a log has lost its newest commits.
    """
    key = _key(path, version)
    if key is None:
        return DeltaTable(str(path), version=version)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    table = DeltaTable(str(path), version=version)
    with _lock:
        _kept[key] = table
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return table


def describe(path: Path, version: int) -> Description:
    """The columns and settings of a version. Raises what DeltaTable raises."""
    key, place = _key(path, version), str(path)
    with _lock:
        known = _described.get(place)
    if known is not None and key is not None and _is_described_alike(path, known[0], version):
        found = known[1]
        if version <= known[0][1]:
            return found
    else:
        table = shared_table(path, version)
        found = Description(table.schema(), table.metadata(), table.protocol())
    if key is not None:
        with _lock:
            _described[place] = (key, found)
            _described.move_to_end(place)
            while len(_described) > MOST_DESCRIBED:
                _described.popitem(last=False)
    return found


def _is_described_alike(path: Path, known: _Key, version: int) -> bool:
    """Whether no commit between two versions, of which the known one is still there, changes columns or settings."""
    if abs(version - known[1]) > _MOST_COMMITS or _key(path, known[1]) != known:
        return False
    for number in range(min(version, known[1]) + 1, max(version, known[1]) + 1):
        try:
            commit = path / "_delta_log" / f"{number:020d}.json"
            if commit.stat().st_size > _MOST_BYTES:
                return False
            text = commit.read_bytes()
        except OSError:
            return False
        if any(action in text for action in _CHANGING):
            return False
    return True


def _key(path: Path, version: int) -> _Key | None:
    """The facts that identify a version; None where its commit is not there any more, or cannot be read."""
    try:
        found = (path / "_delta_log" / f"{version:020d}.json").stat()
    except OSError:
        return None
    return str(path), version, found.st_ino, found.st_mtime_ns, found.st_size

"""Delta tables as delta-rs has read them. A refresh asks a dozen times for what the log of one version says.

A log without a checkpoint is read commit by commit, which takes milliseconds each time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from deltalake import DeltaTable

# The newest versions of the tables of one refresh, and of those that are refreshed beside it.
MOST_KEPT = 32
_Key = tuple[str, int, int, int, int]
_kept: OrderedDict[_Key, DeltaTable] = OrderedDict()
_lock = threading.Lock()


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


def _key(path: Path, version: int) -> _Key | None:
    """The facts that identify a version; None where its commit is not there any more, or cannot be read."""
    try:
        found = (path / "_delta_log" / f"{version:020d}.json").stat()
    except OSError:
        return None
    return str(path), version, found.st_ino, found.st_mtime_ns, found.st_size

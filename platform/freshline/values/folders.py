"""Folders of Delta tables that delta-rs takes for other ones.

It reads the logs of all tables, and writes small commits. Of a path it decodes `%20`, and takes a backslash for a
slash: another folder than Spark's, which may have another table. Control characters it refuses, and four characters
make it panic when it writes.
"""

from __future__ import annotations

import re
from pathlib import Path

_MISTAKEN = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
_NOT_WRITTEN = re.compile(rf"{_MISTAKEN.pattern}|[\[\]^|]")


def unfit(folder: str | Path, *, written: bool) -> str | None:
    r"""The part of a table's path that keeps it from being read or, where it is `written`, from being written.

    >>> unfit("/a b/[c]", written=False), unfit("/a b/[c]", written=True), unfit("/a%20b", written=False)
    (None, '[', '%20')
    """
    found = (_NOT_WRITTEN if written else _MISTAKEN).search(str(folder))
    return None if found is None else found[0]

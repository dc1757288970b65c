"""Files of an engine that others read at any moment: each is there whole, or as it was before."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(file: Path, text: str, *, mode: int = 0o600) -> None:
    """Put a file in the place of the one that is there; killed half way, the old one stays. Raises OSError."""
    # Made by mkstemp for the owner only, from the first byte on.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(handle, mode)
            stream.write(text)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

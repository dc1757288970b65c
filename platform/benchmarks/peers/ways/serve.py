"""The loop of a peer's process: refresh when it is asked to, and report how that went. Standard library only.

The process is asked by lines on its standard input and answers with one line of JSON each. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


def serve(refresh: Callable[[], object], close: Callable[[], object] = lambda: None) -> None:
    """Call `refresh` for each line until the input ends, then `close`."""
    # Everything that a peer prints itself is a log, and must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for _ in sys.stdin:
        try:
            refresh()
            answer: dict[str, object] = {"ok": True}
        except Exception as error:  # noqa: BLE001 - it is reported, and the peer's line shows it
            traceback.print_exc()
            answer = {"ok": False, "why": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    close()


def folders() -> tuple[Path, Path]:
    """Where the files land, and where the peer keeps all that it makes: the two arguments of each peer."""
    return Path(sys.argv[1]), Path(sys.argv[2])

"""A process that beats as an engine does, until it is killed. Its argument is the URL of the control store."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime

from freshline.commit.control_store import ControlStore


def main(url: str) -> None:
    store = ControlStore.open(url)
    while True:
        store.heartbeats.beat("engine", datetime.now(UTC), {"pid": os.getpid(), "loops": True})
        print("beat", flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1])

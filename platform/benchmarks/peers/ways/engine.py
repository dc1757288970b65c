"""A peer that is freshline: its engine is started once, and asked to refresh all tables at each step.

The client is kept too, as Dagster keeps one. The command `freshline refresh` makes the same request, and starts a
Python for it.
"""

from __future__ import annotations

from pathlib import Path

from serve import serve

from freshline.declare.project import read_settings
from freshline.engine.client import EngineClient


def serve_engine(folder: Path) -> None:
    """Refresh the project in this folder at each step."""
    settings = read_settings(folder, {})
    clients: list[EngineClient] = []

    def refresh() -> None:
        if not clients:
            clients.append(EngineClient.connect(settings))
        for event in clients[0].run("refresh", tables=[]):
            if event["type"] == "outcome":
                outcome = event["outcome"]
                print(f"{outcome['table']}: {outcome['state']} {outcome['strategy']} {outcome['reason']}")
                if outcome["state"] not in ("SUCCEEDED", "SKIPPED"):
                    raise RuntimeError(f"{outcome['table']}: {outcome['error'] or outcome['reason']}")
            elif event["type"] == "done" and event["error"]:
                raise RuntimeError(str(event["error"]))

    def close() -> None:
        for client in clients:
            client.stop()

    serve(refresh, close)

"""freshline: a project of six declarations. Its engine is started once, and asked to refresh all tables at each step.

The client is kept too, as Dagster keeps one. The command `freshline refresh` makes the same request, and starts a
Python for it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from serve import folders, serve  # noqa: E402 - by the path above

from freshline.declare.project import read_settings  # noqa: E402
from freshline.engine.client import EngineClient  # noqa: E402


def main() -> None:
    landing, folder = folders()
    (folder / "assets").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.freshline]\n")
    for declaration in HERE.glob("*.sql"):
        shutil.copy(declaration, folder / "assets")
    (folder / "landing").symlink_to(landing)
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


if __name__ == "__main__":
    main()

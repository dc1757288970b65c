"""SQLMesh on Spark: a project of six models, four of them incremental. Its session is kept from step to step.

Its models are due once a day, so each step is a run of one day later.
"""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from serve import folders, serve  # noqa: E402 - by the path above
from sqlmesh import Context  # type: ignore[import-not-found]  # noqa: E402

FIRST_DAY = datetime(2026, 1, 2, tzinfo=UTC)


def main() -> None:
    landing, folder = folders()
    project = Path(shutil.copytree(HERE / "project", folder / "project"))
    config = project / "config.yaml"
    config.write_text(config.read_text().format(folder=folder, landing=landing))
    contexts: list[Context] = []
    days: list[datetime] = []

    def step() -> None:
        days.append(FIRST_DAY + timedelta(days=len(days)))
        if not contexts:
            contexts.append(Context(paths=[str(project)]))
            contexts[0].plan(auto_apply=True, no_prompts=True, execution_time=days[0])
            return
        done = contexts[0].run(execution_time=days[-1], skip_janitor=True)
        if not done.is_success:
            raise RuntimeError(f"the run ended as {done}")

    serve(step)


if __name__ == "__main__":
    main()

"""dbt on Spark: a project of six models, four of them incremental. dbt and its session are kept from step to step."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from dbt.cli.main import dbtRunner  # type: ignore[import-not-found]  # noqa: E402 - by the path above
from serve import folders, serve  # noqa: E402


def main() -> None:
    landing, folder = folders()
    project = shutil.copytree(HERE / "project", folder / "project")
    runner = dbtRunner()
    given = ["--project-dir", str(project), "--profiles-dir", str(project)]
    command = ["run", *given, "--vars", json.dumps({"landing": str(landing)})]

    def step() -> None:
        done = runner.invoke(command)
        if not done.success:
            results = [] if done.result is None else done.result.results
            failed = [f"{one.node.name}: {one.message}" for one in results if one.status not in ("success", "pass")]
            raise RuntimeError(" / ".join(failed) or str(done.exception))

    serve(step)


if __name__ == "__main__":
    main()

"""foreachBatch and MERGE by hand: the session is kept from step to step."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from pipeline import Pipeline  # noqa: E402 - by the path above
from pyspark.sql import SparkSession  # noqa: E402
from serve import folders, serve  # noqa: E402


def main() -> None:
    landing, folder = folders()
    kept: list[Pipeline] = []

    def step() -> None:
        if not kept:
            kept.append(Pipeline(SparkSession.builder.getOrCreate(), str(landing), str(folder / "tables")))
        kept[0].refresh()

    serve(step, lambda: [pipeline.spark.stop() for pipeline in kept])


if __name__ == "__main__":
    main()

"""Everything again: the session is kept from step to step."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from pipeline import refresh  # noqa: E402 - by the path above
from pyspark.sql import SparkSession  # noqa: E402
from serve import folders, serve  # noqa: E402


def main() -> None:
    landing, folder = folders()
    spark: list[SparkSession] = []

    def step() -> None:
        if not spark:
            spark.append(SparkSession.builder.getOrCreate())
        refresh(spark[0], str(landing), str(folder / "tables"))

    serve(step, lambda: [session.stop() for session in spark])


if __name__ == "__main__":
    main()

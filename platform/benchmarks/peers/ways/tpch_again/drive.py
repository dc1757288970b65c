"""Everything again: one table over those of TPC-H, in a session that is kept. The third argument names its query."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[4])]

from pyspark.sql import SparkSession  # noqa: E402 - by the path above
from serve import folders, serve  # noqa: E402

from benchmarks.tpch_tables.declarations import sources_of  # noqa: E402
from benchmarks.tpch_tables.shapes import shape_named  # noqa: E402


def main() -> None:
    landing, folder = folders()
    shape = shape_named(sys.argv[3])
    sessions: list[SparkSession] = []

    def step() -> None:
        if not sessions:
            sessions.append(SparkSession.builder.getOrCreate())
        spark = sessions[0]
        for name in sources_of(shape.query):
            spark.read.format("delta").load(str(landing / name)).createOrReplaceTempView(name)
        spark.sql(shape.query).write.format("delta").mode("overwrite").save(str(folder / "tables" / shape.table))

    serve(step, lambda: [session.stop() for session in sessions])


if __name__ == "__main__":
    main()

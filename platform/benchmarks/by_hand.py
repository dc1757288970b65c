"""What an engineer would write by hand for a log table and keyed tables of its newest rows; run by freshness.py.

One streaming query over a directory of JSON files, looked at each second as freshline does. Each batch is appended to
the log table and merged into every keyed table, several at a time, with transaction ids that let a batch be repeated.
The session has freshline's own settings, which make small commits cheap. It runs until its standard input ends.
"""

from __future__ import annotations

import argparse
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform")]

from pyspark.sql import DataFrame  # noqa: E402 - found by the path above

from freshline.declare.project import read_settings  # noqa: E402
from freshline.engine.spark import build_session, stop_session  # noqa: E402

COLUMNS = "k STRING, n BIGINT, at TIMESTAMP, v DOUBLE"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a project's folder, with the files in `in`")
    parser.add_argument("tables", type=int, help="how many keyed tables")
    given = parser.parse_args()
    folder: Path = given.folder
    settings = read_settings(folder, {})
    spark = build_session(settings, app_name="by hand")
    log = folder / "event"
    targets = [folder / f"t{number}" for number in range(given.tables)]
    for target in (log, *targets):
        spark.createDataFrame([], COLUMNS).write.format("delta").mode("ignore").save(str(target))
    threads = ThreadPoolExecutor(settings.parallel_refreshes)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        session = batch.sparkSession
        options = {"txnAppId": "by-hand", "txnVersion": str(number)}
        batch.write.format("delta").mode("append").options(**options).save(str(log))
        newest = f"newest_{number}"
        rows = batch.groupBy("k").agg({"n": "max"}).withColumnRenamed("max(n)", "n").join(batch, ["k", "n"])
        # A MERGE refuses a source that is cached.
        rows.select("k", "n", "at", "v").localCheckpoint().createOrReplaceTempView(newest)

        def merge(target: Path) -> None:
            session.sql(
                f"MERGE INTO delta.`{target}` t USING {newest} s ON t.k = s.k "
                "WHEN MATCHED AND s.n > t.n THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        list(threads.map(merge, targets))
        session.catalog.dropTempView(newest)
        batch.unpersist()

    rows = spark.readStream.schema(COLUMNS).json(str(folder / "in"))
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    print("ready", flush=True)

    def stop_at_the_end_of_the_input() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=stop_at_the_end_of_the_input, daemon=True).start()
    # It raises what the query failed with.
    query.awaitTermination()
    stop_session(spark)


if __name__ == "__main__":
    main()

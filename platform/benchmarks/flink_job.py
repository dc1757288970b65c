"""One of the tables of `event_time` as a Flink job, in an environment of its own with apache-flink.

All batches are read in one run, from one file in their order, with a checkpoint each second. Flink does not stop after
a batch, and a row can be read when the watermark has closed its window.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from measure import PeakMemory, tree_cpu_seconds
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

WINDOWED = "window_start, window_end, k, count(*) AS n, sum(v) AS s"
GROUP = "GROUP BY window_start, window_end, k"
HOP = "HOP(TABLE event, DESCRIPTOR(ts), INTERVAL '20' MINUTES, INTERVAL '1' HOUR)"
SESSION = "SESSION(TABLE event PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTES)"
NEAR = "e.k = o.k AND o.ts BETWEEN e.ts AND e.ts + INTERVAL '10' MINUTES"
WINDOW_COLUMNS = "window_start TIMESTAMP(3), window_end TIMESTAMP(3), k STRING, n BIGINT, s BIGINT"
# By the shape: the query, and the columns of its rows.
JOBS = {
    "tumbling": (
        f"SELECT {WINDOWED} FROM TABLE(TUMBLE(TABLE event, DESCRIPTOR(ts), INTERVAL '1' HOUR)) {GROUP}",
        WINDOW_COLUMNS,
    ),
    "sliding": (f"SELECT {WINDOWED} FROM TABLE({HOP}) {GROUP}", WINDOW_COLUMNS),
    "session": (f"SELECT {WINDOWED} FROM TABLE({SESSION}) {GROUP}", WINDOW_COLUMNS),
    "interval join": (
        f"SELECT e.id, o.id AS other, e.k, CAST(o.ts AS TIMESTAMP(3)) AS ts FROM event e, other o WHERE {NEAR}",
        "id BIGINT, other BIGINT, k STRING, ts TIMESTAMP(3)",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=tuple(JOBS), required=True)
    parser.add_argument("--delay", required=True, help="of the watermark, in days")
    parser.add_argument("--folder", type=Path, required=True, help="has a folder of JSON for each source")
    arguments = parser.parse_args()
    with PeakMemory() as peak:
        _run(arguments.shape, arguments.delay, arguments.folder)
    # The JVM is a child of this process and still there.
    (arguments.folder / "found.json").write_text(json.dumps({"cpu": tree_cpu_seconds(), "peak_bytes": peak.bytes}))


def _run(shape: str, delay: str, folder: Path) -> None:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    configuration = environment.get_config()
    for name, value in {
        # The rows of one source must come in the order of their batches, as they come to the other ways.
        "parallelism.default": "1",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
    }.items():
        configuration.set(name, value)
    form = "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"
    for source in ("event", "other"):
        environment.execute_sql(
            f"CREATE TABLE {source} (id BIGINT, k STRING, ts TIMESTAMP_LTZ(3), v BIGINT, "
            f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' DAYS) WITH "
            f"('connector' = 'filesystem', 'path' = '{(folder / source).as_uri()}', {form})"
        )
    query, columns = JOBS[shape]
    result = (folder / "result").as_uri()
    environment.execute_sql(
        f"CREATE TABLE `result` ({columns}) WITH ('connector' = 'filesystem', 'path' = '{result}', {form})"
    )
    environment.execute_sql(f"INSERT INTO `result` {query}").wait()


if __name__ == "__main__":
    main()

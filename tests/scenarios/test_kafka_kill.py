"""Broker and engine are killed while events arrive: each event is there once, and every union read is exact."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import psutil
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshline.declare.project_settings import read_settings
from freshline.engine.client import EngineClient
from freshline.engine.state_file import read_state
from freshline.engine.union import read_union
from freshline.errors import FreshlineError
from freshline.values.settings import Settings
from tests.kafka import Topics

EVENTS, CHUNK, KEYS, PARTITIONS = 200_000, 4_000, 200, 3
BEFORE_KILLS = {8: "engine", 14: "broker", 21: "engine", 28: "broker", 35: "engine", 42: "broker"}
READ_SECONDS = 180.0
SUMS = "count(*) AS n, count(DISTINCT event_id) AS u, sum(v) AS s"


@dataclass
class Reads:
    """The rows that union reads found while everything was killed, each with its token."""

    sums: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=list)
    tables: list[tuple[Mapping[str, Any], dict[int, tuple[int, int]]]] = field(default_factory=list)
    refused: list[FreshlineError] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def read_sums(self, root: Path) -> None:
        """The log, as three numbers."""
        found = read_union("event", columns=SUMS, project=root)
        self.sums.append((found.token, found.rows[0]))

    def read_table(self, root: Path) -> None:
        """The keyed table, whole."""
        found = read_union("newest", project=root)
        self.tables.append((found.token, newest(found.rows)))


def newest(rows):
    return {int(row["k"]): (int(row["v"]), int(row["n"])) for row in rows}


def read_every_second(read: Callable[[], None], over: threading.Event, reads: Reads) -> None:
    """Read again a second after the last read began, or at once where it took longer."""
    began = time.monotonic()
    while not over.wait(max(0.0, began + 1.0 - time.monotonic())):
        began = time.monotonic()
        try:
            read()
        except FreshlineError as error:
            reads.refused.append(error)
        else:
            reads.seconds.append(time.monotonic() - began)


def kill_engine(settings) -> None:
    state = read_state(settings.state)
    if state is None:
        return
    for process in (state.process.pid, state.jvm.pid):
        if psutil.pid_exists(process):
            psutil.Process(process).send_signal(signal.SIGKILL)


def declare(root: Path, servers: str, topic: str) -> None:
    (root / "assets").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[tool.freshline]\ndriver-memory = "1g"\n')
    (root / "assets" / "event.sql").write_text(
        "CREATE SOURCE event (event_id STRING, k INT, v BIGINT, n BIGINT, p INT METADATA FROM 'partition', "
        "o BIGINT METADATA FROM 'offset', PRIMARY KEY (event_id)) WITH ('connector' = 'kafka', 'format' = 'json', "
        f"'topic' = '{topic}', 'bootstrap.servers' = '{servers}')"
    )
    (root / "assets" / "newest.sql").write_text(
        "CREATE MATERIALIZED TABLE newest (PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'v', "
        "'merge.tie-breaker' = 'n') FRESHNESS = INTERVAL '2' SECOND AS SELECT k, v, n FROM event"
    )
    (root / "assets" / "total.sql").write_text(
        "CREATE MATERIALIZED TABLE total FRESHNESS = INTERVAL '5' SECOND AS "
        "SELECT k, count(*) AS n, sum(v) AS s FROM event GROUP BY k"
    )


@dataclass
class Story:
    """The events that are sent, and the rows that must follow. They happened in another order than their numbers."""

    kafka: Topics
    spark: SparkSession
    topic: str
    values: list[int]
    first: dict[int, tuple[int, int]] = field(default_factory=dict)

    def send(self, start: int) -> None:
        """Send one chunk until all of it has arrived; the source drops what it has already."""
        events = [
            (json.dumps({"event_id": f"e{n}", "k": n % KEYS, "v": self.values[n], "n": n}), n % KEYS % PARTITIONS)
            for n in range(start, start + CHUNK)
        ]
        rows = self.spark.createDataFrame(events, "value STRING, partition INT").coalesce(1)
        options = {
            "kafka.bootstrap.servers": self.kafka.servers,
            "topic": self.topic,
            "kafka.delivery.timeout.ms": "15000",
            "kafka.request.timeout.ms": "5000",
        }
        while True:
            try:
                rows.write.format("kafka").options(**options).save()
            except (Py4JJavaError, PySparkException):
                continue
            return

    def look(self) -> None:
        """Read the topic without freshline. Of the records of one event the first counts."""
        options = {"kafka.bootstrap.servers": self.kafka.servers, "subscribe": self.topic}
        stored = self.spark.read.format("kafka").options(**options).load()
        number = F.get_json_object(F.col("value").cast("string"), "$.n").cast("bigint").alias("n")
        sent = stored.select("partition", "offset", number).toArrow().to_pylist()
        for row in sorted(sent, key=lambda row: (row["partition"], row["offset"])):
            self.first.setdefault(row["n"], (row["partition"], row["offset"]))

    def up_to(self, token: Mapping[str, Any]) -> list[int]:
        """The events before the end of a union read."""
        ends = {int(partition): end for partition, end in token["to"]["offsets"].items()}
        return [n for n, (partition, offset) in self.first.items() if offset < ends[partition]]

    def fold(self, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        best: dict[int, tuple[int, int]] = {}
        for n in numbers:
            best[n % KEYS] = max(best.get(n % KEYS, (-1, -1)), (self.values[n], n))
        return best

    def sums(self, numbers: list[int]) -> dict[str, int]:
        return {"n": len(numbers), "u": len(numbers), "s": sum(self.values[n] for n in numbers)}

    def check_tables(self, warehouse: Path) -> None:
        """Each event once in the log, in the order of its key; tables as the events make them."""
        log, newest_rows, total = (
            deltalake.DeltaTable(str(warehouse / name)).to_pyarrow_table().to_pylist()
            for name in ("event", "newest", "total")
        )
        assert len(log) == len({row["event_id"] for row in log}) == EVENTS
        order: dict[int, int] = {}
        for row in sorted(log, key=lambda row: [row[f"_freshline_{name}"] for name in ("seq", "file", "record")]):
            assert order.get(row["k"], -1) < row["n"]
            order[row["k"]] = row["n"]
        assert newest(newest_rows) == self.fold(range(EVENTS))
        assert {row["k"]: (row["n"], row["s"]) for row in total} == {
            k: (EVENTS // KEYS, sum(self.values[k::KEYS])) for k in range(KEYS)
        }

    def check_reads(self, reads: Reads, root: Path) -> None:
        """Each union read has the events up to its end, and the same again from its token."""
        for token, found in reads.sums:
            assert {name: int(value or 0) for name, value in found.items()} == self.sums(self.up_to(token))
            assert read_union("event", columns=SUMS, token=token, project=root).rows[0] == found
        for token, rows in reads.tables:
            assert rows == self.fold(self.up_to(token))
            assert newest(read_union("newest", token=token, project=root).rows) == rows


def wait_for_reads(reads: Reads, more: int) -> None:
    """Wait until union reads have succeeded again."""
    wanted, deadline = len(reads.tables) + more, time.monotonic() + READ_SECONDS
    while len(reads.tables) < wanted:
        assert time.monotonic() < deadline, "no union read succeeds any more"
        time.sleep(0.2)


def send_and_kill(story: Story, reads: Reads, settings: Settings, chance: random.Random) -> None:
    for chunk in range(EVENTS // CHUNK):
        sending = threading.Thread(target=story.send, args=(chunk * CHUNK,))
        sending.start()
        who = BEFORE_KILLS.get(chunk)
        # The pace of what arrives, and the moment of the kill, which is what varies.
        time.sleep(0.5 if who is None else chance.uniform(0.0, 10.0))
        if who == "engine":
            kill_engine(settings)
        elif who == "broker":
            story.kafka.broker.kill()
            story.kafka.broker.start()
        sending.join()
        if who == "engine":
            EngineClient.connect(settings, start=True, loops=True)
        if who is not None:
            wait_for_reads(reads, 2)


@pytest.fixture
def root(tmp_path):
    """The folder of a project whose engine does not outlive the test."""
    yield tmp_path / "shop"
    kill_engine(read_settings(tmp_path / "shop", {}))


@pytest.mark.spark
@pytest.mark.long
def test_six_kills_of_broker_and_engine_lose_and_repeat_nothing(root, kafka, spark):
    topic = kafka.new(partitions=PARTITIONS)
    declare(root, kafka.servers, topic)
    settings = read_settings(root, {})
    chance = random.Random(5)
    story = Story(kafka, spark, topic, [chance.randrange(EVENTS) for _ in range(EVENTS)])
    over, reads = threading.Event(), Reads()
    assert list(EngineClient.connect(settings, start=True, loops=True).run("refresh"))

    with ThreadPoolExecutor(2) as threads:
        readers = [
            threads.submit(read_every_second, partial(read, root), over, reads)
            for read in (reads.read_sums, reads.read_table)
        ]
        try:
            send_and_kill(story, reads, settings, chance)
        finally:
            over.set()
        for reader in readers:
            reader.result()
    client = EngineClient.connect(settings, start=True, loops=True)
    outcomes = [event["outcome"] for event in client.run("refresh") if event["type"] == "outcome"]

    assert {outcome["state"] for outcome in outcomes} == {"SUCCEEDED"}, outcomes
    # Who is away is away; everything else would be a mistake.
    assert [error for error in reads.refused if not error.retry_helps] == []
    story.look()
    assert len(story.first) == EVENTS
    story.check_tables(settings.warehouse)
    assert len(reads.sums) > 10
    assert len(reads.tables) > 10
    story.check_reads(reads, root)
    codes = sorted({error.code for error in reads.refused})
    print(f"{len(reads.sums)} and {len(reads.tables)} union reads, {len(reads.refused)} refused: {codes}")
    print("seconds of a read:", " ".join(f"{seconds:.1f}" for seconds in reads.seconds))
    client.stop()

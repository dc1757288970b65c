"""Lookups in a service: 10,000 keys whose answers take 20 ms each, asked 64 at a time, and the refresh behind it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from measure import cost_of
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.values.names import TableName

KEYS, CONCURRENCY, SECONDS = 10_000, 64, 0.02
GOAL_SECONDS = 10.0
_SERVE = "serve"


def asked_lookups(spark: SparkSession, folder: Path) -> str:
    """The seconds of a refresh that asks for all keys, and the requests of the one behind it."""
    folder.mkdir(parents=True)
    orders = folder / "orders"
    _land(spark, orders, 5_000_000, 100, offset=KEYS)
    with _service() as url:
        project = Project(
            folder / "project",
            {
                "o": f"CREATE SOURCE o (id BIGINT, customer BIGINT) WITH ('connector' = 'delta', 'path' = '{orders}');",
                "c": "CREATE SOURCE c (id BIGINT, name STRING, PRIMARY KEY (id)) WITH ('connector' = 'http', 'lookup' "
                f"= 'true', 'url' = '{url}/c/{{id}}', 'lookup.concurrency' = '{CONCURRENCY}', 'lookup.cache-ttl' = "
                "'1 hour');",
                "t": "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT o.id, c.name FROM o LEFT "
                "JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = o.customer;",
            },
        )
        runtime = project.open(spark)
        # Spark compiles a query when it is run for the first time.
        refresh(runtime, "t")
        _land(spark, orders, 6_000_000, 100, offset=2 * KEYS)
        refresh(runtime, "t")
        warm = _requests(url)
        _land(spark, orders, 0, KEYS)
        first = cost_of(lambda: refresh(runtime, "t"))
        asked = _requests(url) - warm
        # The same customers order again: their answers are younger than an hour.
        _land(spark, orders, 1_000_000, KEYS)
        second = cost_of(lambda: refresh(runtime, "t"))
        again = _requests(url) - warm - asked
        rows = spark.read.format("delta").load(str(runtime.warehouse.path(TableName.parse("t"))))
        assert rows.where("name IS NOT NULL").count() == 2 * KEYS + 200
    verdict = "met" if first.wall < GOAL_SECONDS and again == 0 and asked == KEYS else "MISSED"
    asking = f"{asked:,} requests of 20 ms, {CONCURRENCY} at once: {first.wall:.1f} s ({first.cpu:.1f} CPU-s)"
    behind = f"then {second.wall:.1f} s ({second.cpu:.1f}) with {again} requests (goal 0)"
    return f"asked lookups  {asking} with the refresh (goal {GOAL_SECONDS:.0f}), {behind} {verdict}"


def _land(spark: SparkSession, orders: Path, first: int, count: int, *, offset: int = 0) -> None:
    """Orders with the ids from `first` on, of as many customers."""
    rows = spark.range(count).selectExpr(f"id + {first} AS id", f"id + {offset} AS customer")
    rows.write.format("delta").mode("append").save(str(orders))


def _requests(url: str) -> int:
    """The number of requests that the service has had."""
    with urlopen(f"{url}/count") as answer:
        return int(answer.read())


@contextmanager
def _service() -> Iterator[str]:
    """A service in a process of its own; its address."""
    command = [sys.executable, __file__, _SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def _serve() -> None:
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        with suppress(asyncio.IncompleteReadError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                key = request.split(b" ", 2)[1].rpartition(b"/")[2]
                if key == b"count":
                    body = b"%d" % count
                else:
                    count += 1
                    await asyncio.sleep(SECONDS)
                    body = b'{"name": "n' + key + b'"}'
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__" and sys.argv[1:] == [_SERVE]:
    asyncio.run(_serve())

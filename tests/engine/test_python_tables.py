"""A function in Python that hangs, grows, prints, forks or ends fails its own table and no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest

from freshline.compute.cancellation import Cancellation
from freshline.declare.limited_process import MARK
from freshline.declare.project import read_project
from freshline.errors import CancelledError, FreshlineError, PythonLimitError, QueryError
from freshline.values.names import TableName
from freshline.values.settings import Settings
from tests.conftest import settings_in
from tests.engine.conftest import python_tables
from tests.lanes import long_but

pytestmark = pytest.mark.slow

TABLE = """
import os
import signal
import sys
import threading
import time

import freshline
from pyspark.sql import SparkSession


@freshline.table(freshness="10 minutes", options={options})
def {name}():
    spark = SparkSession.active()
    {body}
    return spark.range(3)
"""
SECONDS = 2.0
ENDLESS = ("endless", "deaf", "holding", "printing", "forking", "escaping")
BODIES = {
    "good": "pass",
    "patient": "time.sleep(3)",
    "endless": "while True: pass",
    "deaf": "signal.signal; [signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]), time.sleep(1000)]",
    "holding": "import re; re.match('(a+)+b', 'a' * 60)",  # C code that lets no other thread of Python run
    "printing": "while True: print('x' * 10_000)",
    "growing": "grown = []\n    while True: grown.append(b'x' * (1 << 24))",
    "forking": "[os.fork() for _ in range(3)]; time.sleep(1000)",
    "escaping": "os.fork() or (os.setsid(), os.fork() or time.sleep(1000)); time.sleep(1000)",
    "leaving": "os._exit(3)",
    "exiting": "sys.exit(4)",
    "generating": "return (spark.range(n) for n in iter(int, 1))",
    "hiding": "return spark.range(3).withColumnRenamed('id', '_Change_type')",
    "copying": "os.fork()",
    "counting": "os.fork() or spark.range(7).count(); spark.range(7).count()",
    "straying": "threading.Thread(target=lambda: [time.sleep(0.01) for _ in iter(int, 1)], daemon=True).start()",
}


class Bench:
    """Functions of one project, called as refreshes call them."""

    def __init__(self, settings: Settings, spark) -> None:
        self.settings = settings
        self.spark = spark
        # Loading the files may take as long as it does: what is limited here is what functions do.
        self.graph = read_project(replace(settings, python_seconds=300.0))
        self.tables = python_tables(settings, spark)

    def compute(self, name: str, cancellation: Cancellation) -> str:
        """The name of the view."""
        return self.tables.compute(self.graph.table(TableName.parse(name)), [], cancellation)

    def begin(self, name: str, cancellation: Cancellation) -> Future[str]:
        """Compute in a thread of its own, which does not keep this process."""
        begun: Future[str] = Future()

        def compute() -> None:
            try:
                begun.set_result(self.compute(name, cancellation))
            except FreshlineError as error:
                begun.set_exception(error)

        threading.Thread(target=compute, daemon=True).start()
        return begun

    def call(self, name: str) -> list[int]:
        view = self.compute(name, Cancellation())
        try:
            return sorted(row.id for row in self.spark.table(f"global_temp.{view}").collect())
        finally:
            self.tables.drop(view)

    def workers(self) -> list[psutil.Process]:
        """Everything that functions have started and that is still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if MARK in process.environ() and str(self.settings.root) in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture(scope="module")
def bench(spark, tmp_path_factory) -> Iterator[Bench]:
    settings = replace(
        settings_in(tmp_path_factory.mktemp("functions")), python_seconds=SECONDS, python_memory=700 * 2**20
    )
    settings.declarations.mkdir(parents=True)
    (settings.root / "pyproject.toml").write_text("[tool.freshline]\n")
    for name, body in BODIES.items():
        # Those that never end have the project's limit.
        options = {} if name in ENDLESS else {"python.time-limit": "1 minute"}
        (settings.declarations / f"{name}.py").write_text(TABLE.format(name=name, body=body, options=options))
    bench = Bench(settings, spark)
    yield bench
    bench.tables.close()
    assert bench.workers() == []


@pytest.mark.parametrize("name", long_but(["deaf", "holding", "escaping"], ENDLESS))
def test_a_function_that_never_ends_is_ended_with_all_that_it_started_and_the_next_one_runs(bench, name):
    began = time.monotonic()

    with pytest.raises(PythonLimitError, match=f"the function {name} of {name} took longer than 2 seconds") as raised:
        bench.call(name)

    assert (raised.value.code, raised.value.retry_helps, raised.value.where) == (
        "PYTHON_LIMIT",
        False,
        f"assets/{name}.py",
    )
    assert bench.workers() == []
    assert bench.call("good") == [0, 1, 2]
    assert time.monotonic() - began < 60
    logs = list((bench.settings.state / "logs").glob("worker.log*"))
    assert sum(log.stat().st_size for log in logs) < 30_000_000
    assert logs or name != "printing"


def test_a_function_that_takes_all_memory_is_ended(bench):
    with pytest.raises(PythonLimitError, match="the function growing of growing took more than 700 MB of memory"):
        bench.call("growing")

    assert bench.workers() == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("leaving", "the process that runs leaving ended (code 3)"),
        ("exiting", "SystemExit: 4"),
        ("generating", "generating returned generator, not a DataFrame"),
        (
            "hiding",
            "hiding returned column _Change_type: what is read of changes of its rows has a column",
        ),
    ],
)
def test_a_function_that_ends_its_process_or_returns_something_else_fails_by_itself(bench, name, sentence):
    with pytest.raises(QueryError) as raised:
        bench.call(name)

    assert sentence in raised.value.message
    assert bench.call("good") == [0, 1, 2]


# gRPC's own handling of forks made one of fifty calls wait for ever, and a copy must not use its parent's connection.
@pytest.mark.parametrize("name", long_but(["counting"], ["copying", "counting"]))
def test_a_copy_of_the_process_neither_answers_nor_takes_the_answers_of_its_parent(bench, name):
    for _ in range(3):
        assert bench.call(name) == bench.call("good") == [0, 1, 2]


def test_a_thread_that_a_function_leaves_behind_shares_a_process_with_no_other_function(bench):
    bench.call("good")
    before = {process.pid for process in bench.workers()}

    assert bench.call("straying") == [0, 1, 2]

    assert not before & {process.pid for process in bench.workers()}


def test_a_table_may_have_another_limit_than_the_project(bench):
    assert bench.call("patient") == [0, 1, 2]


def test_a_hanging_function_is_cancelled_within_ten_seconds(bench):
    cancellation = Cancellation()
    slow = Bench(replace(bench.settings, python_seconds=600.0), bench.spark)
    slow.call("good")
    hanging = slow.begin("holding", cancellation)
    time.sleep(0.5)  # it hangs, whenever it is cancelled
    began = time.monotonic()
    cancellation.cancel()

    assert isinstance(hanging.exception(30), CancelledError)
    assert time.monotonic() - began < 10
    slow.tables.close()


def test_a_function_does_not_wait_for_one_that_hangs_and_gives_its_place_to_others(bench):
    slow = Bench(replace(bench.settings, python_seconds=600.0), bench.spark)
    gave_way = threading.Event()
    cancellation = Cancellation()

    @contextmanager
    def aside() -> Iterator[None]:
        gave_way.set()
        yield

    slow.tables.give_way(aside)
    hanging = slow.begin("endless", cancellation)
    assert gave_way.wait(10)

    assert slow.call("good") == [0, 1, 2]

    assert not hanging.done()
    cancellation.cancel()
    assert isinstance(hanging.exception(30), CancelledError)
    slow.tables.close()

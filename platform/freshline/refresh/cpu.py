"""CPU-seconds: of the engine's processes while one refresh ran alone, and of the Spark tasks of one refresh.

Of work that ran side by side nobody can say whose the seconds of a process were; then there is no figure rather than a
wrong one. The seconds of tasks are known for each refresh. They are fewer, because planning and commits are no tasks.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

_TASK = re.compile(r'"Executor task launch worker for task [^"]* in stage (\d+)\.\d+ \(TID (\d+)\)"[^\n]*? Id=(\d+)')
# A JVM or a worker that was started meanwhile is found within so many seconds; the search reads all of /proc.
_LOOK_SECONDS = 60.0


class MeasuredCpu:
    """CPU-seconds of one piece of work, None until it ended and where other work ran beside it."""

    def __init__(self) -> None:
        self.alone = True
        self.seconds: float | None = None


class CpuMeter:
    """Measures work in this process and in those that it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[MeasuredCpu] = []
        self._processes: list[psutil.Process] = []
        self._looked_at = -_LOOK_SECONDS

    @contextmanager
    def measuring(self) -> Iterator[MeasuredCpu]:
        """The measure of the block, with its seconds when the block has ended."""
        measured = MeasuredCpu()
        with self._lock:
            self._running.append(measured)
            if len(self._running) > 1:
                for one in self._running:
                    one.alone = False
        before = self._used() if measured.alone else 0.0
        try:
            yield measured
        finally:
            with self._lock:
                self._running.remove(measured)
            if measured.alone:
                measured.seconds = max(0.0, self._used() - before)

    def _used(self) -> float:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= _LOOK_SECONDS:
                self._looked_at = now
                me = psutil.Process()
                self._processes = [me, *me.children(recursive=True)]
            processes = list(self._processes)
        total = 0.0
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total


class TaskSeconds:
    """CPU-seconds of the tasks of the job group that this thread works in.

    Spark knows the seconds of a task when it has ended. Of one that runs in this machine's JVM, the seconds of its
    thread count from the first inspection on, which is a little less.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._group = self._context.getLocalProperty("spark.jobGroup.id")
        self._ended: dict[int, float] = {}
        self._first: dict[int, int] = {}
        self._done: set[int] = set()

    def used(self) -> float:
        """The seconds so far; those known before where Spark does not answer."""
        running = 0.0
        try:
            stages = self._stages()
            running = self._running(stages)
        except Py4JError as error:
            LOG.debug("what the tasks of %s used is not known: %s", self._group, error)
        return sum(self._ended.values()) + running

    def _stages(self) -> set[int]:
        """The stages of the group's running jobs. The CPU time of ended tasks is noted, for each job until it ends."""
        tracker = self._context.statusTracker()
        store = self._context._jsc.sc().statusStore()
        running: set[int] = set()
        for job in tracker.getJobIdsForGroup(self._group):
            info = None if job in self._done else tracker.getJobInfo(job)
            if info is None:
                continue
            for stage in info.stageIds:
                if tracker.getStageInfo(stage) is not None:
                    self._ended[stage] = store.lastStageAttempt(stage).executorCpuTime() / 1e9
            if info.status == "RUNNING":
                running.update(info.stageIds)
            else:
                self._done.add(job)
        return running

    def _running(self, stages: set[int]) -> float:
        if not stages:
            return 0.0
        jvm = self._context._jvm
        assert jvm is not None
        threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        # All of them as one text: to ask for each by itself takes a tenth of a second.
        shown = jvm.java.util.Arrays.toString(threads.getThreadInfo(threads.getAllThreadIds()))
        total = 0.0
        for stage, task, thread in _TASK.findall(shown):
            if int(stage) in stages:
                now = threads.getThreadCpuTime(int(thread))
                total += max(0, now - self._first.setdefault(int(task), now)) / 1e9
        return total

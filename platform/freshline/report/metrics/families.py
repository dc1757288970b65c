"""The metrics of an engine: which there are, and their samples from frozen figures.

Names, units and types follow Prometheus' conventions. The number of series is bounded by the declared tables: about 25
for each, and a histogram for each strategy and not for each table. A figure that nobody knows is absent, and the series
of a table end when it is not declared any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate

from freshline.freshness.alert import Alert
from freshline.report.metrics.counts import BUCKETS, Durations, PromiseSeconds, RefreshCounts
from freshline.report.metrics.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Labels,
    MetricSample,
    labels,
    samples_of,
)
from freshline.report.status import TableStatus


@dataclass(frozen=True)
class TableFigures:
    """One declared table or source.

    `status` is of the newest check, and `counted` of the newest one that counted rows and files; None before there was
    one. Lags are in seconds.
    """

    name: str
    kind: str
    mode: str
    freshness_seconds: int
    warn_after: int
    fail_after: int
    status: TableStatus | None = None
    counted: TableStatus | None = None
    counts: RefreshCounts = field(default_factory=RefreshCounts)
    kept: PromiseSeconds = field(default_factory=PromiseSeconds)


@dataclass(frozen=True)
class Heap:
    """The heap of the JVM in bytes."""

    used: int
    most: int


@dataclass(frozen=True)
class ProcessFigures:
    """One process: CPU-seconds since its start, resident memory in bytes, open files, and its start since 1970."""

    cpu_seconds: float
    resident_bytes: int
    open_files: int | None
    started: float


@dataclass(frozen=True)
class EngineFigures:
    """The figures of an engine at a scrape.

    `tables` are in the order of the graph. `looked_at` is the moment of their status, None before the first check, and
    `look_seconds` the duration of that check. `requests` counts the open ones by kind. `durations` are by strategy, of
    refreshes that succeeded.
    """

    version: str
    loops: bool
    tables: tuple[TableFigures, ...] = ()
    looked_at: datetime | None = None
    look_seconds: float | None = None
    failed_looks: int = 0
    durations: Mapping[str, Durations] = field(default_factory=dict)
    waiting: int = 0
    running: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    alerts: tuple[Alert, ...] = ()
    heap: Heap | None = None
    engine: ProcessFigures | None = None
    jvm: ProcessFigures | None = None


@dataclass(frozen=True)
class _OfTables:
    """A metric with one series for each table; `value` gives None where it is not known."""

    name: str
    kind: str
    help: str
    value: Callable[[TableFigures], float | None]


def _of_status(value: Callable[[TableStatus], float | None]) -> Callable[[TableFigures], float | None]:
    return lambda table: None if table.status is None else value(table.status)


def _of_counted(value: Callable[[TableStatus], float | None]) -> Callable[[TableFigures], float | None]:
    return lambda table: None if table.counted is None else value(table.counted)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


OF_TABLES: tuple[_OfTables, ...] = (
    _OfTables(
        "freshline_table_lag_seconds",
        GAUGE,
        "How far the data was behind its root sources at the newest look.",
        _of_status(lambda status: status.lag_seconds),
    ),
    _OfTables(
        "freshline_table_freshness_seconds",
        GAUGE,
        "The promise: the lag that the table may have.",
        lambda table: table.freshness_seconds,
    ),
    _OfTables(
        "freshline_table_data_timestamp_seconds",
        GAUGE,
        "The moment up to which the data of the root sources is in the table.",
        _of_status(lambda status: _seconds(status.data_timestamp)),
    ),
    _OfTables(
        "freshline_table_observed_seconds_total",
        COUNTER,
        "Time in which the promise was observed.",
        lambda table: table.kept.observed,
    ),
    _OfTables(
        "freshline_table_late_seconds_total",
        COUNTER,
        "Observed time in which the lag was above the promise.",
        lambda table: table.kept.late,
    ),
    _OfTables(
        "freshline_table_feasible",
        GAUGE,
        "1 where the promise can be kept by the measured refreshes, else 0.",
        _of_status(lambda status: None if status.feasible is None else int(status.feasible)),
    ),
    _OfTables(
        "freshline_table_consecutive_failures",
        GAUGE,
        "Refreshes that failed since the last one that succeeded.",
        lambda table: table.counts.failures_in_a_row,
    ),
    _OfTables(
        "freshline_refresh_rows_read_total",
        COUNTER,
        "Changed rows that refreshes read.",
        lambda table: table.counts.rows_read,
    ),
    _OfTables(
        "freshline_refresh_rows_written_total",
        COUNTER,
        "Rows that refreshes wrote.",
        lambda table: table.counts.rows_written,
    ),
    _OfTables(
        "freshline_refresh_rows_rejected_total",
        COUNTER,
        "Rows that went to quarantine.",
        lambda table: table.counts.rows_rejected,
    ),
    _OfTables(
        "freshline_refresh_rows_late_total",
        COUNTER,
        "Rows of a log table that arrived behind its watermark.",
        lambda table: table.counts.rows_late,
    ),
    _OfTables(
        "freshline_refresh_seconds_total",
        COUNTER,
        "Time that refreshes took.",
        lambda table: table.counts.seconds,
    ),
    _OfTables(
        "freshline_refresh_cpu_seconds_total",
        COUNTER,
        "CPU time of refreshes that ran alone.",
        lambda table: table.counts.cpu_seconds,
    ),
    _OfTables(
        "freshline_table_rows",
        GAUGE,
        "Rows of the newest version.",
        _of_counted(lambda status: status.rows),
    ),
    _OfTables(
        "freshline_table_quarantined_rows",
        GAUGE,
        "Rejected rows that are in the quarantine table.",
        _of_counted(lambda status: status.quarantined),
    ),
    _OfTables(
        "freshline_table_files",
        GAUGE,
        "Files of the newest version.",
        _of_counted(lambda status: status.files),
    ),
    _OfTables(
        "freshline_table_size_bytes",
        GAUGE,
        "Size of the files of the newest version.",
        _of_counted(lambda status: status.size_bytes),
    ),
    _OfTables(
        "freshline_table_watermark_timestamp_seconds",
        GAUGE,
        "The watermark.",
        _of_status(lambda status: _seconds(status.watermark)),
    ),
    _OfTables(
        "freshline_source_retained_bytes",
        GAUGE,
        "Bytes that the system outside retained for the source at its newest refresh.",
        _of_status(lambda status: status.retained_bytes),
    ),
)


def families_of(figures: EngineFigures) -> tuple[Family, ...]:
    """All metrics. Of the same figures they are the same."""
    return tuple(family for family in _families(figures) if family.samples)


def _families(figures: EngineFigures) -> Iterator[Family]:
    yield _one("freshline_build_info", "The version of freshline.", [(labels(version=figures.version), 1)])
    yield _one("freshline_loops_running", "1 while the engine keeps the tables by itself, else 0.", int(figures.loops))
    yield _one(
        "freshline_look_timestamp_seconds", "The moment of the newest look at the tables.", _seconds(figures.looked_at)
    )
    yield _one("freshline_look_duration_seconds", "The time that the newest look took.", figures.look_seconds)
    yield Family(
        "freshline_look_failures_total",
        COUNTER,
        "Looks at the tables that failed.",
        samples_of([(Labels(), figures.failed_looks)]),
    )
    yield from _of_tables(figures.tables)
    yield Family(
        "freshline_refresh_duration_seconds",
        HISTOGRAM,
        "The time that refreshes took that succeeded.",
        tuple(
            sample for strategy, found in sorted(figures.durations.items()) for sample in _histogram(strategy, found)
        ),
    )
    yield _one("freshline_refreshes_waiting", "Refreshes that wait for a place or for their table.", figures.waiting)
    yield _one("freshline_refreshes_running", "Refreshes that run.", figures.running)
    yield _one(
        "freshline_requests_open",
        "Requests of people and programs that have not ended.",
        [(labels(kind=kind), count) for kind, count in sorted(figures.requests.items())],
    )
    alerts = Counter(
        labels(subject=alert.subject, kind=str(alert.kind), level=str(alert.level)) for alert in figures.alerts
    )
    yield _one("freshline_alerts_open", "Alerts that have not recovered.", list(alerts.items()))
    if figures.heap is not None:
        yield _one("freshline_jvm_heap_used_bytes", "The used heap of the JVM.", figures.heap.used)
        yield _one("freshline_jvm_heap_max_bytes", "The most heap that the JVM may use.", figures.heap.most)
    # Those of the engine's own process have the names that each exporter gives them.
    yield from _process("process", "The engine", figures.engine)
    yield from _process("freshline_jvm", "The JVM", figures.jvm)


def _of_tables(tables: Sequence[TableFigures]) -> Iterator[Family]:
    names = [labels(table=table.name) for table in tables]
    yield _one(
        "freshline_table_info",
        "Kind and mode of a table or source.",
        [(labels(table=table.name, kind=table.kind, mode=table.mode), 1) for table in tables],
    )
    yield _one(
        "freshline_table_state",
        "1 for the state that the table is in.",
        [(labels(table=table.name, state=table.status.state), 1) for table in tables if table.status is not None],
    )
    yield _one(
        "freshline_table_lag_limit_seconds",
        "The lags above which the table warns and fails.",
        [
            (labels(table=table.name, level=level), limit)
            for table in tables
            for level, limit in (("warn", table.warn_after), ("fail", table.fail_after))
        ],
    )
    for metric in OF_TABLES:
        values = [(name, metric.value(table)) for name, table in zip(names, tables, strict=True)]
        yield Family(metric.name, metric.kind, metric.help, samples_of(values))
    yield Family(
        "freshline_refreshes_total",
        COUNTER,
        "Refreshes that ended.",
        samples_of(
            [
                (labels(table=table.name, strategy=strategy, state=state), count)
                for table in tables
                for (strategy, state), count in table.counts.ended.items()
            ]
        ),
    )


def _one(name: str, text: str, values: float | Sequence[tuple[Labels, float | None]] | None) -> Family:
    """A gauge of one value, or of values by labels."""
    return Family(name, GAUGE, text, samples_of(values if isinstance(values, Sequence) else [(Labels(), values)]))


def _histogram(strategy: str, durations: Durations) -> Iterator[MetricSample]:
    bounds = [*(f"{bound:g}" for bound in BUCKETS), "+Inf"]
    for bound, count in zip(bounds, accumulate(durations.counts), strict=True):
        yield MetricSample(labels(strategy=strategy, le=bound), count, "_bucket")
    yield MetricSample(labels(strategy=strategy), durations.seconds, "_sum")
    yield MetricSample(labels(strategy=strategy), sum(durations.counts), "_count")


def _process(prefix: str, subject: str, found: ProcessFigures | None) -> Iterator[Family]:
    if found is None:
        return
    cpu = samples_of([(Labels(), found.cpu_seconds)])
    yield Family(f"{prefix}_cpu_seconds_total", COUNTER, f"{subject}: CPU time since its start.", cpu)
    yield _one(f"{prefix}_resident_memory_bytes", f"{subject}: resident memory.", found.resident_bytes)
    yield _one(f"{prefix}_open_fds", f"{subject}: open file descriptors.", found.open_files)
    yield _one(f"{prefix}_start_time_seconds", f"{subject}: its start since 1970.", found.started)

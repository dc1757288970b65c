"""The lag of the reference deployment's enriched_orders, beside what EXPLAIN FRESHNESS said before.

Its declarations and its generator in a temporary project, a real engine with its loops, 40 touches and the orders that
go with them a second. For each freshness: the table is given it, settles for some refreshes, the prediction is read,
and then the lag is sampled from the status, as `freshline status --json` shows it, for some more cycles.
Run alone: `python platform/benchmarks/lag.py --freshness 5 30 60`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(ROOT)]

from freshline.cli.explain import explain_promises  # noqa: E402 - found by the path above
from freshline.commit.control_store import ControlStore  # noqa: E402
from freshline.commit.warehouse import Warehouse  # noqa: E402
from freshline.declare.project import read_settings  # noqa: E402
from freshline.engine.client import EngineClient  # noqa: E402
from freshline.manage.freshness import set_freshness  # noqa: E402
from freshline.plan.project import open_project  # noqa: E402
from freshline.report.status import read_status  # noqa: E402
from freshline.values.names import TableName  # noqa: E402
from freshline.values.settings import Settings  # noqa: E402
from freshline.values.spec import SourceSpec  # noqa: E402
from resources.generator import Generator  # noqa: E402

TABLE = "enriched_orders"
TOUCHES_A_SECOND = 40.0
GOAL = 0.30
_SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class LagCompared:
    """Seconds of lag of one freshness, as predicted before and as sampled after: on average, and at most."""

    freshness_seconds: int
    predicted: float
    typical: float
    predicted_greatest: float
    greatest: float
    late_share: float
    samples: int

    @property
    def met(self) -> bool:
        pairs = ((self.predicted, self.typical), (self.predicted_greatest, self.greatest))
        return all(abs(told / found - 1) <= GOAL for told, found in pairs)

    def line(self) -> str:
        return (
            f"lag          freshness {self.freshness_seconds:>4} s: typical {self.typical:6.1f} s "
            f"(predicted {self.predicted:6.1f}, {self.predicted / self.typical - 1:+.0%}), "
            f"greatest {self.greatest:6.1f} s (predicted {self.predicted_greatest:6.1f}, "
            f"{self.predicted_greatest / self.greatest - 1:+.0%}), late {self.late_share:.1%} of {self.samples} looks "
            f"{'met' if self.met else 'MISSED'}"
        )


def compare(folder: Path, freshnesses: Sequence[int], refreshes: int, cycles: float) -> list[LagCompared]:
    """One comparison for each freshness, after the other.

    The prediction is read after so many `refreshes` under it, and lag is sampled for so many freshnesses, its `cycles`.
    """
    settings = _project(folder)
    generator = _generator(settings)
    generator.prepare()
    over = threading.Event()
    thread = threading.Thread(target=generator.run, args=(over, TOUCHES_A_SECOND))
    client = EngineClient.connect(settings, start=True, loops=True)
    found = []
    try:
        thread.start()
        _wait_for_versions(settings)
        for freshness in freshnesses:
            set_freshness(TABLE, f"{freshness} seconds", cascade=True, project=settings)
            _settle(settings, refreshes)
            told = explain_promises(settings, [TABLE])[0][1]
            assert isinstance(told, dict)
            lags = _sample(settings, max(40.0, cycles * freshness))
            found.append(
                LagCompared(
                    freshness,
                    float(told["typical_lag_seconds"]),
                    sum(lags) / len(lags),
                    float(told["predicted_lag_seconds"]),
                    _greatest(lags),
                    sum(lag > freshness for lag in lags) / len(lags),
                    len(lags),
                )
            )
            print(found[-1].line(), flush=True)
    finally:
        over.set()
        thread.join()
        client.stop()
    return found


def _project(folder: Path) -> Settings:
    (folder / "pyproject.toml").write_text("[tool.freshline]\n")
    (folder / "assets").mkdir()
    for file in (ROOT / "assets").glob("*.sql"):
        shutil.copy(file, folder / "assets")
    return read_settings(folder, {})


def _generator(settings: Settings) -> Generator:
    graph = open_project(settings)
    touches, campaigns = (graph.spec(TableName.parse(name)) for name in ("touch_event", "campaign_load"))
    assert isinstance(touches, SourceSpec)
    assert isinstance(campaigns, SourceSpec)
    landing, loads = (Path(source.connection.shown["path"]) for source in (touches, campaigns))
    return Generator(landing.parent, loads, 7)


def _wait_for_versions(settings: Settings) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if any(lag is not None for lag in _lags(settings)):
            return
        time.sleep(1.0)
    raise SystemExit(f"{TABLE} has no version after five minutes")


def _settle(settings: Settings, refreshes: int) -> None:
    """Wait until the table was refreshed so often since its freshness was changed."""
    deadline = time.monotonic() + 1_800
    while time.monotonic() < deadline:
        store = ControlStore.open(settings.control_store)
        try:
            records = store.refreshes(TableName.parse(TABLE), limit=100)
        finally:
            store.close()
        states = [record.state if record.state == "ALTERED" else record.committed for record in records]
        since = states[: states.index("ALTERED")]
        if sum(state is True for state in since) >= refreshes:
            return
        time.sleep(1.0)
    raise SystemExit(f"{TABLE} was not refreshed {refreshes} times in half an hour")


def _sample(settings: Settings, seconds: float) -> list[float]:
    found: list[float] = []
    deadline = time.monotonic() + seconds
    # Sampling the lag must not be what makes it late: declarations are read once, and no rows are counted.
    graph = open_project(settings)
    store = ControlStore.open(settings.control_store)
    try:
        while time.monotonic() < deadline:
            statuses = read_status(graph, store, Warehouse(settings.warehouse), datetime.now(UTC), counted=False)
            lags = [status.lag_seconds for status in statuses if str(status.table) == TABLE]
            found += [lag for lag in lags if lag is not None]
            time.sleep(_SAMPLE_SECONDS)
    finally:
        store.close()
    return found


def _greatest(lags: Sequence[float]) -> float:
    """The height of the teeth, in 95 of 100 of them: lag just before each refresh, where it was seen to fall."""
    peaks = sorted(lag for lag, after in pairwise(lags) if after < lag) or [max(lags)]
    return peaks[-(-95 * len(peaks) // 100) - 1]


def _lags(settings: Settings) -> list[float | None]:
    store = ControlStore.open(settings.control_store)
    try:
        statuses = read_status(open_project(settings), store, Warehouse(settings.warehouse), datetime.now(UTC))
    finally:
        store.close()
    return [status.lag_seconds for status in statuses if str(status.table) == TABLE]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freshness", nargs="*", type=int, default=[5, 30, 60, 300], help="seconds, in this order")
    parser.add_argument("--refreshes", type=int, default=5, help="refreshes before the prediction is read")
    parser.add_argument("--cycles", type=float, default=2.0, help="freshnesses for which lag is sampled")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--keep", type=Path, help="an empty folder for the project, which is kept")
    given = parser.parse_args()
    # Ended from outside, it ends its engine too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="freshline-lag-") as temporary:
        found = compare(given.keep or Path(temporary), given.freshness, given.refreshes, given.cycles)
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0 if all(one.met for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""freshline beside other ways to keep the same tables: `make bench ARGS=peers`, or this file alone with options.

Each round runs freshline and every peer once, one after the other, and the next round in the opposite order:
A B C, C B A. Between two of them that is A B B A, so load that rises or falls evenly counts for neither.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from benchmarks.peers.catalog import EARLIER, PEERS, TPCH_PEERS, earlier_peer  # noqa: E402 - by the path above
from benchmarks.peers.environment import NotRunError, provide  # noqa: E402
from benchmarks.peers.events import Sizes  # noqa: E402
from benchmarks.peers.run import OWN, Run, run_peer  # noqa: E402
from benchmarks.peers.scoreboard import Line, Spread, figures_of, steps_of, table  # noqa: E402
from benchmarks.peers.tpch import MEASURED  # noqa: E402
from benchmarks.peers.workloads import Workload, event_workload, tpch_workload  # noqa: E402
from benchmarks.tpch_tables.data import generate  # noqa: E402

Progress = Callable[[str], None]
EVENTS, TPCH = "events", "tpch"
"""The workloads by the names that the option takes."""
_PEERS = {EVENTS: tuple(PEERS), TPCH: TPCH_PEERS}


def compare_peers(
    folder: Path,
    workload: Workload,
    names: Sequence[str],
    increments: int,
    far: bool,
    pairs: int,
    progress: Progress,
    keep: bool = True,
    fresh: bool = False,
) -> list[Line]:
    """Run freshline and the named peers in `pairs` rounds; the lines of the scoreboard, freshline first.

    A peer that did not run in one round is not tried in the next one. Without `keep` the files of a run are removed
    after it, since those of all rounds can be tens of gigabytes.
    """
    runs: dict[str, list[Run | None]] = {name: [] for name in (workload.ours.name, *names)}
    whys: dict[str, str] = {}
    for number in range(pairs):
        order = [workload.ours.name, *names]
        for name in order if number % 2 == 0 else reversed(order):
            run, files = None, folder / f"{name}-{number}"
            if name not in whys:
                try:
                    run = _run(workload, name, files, increments, far, fresh, progress)
                except NotRunError as error:
                    whys[name] = str(error)
                    progress(f"{name}: {error}")
                else:
                    if run.why is not None:
                        whys[name] = run.why
                if not keep and files.exists():
                    shutil.rmtree(files)
            runs[name].append(run)
    return [_line(workload, name, runs, whys.get(name)) for name in runs]


def _run(
    workload: Workload, name: str, folder: Path, increments: int, far: bool, fresh: bool, progress: Progress
) -> Run:
    peer = workload.peer(name)
    steps, watched = steps_of(increments, far, fresh)
    python, variables = provide(peer, folder / OWN, progress)
    alone = steps[-1] if fresh else None
    return run_peer(
        peer, python, variables, folder, workload.land, workload.difference, steps, watched, progress, alone
    )


def _line(workload: Workload, name: str, runs: dict[str, list[Run | None]], why: str | None) -> Line:
    peer = workload.peer(name)
    made = [run for run in runs[name] if run is not None and run.costs]
    pairs = [(ours, run) for ours, run in zip(runs[workload.ours.name], runs[name], strict=True) if ours and run]
    figures = list(figures_of(pairs)) if pairs and peer is not workload.ours else []
    peak = Spread.of([float(run.peak_bytes) for run in made]) if made else None
    return Line(name, peer.title, peer.lines, figures, peak, why)


def main() -> int:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("--workload", choices=list(_PEERS), default=EVENTS, help="default %(default)s")
    parser.add_argument("--peers", help=f"with commas between them; default {','.join(PEERS)}, or those of tpch")
    parser.add_argument("--events", nargs="*", type=int, default=[20_000, 200_000, 2_000_000], help="of the first load")
    parser.add_argument("--scales", nargs="*", type=float, default=[0.1, 1.0], help="of tpch, 1 is a gigabyte")
    parser.add_argument(
        "--increments", type=int, default=3, help="of 1,000 events and 200 changes, or 0.1 %% of the rows; default 3"
    )
    parser.add_argument("--far", action="store_true", help="also increments 100 to 110")
    parser.add_argument("--fresh", action="store_true", help="also one more increment by a new process")
    parser.add_argument("--earlier", metavar="COMMIT", help="also beside freshline at this commit")
    parser.add_argument("--pairs", type=int, default=5, help="rounds; default %(default)s")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--folder", type=Path, help="keep the files of all runs below this one, for a look at the logs")
    given = parser.parse_args()
    names = list(_PEERS[given.workload]) if given.peers is None else [name for name in given.peers.split(",") if name]
    if unknown := [name for name in names if name not in _PEERS[given.workload]]:
        parser.error(
            f"{given.workload} has no such peer: {', '.join(unknown)}; it has {', '.join(_PEERS[given.workload])}"
        )
    if given.earlier:
        names.append(EARLIER)
    figures = {}
    with tempfile.TemporaryDirectory(prefix="freshline-peers-") as scratch:
        for key, title, workload in _workloads(given, Path(scratch)):
            folder = Path(given.folder or scratch) / key.replace(" ", "-")
            keep = given.folder is not None
            if given.earlier:
                earlier = earlier_peer(workload.ours, given.earlier)
                workload = replace(workload, peers={**workload.peers, EARLIER: earlier})
            lines = compare_peers(
                folder, workload, names, given.increments, given.far, given.pairs, _progress, keep, given.fresh
            )
            print(f"\n{title}, {given.pairs} pairs\n\n{table(lines)}", flush=True)
            figures[key] = [asdict(line) for line in lines]
    if given.json:
        found = {"at": datetime.now(UTC).isoformat(), "pairs": given.pairs, given.workload: figures}
        given.json.write_text(json.dumps(found, indent=1))
    return 0


def _workloads(given: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, str, Workload]]:
    """The measurements, one after the other: the key of its figures, a title, and the workload."""
    if given.workload == EVENTS:
        for events in given.events:
            sizes = Sizes(events, events // 10)
            yield str(events), f"{events:,} events, {sizes.customers:,} customers", event_workload(sizes)
        return
    for scale in given.scales:
        made = scratch / f"tpch-{scale:g}"
        generate(made, scale)
        for shape in MEASURED:
            yield f"{scale:g} {shape.name}", f"TPC-H at scale {scale:g}, {shape.name}", tpch_workload(shape, made)


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

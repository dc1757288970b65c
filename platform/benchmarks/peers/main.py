"""freshline beside other ways to keep the same tables: `make bench ARGS=peers`, or this file alone with options.

Each round runs freshline and every peer once, one after the other, and the next round in the opposite order:
A B C, C B A. Between two of them that is A B B A, so load that rises or falls evenly counts for neither.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from benchmarks.peers.answers import TABLES, Answers  # noqa: E402 - by the path above
from benchmarks.peers.catalog import FRESHLINE, PEERS  # noqa: E402
from benchmarks.peers.environment import NotRunError, provide  # noqa: E402
from benchmarks.peers.events import Sizes, land  # noqa: E402
from benchmarks.peers.run import OWN, Run, run_peer  # noqa: E402
from benchmarks.peers.scoreboard import Line, Spread, figures_of, steps_of, table  # noqa: E402

Progress = Callable[[str], None]


def compare_peers(
    folder: Path, names: Sequence[str], sizes: Sizes, increments: int, far: bool, pairs: int, progress: Progress
) -> list[Line]:
    """Run freshline and the named peers in `pairs` rounds; the lines of the scoreboard, freshline first.

    A peer that did not run in one round is not tried in the next one.
    """
    runs: dict[str, list[Run | None]] = {name: [] for name in (FRESHLINE.name, *names)}
    whys: dict[str, str] = {}
    for number in range(pairs):
        order = [FRESHLINE.name, *names]
        for name in order if number % 2 == 0 else reversed(order):
            run = None
            if name not in whys:
                try:
                    run = _run(name, folder / f"{name}-{number}", sizes, increments, far, progress)
                except NotRunError as error:
                    whys[name] = str(error)
                    progress(f"{name}: {error}")
                else:
                    if run.why is not None:
                        whys[name] = run.why
            runs[name].append(run)
    return [_line(name, runs, whys.get(name)) for name in runs]


def _run(name: str, folder: Path, sizes: Sizes, increments: int, far: bool, progress: Progress) -> Run:
    peer = FRESHLINE if name == FRESHLINE.name else PEERS[name]
    steps, watched = steps_of(increments, far)
    python, variables = provide(peer, folder / OWN, progress)
    return run_peer(
        peer,
        python,
        variables,
        folder,
        lambda landing, step: land(landing, sizes, step),
        _difference,
        steps,
        watched,
        progress,
    )


def _difference(landing: Path, read: Callable[[str], object]) -> str | None:
    """Which table of a peer is wrong, and by how many rows; None if none is."""
    with Answers(landing) as answers:
        for name in TABLES:
            try:
                found = read(name)
            except (OSError, ValueError, KeyError) as error:
                return f"{name} cannot be read: {error}"
            if (difference := answers.difference(name, found)) is not None:
                return difference
    return None


def _line(name: str, runs: dict[str, list[Run | None]], why: str | None) -> Line:
    peer = FRESHLINE if name == FRESHLINE.name else PEERS[name]
    made = [run for run in runs[name] if run is not None and run.costs]
    pairs = [(ours, run) for ours, run in zip(runs[FRESHLINE.name], runs[name], strict=True) if ours and run]
    figures = list(figures_of(pairs)) if pairs and peer is not FRESHLINE else []
    peak = Spread.of([float(run.peak_bytes) for run in made]) if made else None
    return Line(name, peer.title, peer.lines, figures, peak, why)


def main() -> int:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument(
        "--peers",
        default=",".join(PEERS),
        help="with commas between them; default %(default)s",
        type=partial(_names, parser),
    )
    parser.add_argument("--events", nargs="*", type=int, default=[20_000, 200_000, 2_000_000], help="of the first load")
    parser.add_argument("--increments", type=int, default=3, help="of 1,000 events and 200 changes; default 3")
    parser.add_argument("--far", action="store_true", help="also increments 100 to 110")
    parser.add_argument("--pairs", type=int, default=5, help="rounds; default %(default)s")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--folder", type=Path, help="keep the files of all runs below this one, for a look at the logs")
    given = parser.parse_args()
    names = given.peers if isinstance(given.peers, list) else _names(parser, given.peers)
    figures = {}
    for events in given.events:
        sizes = Sizes(events, events // 10)
        with tempfile.TemporaryDirectory(prefix="freshline-peers-") as scratch:
            folder = Path(given.folder or scratch) / str(events)
            lines = compare_peers(folder, names, sizes, given.increments, given.far, given.pairs, _progress)
        print(f"\n{events:,} events, {sizes.customers:,} customers, {given.pairs} pairs\n\n{table(lines)}", flush=True)
        figures[str(events)] = [asdict(line) for line in lines]
    if given.json:
        found = {"at": datetime.now(UTC).isoformat(), "pairs": given.pairs, "events": figures}
        given.json.write_text(json.dumps(found, indent=1))
    return 0


def _names(parser: argparse.ArgumentParser, text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    return names


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

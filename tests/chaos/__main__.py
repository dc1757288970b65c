"""`make chaos SEED=n MINUTES=m`: attack a living project, and compare everything that it has with what was sent.

The exit code is 0 only if nothing was wrong. After a failure the folder of the run has the schedule, the logs and the
tables; `--schedule FILE` runs a schedule again, and `--without 3.1,4.0` leaves acts out. Each run begins with the cases
of `tests/chaos/cases`, which were found before.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, dropwhile
from pathlib import Path
from types import FrameType
from typing import Any

from tests.chaos import schedule
from tests.chaos.disk import enter_namespace
from tests.chaos.faults import FAULTS, WORK, describe, strike
from tests.chaos.figures import Figures, look
from tests.chaos.promise import is_beside, summary
from tests.chaos.schedule import Kind, Round
from tests.chaos.smaller import permanent_rounds
from tests.chaos.world import Options, World
from tests.postgres import find_programs, running_server

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "build" / "chaos"


def main(given: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if given is None else given)
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the schedule and of the data; a new one without it")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults go on")
    parser.add_argument("--faults", type=int, default=None, help="end after so many faults")
    parser.add_argument("--folder", type=Path, default=None, help="of the run; one that is there goes on")
    parser.add_argument("--schedule", type=Path, default=None, help="run this schedule instead of one of the seed")
    parser.add_argument("--without", default="", help="ids of acts to leave out, with commas")
    parser.add_argument("--only", default="", help="kinds of faults, with commas; all without it")
    parser.add_argument("--no-kafka", action="store_true", help="without a broker and its tables")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default=None, help="the control store")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two rounds, for a soak")
    parser.add_argument(
        "--together", type=int, default=schedule.FAULTS_IN_A_ROUND, help="faults between two comparisons"
    )
    parser.add_argument("--every", type=float, default=1.5, help="seconds between two files")
    parser.add_argument("--code", type=Path, default=None, help="a folder with another freshline, for planted bugs")
    options = parser.parse_args(arguments)
    enter_namespace(arguments)
    seed = random.SystemRandom().randrange(100_000) if options.seed is None else options.seed
    folder = options.folder or RUNS / f"{time.strftime('%m%d-%H%M%S')}-seed-{seed}"
    signal.signal(signal.SIGTERM, _terminated)
    with ExitStack() as stack:
        postgres = None
        programs = find_programs()
        if options.store == "postgres" or (options.store is None and seed % 2 and programs is not None):
            if programs is None:
                parser.error("Postgres is not installed (on Debian: apt-get install postgresql)")
            if (folder / "sent.jsonl").exists():
                parser.error("a run on Postgres does not go on, since its server has ended with it")
            postgres = stack.enter_context(running_server(programs))
        report = Report(seed, folder)
        world = World(
            Options(
                seed,
                folder.absolute(),
                kafka=not options.no_kafka,
                postgres=postgres,
                every_seconds=options.every,
                code=options.code,
            ),
            report.say,
        )
        stack.callback(world.disk.close)
        only = {name for name in options.only.split(",") if name}
        if unknown := only - set(FAULTS):
            parser.error(f"no such faults: {', '.join(sorted(unknown))}")
        return run(world, report, options, only)


def run(world: World, report: Report, options: argparse.Namespace, only: set[str]) -> int:
    """One run, from the making of the project to the report; the exit code."""
    lacking = {fault.kind: why for fault in FAULTS.values() if (why := fault.lacks(world))}
    kinds = [
        Kind(fault.kind, fault.weight, fault.seconds)
        for fault in FAULTS.values()
        if fault.kind not in lacking and (not only or fault.kind in only)
    ]
    rounds: Iterable[Round] = schedule.draw(world.options.seed, kinds, world.tables, faults=options.together)
    kept = world.options.folder / "schedule.jsonl"
    done = schedule.from_json(kept.read_text(encoding="utf-8")) if kept.exists() else []
    if options.schedule is not None:
        rounds = schedule.from_json(options.schedule.read_text(encoding="utf-8"))
    elif done:
        last = max(each.number for each in done)
        rounds = dropwhile(lambda each: each.number <= last, rounds)
    elif not only:
        rounds = chain(permanent_rounds(), rounds)
    left_out = frozenset(name for name in options.without.split(",") if name)
    world.say(f"seed {world.options.seed}, in {world.options.folder}")
    try:
        world.open()
        world.observer.start()
        world.lander.start()
        world.lander.go_on()
        deadline = time.monotonic() + 60 * options.minutes
        began_faults = time.monotonic()
        figures = Figures(world.options.folder / "figures.jsonl")
        before_this = figures.seconds
        for each in rounds:
            (each,) = schedule.without([each], left_out | {act.id for act in each.acts if act.kind in lacking})
            if not each.acts:
                continue
            done.append(each)
            kept.write_text(schedule.to_json(done), encoding="utf-8")
            play(world, report, each)
            figures.keep(before_this + time.monotonic() - began_faults, look(world.parts, world.state))
            report.line(world, each, time.monotonic() - began_faults)
            report.keep(world, lacking)
            if not world.problems:
                world.standing_still(options.pause)
            enough = options.faults is not None and report.faults.total() >= options.faults
            if world.problems or enough or time.monotonic() > deadline:
                break
        verify(world)
    except KeyboardInterrupt:
        world.say("interrupted")
    finally:
        world.close()
    report.end(world, lacking)
    if world.problems:
        world.say(f"the tables and logs: {world.keep()}")
        return 1
    return 0


def play(world: World, report: Report, each: Round) -> None:
    """The acts of a round, and then everything healed and checked."""
    only_beside = True
    for act in each.acts:
        began = time.time()
        world.say(describe(act))
        if act.kind in WORK:
            time.sleep(act.after)
            WORK[act.kind](world, act)
            report.work[act.kind] += 1
        else:
            if act.point in schedule.POINTS_OF_QUARANTINE:
                for source in ("event", "plain"):
                    world.deliver(source, broken=True)
            strike(world, act, FAULTS[act.kind])
            report.faults[act.kind] += 1
            # The parts that were attacked before in this round are still on their way back.
            only_beside = only_beside and is_beside(act.kind, act.arguments)
            if only_beside:
                world.observer.promise.attacked(began, time.time())
    report.healed.append(world.heal())


def verify(world: World) -> None:
    """Ask freshline itself too, at the end."""
    answer = world.commands.run("verify", "--json")
    if answer.code != 0:
        world.complain(f"freshline verify: {answer.out[-1500:]} {answer.err[-500:]}")


class Report:
    """The lines that a run prints while it goes on, and its results in the end."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.faults: Counter[str] = Counter()
        self.work: Counter[str] = Counter()
        self.healed: list[float] = []
        self.began = time.monotonic()
        self.file = folder / "report.json"
        # The report of the runs that this one goes on from.
        self.before: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {}

    def say(self, sentence: str) -> None:
        line = f"{time.monotonic() - self.began:7.1f} {sentence}"
        print(line, flush=True)
        with (self.folder / "chaos.log").open("a", encoding="utf-8") as log:
            log.write(line + "\n")

    def line(self, world: World, each: Round, seconds: float) -> None:
        sent = sum(len(portion.rows) for portion in world.sent.portions)
        self.say(
            f"round {each.number} healed: {self.faults.total()} faults of {len(self.faults)} kinds in {seconds:.0f} s, "
            f"{sent} rows sent, {world.observer.looked.total()} versions seen, "
            f"{self.healed[-1]:.0f} CPU-seconds to recover"
        )

    def keep(self, world: World, lacking: Mapping[str, str]) -> dict[str, Any]:
        """Keep what was reached so far as JSON, with that of the runs which this one goes on from; it is returned."""
        world.keep_known()
        told = {
            "seed": self.seed,
            "runs": self.before.get("runs", 0) + 1,
            "seconds": self.before.get("seconds", 0) + round(time.monotonic() - self.began),
            "problems": [*self.before.get("problems", []), *world.problems],
            "faults": self._all("faults", self.faults),
            "work": self._all("work", self.work),
            "counts": self._all("counts", world.counts),
            "not_tried": dict(lacking),
            "points_passed": dict(world.passed()),
            "versions_seen": self._all("versions_seen", world.observer.looked),
            "versions_not_read": self._all("versions_not_read", world.observer.unread),
            "versions_of_lost_inputs": self._all("versions_of_lost_inputs", world.observer.lost),
            "seconds_while_others_are_attacked": {
                name: summary(lags) for name, lags in world.observer.promise.lags().items()
            },
            "trouble": world.observer.trouble,
            "rows_sent": sum(len(portion.rows) for portion in world.sent.portions),
            "commands": sum(1 for _ in (self.folder / "commands.jsonl").open(encoding="utf-8")),
            "cpu_seconds": self.before.get("cpu_seconds", 0) + round(world.parts.cpu_seconds()),
            "figures": {
                name: vars(slope) for name, (_, _, slope) in Figures(self.folder / "figures.jsonl").slopes().items()
            },
            "recovery_cpu_seconds": [
                *self.before.get("recovery_cpu_seconds", []),
                *(round(each, 1) for each in self.healed),
            ],
        }
        self.file.write_text(json.dumps(told, indent=1, ensure_ascii=False), encoding="utf-8")
        return told

    def _all(self, name: str, here: Counter[str]) -> dict[str, int]:
        return dict(Counter(self.before.get(name, {})) + here)

    def end(self, world: World, lacking: Mapping[str, str]) -> None:
        """Keep what was reached, and say it."""
        told = self.keep(world, lacking)
        if told["runs"] > 1:
            faults, versions = told["faults"], sum(told["versions_seen"].values())
            self.say(
                f"run {told['runs']}, {told['seconds'] / 3600:.1f} hours in all: {sum(faults.values())} faults of "
                f"{len(faults)} kinds, {versions} versions, {len(told['problems'])} problems; of this run:"
            )
        passed = told["points_passed"]
        self.say(
            f"{self.faults.total()} faults of {len(self.faults)} kinds, {self.work.total()} other acts, "
            f"{told['commands']} commands"
        )
        self.say(
            f"{world.observer.looked.total()} versions of {len(world.tables)} tables were compared, "
            f"{world.observer.unread.total()} could not be read"
        )
        killed = {name: n for name, n in world.counts.items() if name.startswith(("killed", "stopped"))}
        self.say(f"by part: {', '.join(f'{name} {n}' for name, n in sorted(killed.items())) or 'nothing killed'}")
        self.say(
            f"points: {world.counts['points reached']} of {world.counts['points asked for']} were reached in time; "
            f"{len(passed)} kinds passed"
        )
        if self.healed:
            self.say(
                f"recovery: {sorted(self.healed)[len(self.healed) // 2]:.0f} CPU-seconds, most {max(self.healed):.0f}"
            )
        for name, lags in told["seconds_while_others_are_attacked"].items():
            if lags:
                words = ", ".join(f"{kind} {value}" for kind, value in lags.items())
                self.say(
                    f"seconds until {name} (freshness 5 s) had a portion, while only others were attacked: {words}"
                )
        slopes = Figures(self.folder / "figures.jsonl").slopes()
        for name, (first, last, slope) in sorted(slopes.items()):
            if slope.rises:
                change = f"{slope.per_hour:+,.0f} an hour, error {slope.error:,.0f}"
                self.say(f"rises: {name}: {first:,.0f} to {last:,.0f}, {change}")
        for why, kinds in _grouped(lacking).items():
            self.say(f"not tried, because {why}: {', '.join(kinds)}")
        self.say(f"{len(world.problems)} problems" if world.problems else "nothing was wrong")


def _grouped(lacking: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, why in lacking.items():
        found.setdefault(why, []).append(kind)
    return found


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

"""Make a schedule that fails smaller: acts are left out as long as what is left fails too.

`python -m tests.chaos.smaller build/chaos/RUN`: the result is `smaller.jsonl` in the folder of the run. A case of the
permanent list, which every run begins with, is such a file in `tests/chaos/cases`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.chaos.schedule import Round, from_json, to_json, without

CASES = Path(__file__).with_name("cases")


def permanent_rounds() -> list[Round]:
    """The rounds of the permanent list. Cases of one round share one, since a heal between them costs half a minute."""
    cases = [from_json(file.read_text(encoding="utf-8")) for file in sorted(CASES.glob("*.jsonl"))]
    short = Round(-1, tuple(act for case in cases if len(case) == 1 for act in case[0].acts))
    return [*([short] if short.acts else []), *(each for case in cases if len(case) > 1 for each in case)]


def make_smaller(rounds: Sequence[Round], fails: Callable[[Sequence[Round]], bool]) -> list[Round]:
    """A part of the rounds that still fails and from which no act can be left out alone.

    Halves are tried before single acts: most acts have nothing to do with a failure.
    """
    kept = [each for each in rounds if each.acts]
    size = max(1, sum(len(each.acts) for each in kept) // 2)
    while True:
        names = [act.id for each in kept for act in each.acts]
        found = None
        for start in range(0, len(names), size):
            left_out = frozenset(names[start : start + size])
            smaller = [each for each in without(kept, left_out) if each.acts]
            if smaller and fails(smaller):
                found = smaller
                break
        if found is not None:
            kept = found
        elif size == 1:
            return kept
        else:
            size = max(1, size // 2)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.smaller", description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a run that failed")
    parser.add_argument("--tries", type=int, default=2, help="how often a part is run before it counts as passing")
    options = parser.parse_args(given)
    report = json.loads((options.run / "report.json").read_text(encoding="utf-8"))
    rounds = from_json((options.run / "schedule.jsonl").read_text(encoding="utf-8"))

    def fails(some: Sequence[Round]) -> bool:
        with tempfile.TemporaryDirectory(prefix="freshline-smaller-") as name:
            file = Path(name) / "schedule.jsonl"
            file.write_text(to_json(some), encoding="utf-8")
            for number in range(options.tries):
                line = [sys.executable, "-m", "tests.chaos", "--seed", str(report["seed"]), "--schedule", str(file)]
                line += ["--folder", str(Path(name) / f"run-{number}"), "--minutes", "60"]
                code = subprocess.run(line, capture_output=True, check=False).returncode
                print(f"{sum(len(each.acts) for each in some)} acts: {'fail' if code else 'pass'}", flush=True)
                if code:
                    return True
        return False

    smaller = make_smaller(rounds, fails)
    (options.run / "smaller.jsonl").write_text(to_json(smaller), encoding="utf-8")
    print(f"{sum(len(each.acts) for each in smaller)} acts are left: {options.run / 'smaller.jsonl'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The schedule of a run: a function of its seed alone, so that it can be run again, and with acts left out.

A run is a series of rounds. In each, work and faults follow each other, and then everything is healed and checked.
Kinds of faults are dealt from a shuffled deck, so that a short run has many kinds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# The named points of a refresh at which a fault may happen, by how often a run passes them.
POINTS = (
    "log-before-commit",
    "log-before-commit",
    "log-after-commit",
    "log-after-commit",
    "log-writing",
    "log-after-flush",
    "log-before-quarantine",
    "log-after-quarantine",
    "table-pinned",
    "table-pinned",
    "table-before-commit",
    "table-before-commit",
    "table-writing",
    "table-writing",
    "table-after-commit",
    "table-after-commit",
    "maintenance-compacted",
)
# A fault for which the moment in a refresh is of interest.
AT_POINTS = frozenset(
    {
        "kill-engine",
        "kill-jvm",
        "kill-engine-and-jvm",
        "kill-worker",
        "kill-everything",
        "stop-engine",
        "stop-jvm",
        "disk-full",
        "read-only-tables",
        "store-locked",
        "store-gone",
        "clock-moved",
        "postgres-restarted",
        "postgres-away",
        "kill-broker",
        "log-short",
        "folder-renamed",
        "second-engine",
    }
)
# In the middle of a write nobody can check any more whether the folder is there. Only an act at a point makes that
# instant long.
NOT_WHILE_WRITING = frozenset({"folder-renamed"})
# A second engine is of interest only beside the first one at work, and best in the middle of a write.
ALWAYS_AT_POINTS = {
    "second-engine": ("log-writing", "table-writing", "log-before-commit", "table-before-commit"),
    "kill-in-quarantine": ("log-before-quarantine", "log-after-quarantine", "log-after-quarantine"),
}
RESTORE_POINTS = ("savepoint-read", "restore-begun", "restore-table", "restore-table", "restore-done")
POINTS_OF_QUARANTINE = frozenset({"log-before-quarantine", "log-after-quarantine"})
WORK_KINDS = (
    "refresh",
    "refresh",
    "freshness",
    "reset",
    "savepoint",
    "restore",
    "sql",
    "command",
    "redeclare",
    "backfill",
    "materialize",
    "batches",
)
FAULTS_IN_A_ROUND = 3


@dataclass(frozen=True)
class Act:
    """One thing that happens. With `point`, when the engine passes that point for the `passing`-th time from now on.

    `after` are the seconds before it happens otherwise, `stands` those after which the fault is taken back; 0 for one
    that is taken back with the round.
    """

    id: str
    kind: str
    point: str = ""
    passing: int = 1
    after: float = 0.0
    stands: float = 0.0
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "arguments": dict(self.arguments)}


@dataclass(frozen=True)
class Round:
    """Acts in their order, after which everything is healed."""

    number: int
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Kind:
    """The facts of a kind of fault that the schedule needs."""

    name: str
    weight: int
    seconds: tuple[float, float]


def draw(
    seed: int, kinds: Sequence[Kind], tables: Sequence[str], *, faults: int = FAULTS_IN_A_ROUND
) -> Iterator[Round]:
    """The rounds of a seed, without an end. `kinds` are those that can be tried here, `faults` how many a round has."""
    deck: list[Kind] = []
    number = 0
    while True:
        chance = random.Random(f"{seed}/{number}")
        acts: list[Act] = []
        for place in range(faults):
            if not deck:
                deck = [kind for kind in kinds for _ in range(kind.weight)]
                chance.shuffle(deck)
            if place == 0 or chance.random() < 0.3:
                acts.append(_work(chance, f"{number}.{len(acts)}", number, tables))
            acts.append(_fault(chance, f"{number}.{len(acts)}", deck.pop(), tables))
        yield Round(number, tuple(acts))
        number += 1


def _fault(chance: random.Random, name: str, kind: Kind, tables: Sequence[str]) -> Act:
    point, passing = "", 1
    if kind.name in ALWAYS_AT_POINTS:
        point = chance.choice(ALWAYS_AT_POINTS[kind.name])
    elif kind.name in AT_POINTS and chance.random() < 0.6:
        points = [each for each in POINTS if kind.name not in NOT_WHILE_WRITING or not each.endswith("-writing")]
        point, passing = chance.choice(points), chance.choice((1, 1, 2, 3))
    stands = chance.uniform(*kind.seconds) if kind.seconds[1] else 0.0
    arguments: dict[str, Any] = {}
    if kind.name == "clock-moved":
        arguments["seconds"] = chance.choice((-1, 1)) * chance.choice((3, 40, 3_700, 90_000, 400 * 86_400))
    elif kind.name.startswith("log-short"):
        arguments = {"table": chance.choice(tables), "newest": kind.name == "log-short-at-rest"}
    elif kind.name == "kill-in-restore":
        arguments = {"point": chance.choice(RESTORE_POINTS), "passing": chance.choice((1, 2, 5))}
    elif kind.name == "read-only-tables":
        arguments["tables"] = chance.sample(list(tables), 3)
    return Act(name, kind.name, point, passing, round(chance.uniform(0.0, 4.0), 2), round(stands, 2), arguments)


def _work(chance: random.Random, name: str, number: int, tables: Sequence[str]) -> Act:
    kind = chance.choice(WORK_KINDS)
    arguments: dict[str, Any] = {}
    derived = [table for table in tables if table not in ("event", "plain", "paid")]
    if kind == "refresh":
        arguments["arguments"] = chance.choice(
            (
                [],
                [chance.choice(tables)],
                ["--full", chance.choice([table for table in derived if table not in ("found", "per_minute")])],
                ["daily", "--partition", f"day=2026-01-0{chance.randrange(1, 3)}"],
            )
        )
    elif kind in ("freshness", "reset"):
        arguments["table"] = chance.choice(derived)
        if kind == "freshness":
            arguments["freshness"] = chance.choice(("2 seconds", "10 seconds", "90 seconds", "20 minutes", "1 day"))
    elif kind == "batches":
        arguments["count"] = chance.randrange(3, 24)
    elif kind == "redeclare":
        arguments["factor"] = chance.randrange(2, 100)
    elif kind == "backfill":
        table = chance.choice(("monthly", "archived"))
        arguments["arguments"] = [table, "--from", "2025-12-01", "--to", "2026-02-01", "--again"]
    elif kind == "materialize":
        arguments["tables"] = chance.sample(derived, 2)
    elif kind == "savepoint":
        arguments["name"] = f"s{number}"
    elif kind == "restore":
        arguments["name"] = f"s{max(0, number - chance.randrange(1, 6))}"
    elif kind == "sql":
        arguments["statement"] = chance.choice(
            (
                f"SELECT count(*) AS n FROM {chance.choice(tables)}",
                f"ALTER MATERIALIZED TABLE {chance.choice(derived)} SUSPEND FOR INTERVAL '3' SECOND",
                "SHOW MATERIALIZED TABLES",
                f"DESCRIBE EXTENDED {chance.choice(tables)}",
                f"EXPLAIN MATERIALIZED TABLE {chance.choice(derived)}",
            )
        )
    else:
        arguments["arguments"] = chance.choice(
            (
                ["status", "--json"],
                ["plan", "--json"],
                ["doctor", "--json"],
                ["snapshot", "--json"],
                ["verify", "--json", chance.choice(derived)],
                ["tick", "--json"],
                ["alerts", "--json"],
                ["engine", "stop", "--json"],
            )
        )
    return Act(name, kind, after=round(chance.uniform(0.0, 2.0), 2), arguments=arguments)


def without(rounds: Sequence[Round], left_out: frozenset[str]) -> list[Round]:
    """The same rounds without some acts."""
    return [Round(each.number, tuple(act for act in each.acts if act.id not in left_out)) for each in rounds]


def to_json(rounds: Sequence[Round]) -> str:
    """Rounds as a file, an act a line."""
    lines = [json.dumps({"round": each.number, "acts": [act.as_json() for act in each.acts]}) for each in rounds]
    return "\n".join(lines) + "\n"


def from_json(text: str) -> list[Round]:
    """Rounds of a file. Raises ValueError for a file that is none."""
    found = []
    for line in text.splitlines():
        value = json.loads(line)
        found.append(Round(value["round"], tuple(Act(**act) for act in value["acts"])))
    return found

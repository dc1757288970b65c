"""The faults and the work of a run, each a function of the world and of an act of the schedule.

A fault that stands pushes its end to `world.standing`; it is taken back by `heal`, or by the fault itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from tests.chaos import storage
from tests.chaos.schedule import Act
from tests.chaos.world import World

Begin = Callable[[World, Act], object]


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `weight` is how often it is in a deck; `lacks` says why it cannot be tried here."""

    kind: str
    weight: int
    begin: Begin
    kills: tuple[str, ...] = ()
    lacks: Callable[[World], str] = lambda world: ""
    seconds: tuple[float, float] = (0.0, 0.0)


def strike(world: World, act: Act, fault: Fault) -> None:
    """Wait for the moment of an act, and let its fault happen there."""
    held = False
    if act.point:
        held = world.hold_at(act.point, act.passing)
    else:
        time.sleep(act.after)
    try:
        fault.begin(world, act)
    finally:
        if held:
            world.let_go()
    if act.stands:
        time.sleep(act.stands)
        world.standing.close()
        world.standing = ExitStack()
        world.parts.go_on()


def _kill(*roles: str) -> Begin:
    def begin(world: World, act: Act) -> None:
        hit = world.parts.signal(roles, signal.SIGKILL)
        for role in hit:
            world.counts[f"killed {role}"] += 1
        if "jvm" in roles and "jvm" in hit and act.point:
            world.counts["killed jvm at work"] += 1

    return begin


def _kill_broker(world: World, act: Act) -> None:
    assert world.broker is not None
    world.broker.kill()
    world.counts["killed broker"] += 1
    world.standing.callback(world.broker.start)


def _kill_command(world: World, act: Act) -> None:
    arguments = ("refresh", "--json")
    asked = world.commands.start(*arguments)
    time.sleep(act.after)
    asked.kill()
    world.commands.finish(arguments, asked)
    world.counts["killed command"] += 1


def _stop(*roles: str) -> Begin:
    def begin(world: World, act: Act) -> None:
        for role in world.parts.signal(roles, signal.SIGSTOP):
            world.counts[f"stopped {role}"] += 1

    return begin


def _second_engine(world: World, act: Act) -> None:
    """Another engine takes the warehouse while the first one is stopped; what the first then writes must be fenced."""
    warehouse = world.state / "warehouse"
    # Running, it would notice within seconds that the warehouse has another holder, and end.
    world.parts.signal(["engine", "jvm"], signal.SIGSTOP)
    for file in (warehouse / "_freshline_engine.lock", warehouse / "_freshline_engine.json"):
        file.unlink(missing_ok=True)
    (world.state / "engine.json").unlink(missing_ok=True)
    world.commands.run("refresh", "--json")
    world.let_go()
    world.parts.go_on()
    world.counts["engines beside each other"] += 1


def _save_and_go_on(world: World, name: str) -> None:
    """A savepoint, and data after it that a restore takes back and refreshes bring again."""
    world.commands.run("savepoint", "create", name, "--json")
    for source in ("event", "plain", "paid"):
        world.deliver(source, broken=True)
    world.commands.run("refresh", "--json")


def _restored(world: World, act: Act) -> None:
    name = f"restored_{act.id.replace('.', '_')}"
    _save_and_go_on(world, name)
    world.restore(name)
    world.counts["restored"] += 1


def _killed_in_restore(world: World, act: Act) -> None:
    name = f"killed_{act.id.replace('.', '_')}"
    point, passing = act.arguments["point"], act.arguments["passing"]
    if point != "savepoint-read":
        _save_and_go_on(world, name)
    arguments = ("savepoint", "create" if point == "savepoint-read" else "restore", name, "--json")
    asked = world.commands.start(*arguments)
    world.hold_at(point, 1 if point != "restore-table" else passing)
    for role in world.parts.signal(("engine", "jvm"), signal.SIGKILL):
        world.counts[f"killed {role}"] += 1
    world.let_go()
    world.commands.finish(arguments, asked)


def _ask_meanwhile(world: World) -> None:
    """Refresh while the fault stands, for an answer with a documented code. An engine that waits could not answer."""
    if not (world.points / "armed").exists():
        world.deliver("event")
        world.commands.run("refresh", "--json")


def _disk_full(world: World, act: Act) -> None:
    world.disk.fill()
    world.standing.callback(world.disk.free)
    _ask_meanwhile(world)


def _read_only(world: World, act: Act) -> None:
    for name in act.arguments["tables"]:
        table = world.state / "warehouse" / name
        if table.exists():
            world.disk.refuse_writes(table)
    world.standing.callback(world.disk.allow_writes)
    _ask_meanwhile(world)


def _read_only_state(world: World, act: Act) -> None:
    world.disk.refuse_writes(world.state)
    world.standing.callback(world.disk.allow_writes)


def _store_locked(world: World, act: Act) -> None:
    world.standing.callback(world.lock_store())
    # As a person asks, who reads the error and not its JSON.
    world.commands.run("alerts")


def _store_gone(world: World, act: Act) -> None:
    for file in world.state.glob("control.db*"):
        file.unlink()


def _store_garbage(world: World, act: Act) -> None:
    # As a person does with a damaged store: end what has it open, move it away, start again.
    store = world.control_store()
    if not store.exists():
        return
    store.write_bytes(os.urandom(8192))
    world.commands.run("alerts")

    def heal() -> None:
        world.commands.run("down")
        for file in world.state.glob("control.db*"):
            # The folder of the run is on another file system.
            shutil.move(file, world.options.folder / f"damaged-{time.monotonic_ns()}-{file.name}")

    world.standing.callback(heal)


def _postgres_restarted(world: World, act: Act) -> None:
    server = world.options.postgres
    assert server is not None
    server.stop()
    server.start()


def _postgres_away(world: World, act: Act) -> None:
    server = world.options.postgres
    assert server is not None
    server.stop()
    world.standing.callback(server.start)


def _log_short(world: World, act: Act) -> None:
    table = world.state / "warehouse" / act.arguments["table"]
    found = storage.versions(table)
    if len(found) < 3:
        return
    version = found[-1] if act.arguments["newest"] else found[len(found) // 2]
    file = table / "_delta_log" / f"{version:020d}.json"
    aside = world.options.folder / f"aside-{time.monotonic_ns()}.json"
    with world.observer.lock:
        # The copy is on another file system.
        aside.write_bytes(file.read_bytes())
        if act.arguments["newest"]:
            world.observer.forget(act.arguments["table"], version)
        file.unlink()

    def back() -> None:
        # An engine may have committed this version anew, and then that one is the table's.
        with world.observer.lock, suppress(FileExistsError), file.open("xb") as again:
            again.write(aside.read_bytes())

    # The newest commit is not taken away under an engine that may write its number again: that is not a fault that
    # comes and goes but another history.
    world.standing.callback(back)


def _log_short_at_rest(world: World, act: Act) -> None:
    # The loss of a commit that nobody has read yet is none.
    world.lander.pause()
    world.deliver("event")
    world.commands.run("refresh", "--json")
    # This one finds nothing new, and notes of each table that it has read everything: of the commit that goes.
    world.commands.run("refresh", "--json")
    world.parts.signal(["engine", "jvm"], signal.SIGKILL)
    world.counts["killed engine"] += 1
    _log_short(world, act)
    world.lander.go_on()
    # The next engine gives the version and its number to other rows, and goes on from there.
    for _ in range(2):
        world.deliver("event")
        world.commands.run("refresh", "--json")


def _clock(world: World, act: Act) -> None:
    world.clock.move(float(act.arguments["seconds"]))
    world.standing.callback(world.clock.move, 0.0)


def _renamed(world: World, act: Act) -> None:
    world.move(away=True)
    world.standing.callback(world.move, away=False)


def _caches_lost(world: World, act: Act) -> None:
    for name in ("cache", "keys", "java"):
        subprocess.run(["rm", "-rf", str(world.state / name)], check=True)


def _odd_files(world: World, act: Act) -> None:
    for number in range(3):
        world.deliver(("event", "plain")[number % 2], odd=True)


def _broken_records(world: World, act: Act) -> None:
    for source in ("event", "plain", "paid"):
        world.deliver(source, broken=True)


def _again(world: World, act: Act) -> None:
    for source in ("event", "paid"):
        world.deliver(source, again=True)


def _no_disk(world: World) -> str:
    return "" if world.disk.real else "the disk of the project is a plain folder (root, loop devices, mkfs.ext4)"


def _no_file(world: World) -> str:
    return "the control store is Postgres" if world.options.postgres is not None else ""


def _no_postgres(world: World) -> str:
    return "" if world.options.postgres is not None else "the control store is SQLite"


def _no_broker(world: World) -> str:
    return "" if world.broker is not None else "there is no broker"


def _no_clock(world: World) -> str:
    return "" if world.clock.library is not None else "there is no C compiler, or this is not Linux"


ENGINE = ("engine", "jvm", "worker")
LONG = (16.0, 20.0)
SHORT = (2.0, 6.0)
FAULTS: Mapping[str, Fault] = {
    fault.kind: fault
    for fault in (
        Fault("kill-engine", 3, _kill("engine"), kills=("engine",)),
        Fault("kill-jvm", 3, _kill("jvm"), kills=("jvm",)),
        Fault("kill-engine-and-jvm", 2, _kill(*ENGINE), kills=ENGINE),
        Fault("kill-worker", 1, _kill("worker"), kills=("worker",)),
        Fault("kill-up", 1, _kill("up"), kills=("up",)),
        Fault("kill-webserver", 1, _kill("webserver"), kills=("webserver",)),
        Fault("kill-code-server", 1, _kill("code-server"), kills=("code-server",)),
        Fault("kill-daemon", 1, _kill("daemon"), kills=("daemon",)),
        Fault("kill-watch", 1, _kill("watch"), kills=("watch",)),
        Fault("kill-command", 1, _kill_command),
        Fault(
            "kill-everything",
            1,
            _kill("engine", "jvm", "worker", "up", "webserver", "code-server", "daemon", "watch", "command"),
            kills=ENGINE,
        ),
        Fault("kill-broker", 1, _kill_broker, lacks=_no_broker, seconds=SHORT),
        Fault("stop-engine", 1, _stop("engine"), seconds=LONG),
        Fault("stop-jvm", 1, _stop("jvm"), seconds=LONG),
        Fault("stop-all", 1, _stop("engine", "jvm", "worker", "daemon", "watch"), seconds=LONG),
        Fault("stop-worker", 1, _stop("worker"), seconds=SHORT),
        Fault("kill-in-quarantine", 1, _kill("engine", "jvm"), kills=("engine", "jvm")),
        Fault("savepoint-restored", 1, _restored),
        Fault("kill-in-restore", 1, _killed_in_restore, kills=("engine", "jvm")),
        Fault("second-engine", 1, _second_engine),
        Fault("disk-full", 2, _disk_full, lacks=_no_disk, seconds=SHORT),
        Fault("read-only-tables", 1, _read_only, lacks=_no_disk, seconds=SHORT),
        Fault("read-only-state", 1, _read_only_state, lacks=_no_disk, seconds=SHORT),
        Fault("store-locked", 1, _store_locked, lacks=_no_file, seconds=SHORT),
        Fault("store-gone", 1, _store_gone, lacks=_no_file),
        Fault("store-garbage", 1, _store_garbage, lacks=_no_file, seconds=SHORT),
        Fault("postgres-restarted", 2, _postgres_restarted, lacks=_no_postgres),
        Fault("postgres-away", 1, _postgres_away, lacks=_no_postgres, seconds=SHORT),
        Fault("log-short", 1, _log_short, seconds=SHORT),
        Fault("log-short-at-rest", 1, _log_short_at_rest, seconds=SHORT),
        Fault("clock-moved", 2, _clock, lacks=_no_clock, seconds=SHORT),
        Fault("folder-renamed", 1, _renamed, seconds=SHORT),
        Fault("caches-lost", 1, _caches_lost),
        Fault("odd-file-names", 1, _odd_files),
        Fault("broken-records", 1, _broken_records),
        Fault("records-again", 1, _again),
    )
}


# -- work


def _batches(world: World, act: Act) -> None:
    """So many batches of a log, one by one, that maintenance puts its small files together."""
    world.lander.pause()
    for _ in range(act.arguments["count"]):
        world.deliver("event")
        world.commands.run("refresh", "event", "--json")
    world.lander.go_on()


def _freshness(world: World, act: Act) -> None:
    table, freshness = act.arguments["table"], act.arguments["freshness"]
    world.commands.run("alter", table, "--freshness", freshness, "--json")


def _materialize(world: World, act: Act) -> None:
    """A run of Dagster, as the button of the UI starts it; it goes on while faults happen."""
    if world.materialize(act.arguments["tables"]):
        world.counts["runs of Dagster"] += 1


WORK: Mapping[str, Begin] = {
    "batches": _batches,
    "redeclare": lambda world, act: world.redeclare(act.arguments["factor"]),
    "backfill": lambda world, act: world.commands.run("backfill", *act.arguments["arguments"], "--json"),
    "materialize": _materialize,
    "refresh": lambda world, act: world.commands.run("refresh", "--json", *act.arguments["arguments"]),
    "freshness": _freshness,
    "reset": lambda world, act: world.commands.run("alter", act.arguments["table"], "--reset", "--json"),
    "savepoint": lambda world, act: world.commands.run("savepoint", "create", act.arguments["name"], "--json"),
    "restore": lambda world, act: world.restore(act.arguments["name"]),
    "sql": lambda world, act: world.commands.run("sql", "--json", act.arguments["statement"]),
    "command": lambda world, act: world.commands.run(*act.arguments["arguments"]),
}


def describe(act: Act) -> str:
    """One line on an act."""
    at = f" at {act.point}:{act.passing}" if act.point else f" after {act.after:.1f} s"
    given: Mapping[str, Any] = act.arguments
    more = "".join(f" {key}={value}" for key, value in given.items())
    return f"{act.id} {act.kind}{at}{f' for {act.stands:.0f} s' if act.stands else ''}{more}"

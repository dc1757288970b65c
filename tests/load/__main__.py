"""`make load`: more of everything than usual. The engine lives, every row is there, other tables keep their promise.

Each load is a project of its own with an engine of its own. `make load ARGS="requests bomb"` runs some of them, and
`--scale 0.1` makes all of them smaller.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.load.project import FILES, MEGABYTE, Loaded

# The memory that the documentation promises (operations.md, Memory) of the engine's JVM with driver-memory = "2g", and
# of its Python process.
JVM_BYTES = 3_500 * MEGABYTE
ENGINE_BYTES = 1_500 * MEGABYTE
SLOW, DAY = "FRESHNESS = INTERVAL '1' MINUTE", "FRESHNESS = INTERVAL '1' DAY"
COUNT = "SELECT count(*) AS n, sum(id) AS total FROM "
Load = Callable[[Path, float], Loaded]


def land(folder: Path, name: str, lines: Sequence[str]) -> None:
    """Land one complete file."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f"_{name}"
    hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    hidden.rename(folder / name)


def expect(project: Loaded, what: str, found: object, wanted: object) -> None:
    """Keep a problem unless two values are equal."""
    if found != wanted:
        project.problems.append(f"{what}: {str(found)[:300]}, and {str(wanted)[:300]} was expected")


def source(name: str, columns: str, freshness: str = DAY) -> str:
    """A source of the files of its landing folder."""
    return f"CREATE SOURCE {name} ({columns}) {freshness} {FILES.format(path=f'landing/{name}')}"


def table(name: str, query: str, freshness: str = DAY) -> str:
    return f"CREATE MATERIALIZED TABLE {name} {freshness} AS {query}"


def tables(root: Path, scale: float) -> Loaded:
    """200 tables over 20 folders in which files arrive, for some minutes."""
    folders, each = 20, max(1, round(9 * scale))
    declarations = {}
    for number in range(folders):
        declarations[f"s{number}"] = source(f"s{number}", "id BIGINT, k STRING, n BIGINT", SLOW)
        for place in range(each):
            name = f"t{number}_{place}"
            query = f"SELECT k, count(*) AS rows, sum(n + {place}) AS total FROM s{number} GROUP BY k"
            declarations[name] = table(name, query, SLOW)
    project = Loaded(root, declarations)
    wanted: dict[int, Counter[str]] = {number: Counter() for number in range(folders)}
    totals: dict[int, Counter[str]] = {number: Counter() for number in range(folders)}
    for number in range(folders):
        (root / "landing" / f"s{number}").mkdir(parents=True)
    with project.watched() as beat:
        for portion in range(max(2, round(12 * scale))):
            for number in range(folders):
                rows = [(portion * 100 + n, f"k{n % 7}", n) for n in range(100)]
                land(
                    root / "landing" / f"s{number}",
                    f"{portion}.json",
                    [json.dumps({"id": a, "k": b, "n": c}) for a, b, c in rows],
                )
                for _, key, n in rows:
                    wanted[number][key] += 1
                    totals[number][key] += n
            time.sleep(10.0)
        project.run("refresh")
    for number in range(folders):
        for place in range(each):
            found = {
                key: (rows, total) for key, rows, total in project.rows(f"t{number}_{place}", "k", "rows", "total")
            }
            expected = {key: (n, totals[number][key] + place * n) for key, n in wanted[number].items()}
            expect(project, f"t{number}_{place}", found, expected)
    print(f"  {beat.text()}")
    return project


def declared(root: Path, scale: float) -> Loaded:
    """1,000 tables declared over 50 sources: a plan, an engine, and one refresh of all."""
    sources, each = 50, max(1, round(19 * scale))
    declarations = {}
    for number in range(sources):
        declarations[f"s{number}"] = source(f"s{number}", "id BIGINT")
        for place in range(each):
            name = f"t{number}_{place}"
            declarations[name] = table(name, f"SELECT id + {place} AS id FROM s{number}")
        land(root / "landing" / f"s{number}", "0.json", ['{"id": 1}'])
    project = Loaded(root, declarations)
    print(
        f"  plan: {project.run('plan', '--json').seconds:.1f} s; again: {project.run('plan', '--json').seconds:.1f} s"
    )
    with project.watched() as beat:
        began = time.monotonic()
        project.run("refresh")
        print(f"  refresh of {sources * (each + 1)} tables: {time.monotonic() - began:.0f} s")
        print(f"  status: {project.run('status', '--json').seconds:.1f} s")
    for number in range(sources):
        for place in range(each):
            expect(project, f"t{number}_{place}", project.rows(f"t{number}_{place}", "id"), [(1 + place,)])
    print(f"  {beat.text()}")
    return project


def requests(root: Path, scale: float) -> Loaded:
    """500 requests of programs at once, again and again."""
    project = Loaded(root, {})
    count = max(10, round(500 * scale))
    with project.watched() as beat:
        state = json.loads((root / ".freshline" / "local" / "engine.json").read_text(encoding="utf-8"))
        for _ in range(3):
            beat.wait(5)
            took = ask_at_once(int(state["http_port"]), str(state["token"]), count)
            quick = sum(1 for each in took if each is not None and each <= 5.0)
            answered = sum(1 for each in took if each is not None)
            print(f"  {quick} of {count} answered in 5 s, {answered} in 30 s")
            expect(project, "answered requests", answered, count)
    print(f"  {beat.text()}")
    return project


def ask_at_once(port: int, token: str, count: int) -> list[float | None]:
    """Ask for the status from so many connections at one moment; the seconds of each answer, None for one that failed.

    A connection that is closed without an answer is opened again, as any client would, within 30 seconds.
    """
    gate = threading.Barrier(count)
    asked = (
        f"GET /status HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    )

    def ask() -> float | None:
        gate.wait()
        began = time.monotonic()
        while time.monotonic() - began < 30.0:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=30.0) as connection:
                    connection.sendall(asked.encode())
                    if connection.recv(64).startswith(b"HTTP/1.1 200"):
                        return time.monotonic() - began
            except OSError:
                # Closed without an answer.
                pass
            time.sleep(0.1)
        return None

    with ThreadPoolExecutor(count) as threads:
        return [each.result() for each in [threads.submit(ask) for _ in range(count)]]


def files(root: Path, scale: float) -> Loaded:
    """100,000 small files at once."""
    count = max(100, round(100_000 * scale))
    project = Loaded(root, {"small": source("small", "id BIGINT"), "counted": table("counted", COUNT + "small")})
    folder = root / "landing" / "small"
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.json").write_text(f'{{"id": {number}}}\n', encoding="utf-8")
    return count_all(project, count, f"{count:,} files")


def count_all(project: Loaded, count: int, what: str) -> Loaded:
    """Refresh the table that counts ids from 0 on, of which there are so many."""
    with project.watched() as beat:
        began = time.monotonic()
        project.run("refresh", "counted")
        print(f"  {what}: {time.monotonic() - began:.0f} s")
    expect(project, "counted", project.rows("counted", "n", "total"), [(count, count * (count - 1) // 2)])
    print(f"  {beat.text()}")
    return project


def large(root: Path, scale: float) -> Loaded:
    """One file of 2 GB."""
    size, line = round(2_000 * MEGABYTE * scale), '{{"id": {0}, "text": "' + "x" * 150 + '"}}\n'
    columns = "id BIGINT, text STRING"
    project = Loaded(root, {"large": source("large", columns), "counted": table("counted", COUNT + "large")})
    (root / "landing" / "large").mkdir()
    count = written = 0
    with (root / "landing" / "_large.json").open("w", encoding="utf-8") as file:
        while written < size:
            written += file.write(line.format(count))
            count += 1
    (root / "landing" / "_large.json").rename(root / "landing" / "large" / "large.json")
    return count_all(project, count, f"{written / MEGABYTE:,.0f} MB in {count:,} rows")


def bomb(root: Path, scale: float) -> Loaded:
    """Small files that unpack to gigabytes: one record without an end, and millions of empty ones."""
    project = Loaded(root, {"bomb": source("bomb", "id BIGINT")})
    folder = root / "landing" / "bomb"
    folder.mkdir()
    block = b"x" * MEGABYTE
    with gzip.open(folder / "one.json.gz", "wb", compresslevel=1) as packed:
        for _ in range(max(10, round(4_000 * scale))):
            packed.write(block)
    rows = max(1_000, round(2_000_000 * scale))
    with gzip.open(folder / "two.json.gz", "wb", compresslevel=1) as packed:
        for number in range(rows):
            packed.write(b'{"id": %d}%s\n' % (number, b" " * 200))
    with project.watched() as beat:
        began = time.monotonic()
        answer = project.commands.run("refresh", "bomb", "--json", seconds=3_600)
        print(f"  {answer.code}, {time.monotonic() - began:.0f} s")
        expect(project, "the refresh", answer.code, 0)
    expect(project, "rows", len(project.rows("bomb", "id")), rows)
    expect(project, "quarantined", [row[0] for row in project.rows("bomb__quarantine", "error")], ["TOO_LARGE"])
    print(f"  {beat.text()}")
    return project


def key(root: Path, scale: float) -> Loaded:
    """A key with a million rows, of which some change."""
    count = max(1_000, round(1_000_000 * scale))
    declarations = {
        "row": source("row", "id BIGINT, k STRING, n BIGINT"),
        "ranked": table("ranked", "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY n, id) AS place FROM row"),
        "summed": table("summed", "SELECT k, count(*) AS rows, sum(n) AS total FROM row GROUP BY k"),
    }
    project = Loaded(root, declarations)
    folder = root / "landing" / "row"
    with project.watched() as beat:
        land(folder, "0.json", [json.dumps({"id": n, "k": "hot", "n": n}) for n in range(count)])
        began = time.monotonic()
        project.run("refresh", "ranked", "summed")
        first = time.monotonic() - began
        land(folder, "1.json", ['{"id": -1, "k": "hot", "n": -1}', '{"id": -2, "k": "cold", "n": 5}'])
        began = time.monotonic()
        project.run("refresh", "ranked", "summed")
        print(f"  {count:,} rows of one key: {first:.0f} s, and two more rows: {time.monotonic() - began:.0f} s")
    ranked = {identity: (k, place) for identity, k, place in project.rows("ranked", "id", "k", "place")}
    expect(project, "rows of ranked", len(ranked), count + 2)
    expect(project, "the first", [ranked[-1], ranked[0], ranked[-2]], [("hot", 1), ("hot", 2), ("cold", 1)])
    expect(
        project,
        "summed",
        sorted(project.rows("summed", "k", "rows", "total"), key=str),
        [("cold", 1, 5), ("hot", count + 1, count * (count - 1) // 2 - 1)],
    )
    print(f"  {beat.text()}")
    return project


LOADS: Mapping[str, Load] = {load.__name__: load for load in (tables, declared, requests, files, large, bomb, key)}


def main(given: Sequence[str] | None = None) -> int:
    """Run some loads or all; the exit code is 0 only if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="make load", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(LOADS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes")
    options = parser.parse_args(given)
    if unknown := set(options.names) - set(LOADS):
        parser.error(f"no such loads: {', '.join(sorted(unknown))}")
    wrong = 0
    for name in options.names or LOADS:
        load = LOADS[name]
        print(f"{name}: {(load.__doc__ or '').strip()}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix=f"freshline-load-{name}-"))
        project = load(folder / "shop", options.scale)
        project_bound(project)
        print(f"  {project.peaks.text()}")
        for problem in project.problems:
            print(f"  WRONG: {problem}")
        wrong += len(project.problems)
        if not project.problems:
            shutil.rmtree(folder)
    print(f"{wrong} problems" if wrong else "nothing was wrong")
    return 1 if wrong else 0


def project_bound(project: Loaded) -> None:
    """Memory stays below the bounds that the documentation states."""
    for role, bound in (("jvm", JVM_BYTES), ("engine", ENGINE_BYTES)):
        found = project.peaks.resident.get(role, 0)
        if found > bound:
            project.problems.append(f"the {role} had {found / MEGABYTE:,.0f} MB, more than {bound / MEGABYTE:,.0f}")


if __name__ == "__main__":
    sys.exit(main())

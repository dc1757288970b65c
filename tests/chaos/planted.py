"""`make chaos PLANTED=1`: bugs are planted one by one, and the harness must find each, or it is not believed.

Each class of faults has a bug that only shows, or that shows at the latest, when faults of that class happen.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.plants import Plant, planted_copy

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Twin:
    """A planted bug, and the faults among which the run must find it, or the case that shows it.

    `kafka` says whether the run needs a broker.
    """

    plant: Plant
    faults: tuple[str, ...]
    kafka: bool = False
    case: str = ""


def _twin(
    name: str, file: str, old: str, new: str, why: str, *faults: str, kafka: bool = False, case: str = ""
) -> Twin:
    return Twin(Plant(name, file, old, new, why), faults, kafka, case)


TWINS = (
    _twin(
        "a-look-is-of-a-number",
        "values/receipt.py",
        'return f"{self.epoch}/{self.seq}/{at}"',
        'return f"{self.seq}"',
        "what was noted of a lost commit is taken for the one that has its number",
        "log-short-at-rest",
        # Only of tables that rows are added to without a key.
        case="a_log_without_its_newest_commit",
    ),
    _twin(
        "a-row-is-dropped",
        "commit/write.py",
        "append_small(table, here, receipt):",
        "append_small(table, here.slice(1), receipt):",
        "the first row of a small commit is lost",
        "odd-file-names",
        "kill-watch",
    ),
    _twin(
        "rows-are-written-twice",
        "sources/files/read_files.py",
        "        recent = {mark.path: mark for mark in position.recent}\n",
        "        recent = {mark.path: mark for mark in position.recent[1:]}\n",
        "a file that was read counts as new",
        "kill-engine",
        "odd-file-names",
    ),
    _twin(
        "the-fence-is-skipped",
        "commit/small.py",
        "    return is_new and stored < receipt.transaction_version",
        "    return True",
        "an engine that was overtaken writes too",
        "second-engine",
    ),
    _twin(
        "a-delete-is-forgotten",
        "merges/last_row.py",
        "        return f\"{OP} = '{DELETED}'\" if self.by_change else self.delete_when\n",
        "        return None\n",
        "a row that takes its key away stays",
        "records-again",
    ),
    _twin(
        "a-position-is-moved",
        "sources/files/reader.py",
        "inspect_files(self._folder, portion.marks, reading",
        "inspect_files(self._folder, portion.marks[: max(1, len(portion.marks) - 1)], reading",
        "the receipt names a file that was not read",
        "kill-engine-and-jvm",
        "stop-engine",
    ),
    _twin(
        "a-restore-without-its-tail",
        "run/savepoint.py",
        "        receipt = told_again(\n            base,",
        "        receipt = told_again(\n            newest.receipt or base,",
        "the rows of a savepoint come back, and the positions stay as they were",
        "savepoint-restored",
    ),
    _twin(
        "quarantine-keeps-an-unfinished-batch",
        "refresh/quarantine.py",
        "WHERE {SEQ} > {log_seq}",
        "WHERE {SEQ} > {log_seq} + 1000000",
        "records that were rejected before a kill are there twice",
        "kill-in-quarantine",
    ),
    _twin(
        "records-come-again",
        "ingest/duplicates.py",
        "    return _mark_redelivered(spark, log, rows, few=few)",
        "    return rows, None",
        "a row that is delivered twice is there twice",
        "records-again",
    ),
    _twin(
        "broken-records-vanish",
        "ingest/log.py",
        "        if looked.rejected:\n",
        "        if looked.rejected > 1:\n",
        "a batch with one broken record loses it",
        "broken-records",
    ),
    _twin(
        "a-value-that-came-and-went-counts",
        "compute/algebra.py",
        'net = rows.groupBy(*keys, *arguments).agg(F.sum(sign).alias("net")).where(F.col("net") != 0)',
        'net = rows.withColumn("net", sign)',
        "a greatest value between two refreshes is kept, though no row has it",
        "records-again",
    ),
    _twin(
        "a-partition-apart-is-not-noted",
        "strategies/partition/times.py",
        "computed if own and computed != positions else None",
        "computed if own and computed != pins.positions else None",
        "a partition that was replaced apart gets the same rows once more",
        "kill-watch",
        case="partitions_of_a_slow_table",
    ),
    _twin(
        "a-deleted-key-comes-back",
        "merges/fold.py",
        "if deletes is None and stored.order is not None and stored.ties is not None:",
        "if stored.order is not None and stored.ties is not None:",
        "an older row of a key that was deleted makes it again",
        "records-again",
    ),
    _twin(
        "late-rows-count",
        "ingest/batch.py",
        "    watermark = None if stands is None else stands.watermark\n",
        "    watermark = None\n",
        "a window that was final takes late rows",
        "kill-webserver",
    ),
    _twin(
        "a-lookup-names-another-version",
        "refresh/computed_rows.py",
        "pins[join.table].position.version for join",
        "pins[join.table].position.version - 1 for join",
        "a row says that it met another version of its dimension",
        "kill-daemon",
    ),
    _twin(
        "a-table-is-made-where-the-project-was",
        "engine/lock.py",
        "        if found != self.holder.lock:\n",
        "        if found is None and not self.holder.lock:\n",
        "a project that was moved is filled again at its old place",
        "folder-renamed",
    ),
    _twin(
        "snapshots-outlive-a-clock",
        "refresh/runtime.py",
        "            if now < self._seen_at:\n",
        "            if now < 0:\n",
        "after a clock was set back old versions are read",
        "clock-moved",
    ),
    _twin(
        "an-error-without-a-code",
        "errors.py",
        '    code = "STORAGE"\n',
        '    code = "SPACE"\n',
        "a full disk is told by a code that no page has",
        "disk-full",
        "read-only-tables",
    ),
    _twin(
        "an-error-with-its-stack",
        "cli/failures.py",
        '        return [line_of(error) for error in self.error.get("errors") or [self.error]]',
        "        import traceback\n\n        return [traceback.format_exc()]",
        "a person gets a stack trace",
        "store-locked",
        "kill-command",
        "store-garbage",
    ),
    _twin(
        "records-of-a-topic-are-skipped",
        "sources/kafka/reader.py",
        "as_records(read_range(spark, self._brokers(), portion.range))",
        'as_records(read_range(spark, self._brokers(), portion.range)).where("_freshline_record % 7 <> 3")',
        "the receipt names offsets that were not read",
        "kill-broker",
        kafka=True,
    ),
)


def find(twin: Twin, minutes: float) -> tuple[bool, str, float]:
    """Run chaos on a copy with the bug: whether it was found, by what, and after how many seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="freshline-planted-") as name:
        folder = Path(name)
        code = planted_copy(twin.plant, folder / "code")
        line = [sys.executable, "-m", "tests.chaos", "--seed", "1", "--minutes", str(minutes), "--store", "sqlite"]
        line += ["--folder", str(folder / "run"), "--code", str(code)]
        line += ["--schedule", str(CASES / f"{twin.case}.jsonl")] if twin.case else ["--only", ",".join(twin.faults)]
        line += [] if twin.kafka else ["--no-kafka"]
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}"}
        done = subprocess.run(line, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    wrong = [text.split("WRONG: ", 1)[1] for text in done.stdout.splitlines() if "WRONG: " in text]
    if done.returncode not in (0, 1) or (done.returncode == 1 and not wrong):
        raise RuntimeError(f"the harness ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return bool(wrong), wrong[0] if wrong else "", time.monotonic() - began


def main(given: Sequence[str] | None = None) -> int:
    """Plant each bug and search for it; the exit code is 0 only if all were found."""
    parser = argparse.ArgumentParser(prog="make chaos PLANTED=1", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="some of the bugs; all without a name")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long each is looked for")
    options = parser.parse_args(given)
    known = {twin.plant.name: twin for twin in TWINS}
    if unknown := set(options.names) - set(known):
        parser.error(f"no such bugs: {', '.join(sorted(unknown))}")
    missed = 0
    for twin in [known[name] for name in options.names] or TWINS:
        found, how, seconds = find(twin, options.minutes)
        missed += not found
        told = f"found after {seconds:.0f} s: {how[:160]}" if found else f"NOT FOUND in {seconds:.0f} s"
        print(f"{twin.plant.name} ({twin.plant.why}): {told}", flush=True)
    print(f"{missed} were not found" if missed else "all were found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

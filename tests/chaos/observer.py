"""The observer: it checks every version of every table while the project is attacked.

Each version must be the table's query over its inputs at the positions in its own receipt. A log has no row that was
not sent, and none more often. Each sequence number has one receipt. A window that was final stays as it is.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos import expected, storage
from tests.chaos.promise import MEASURED, Promise
from tests.chaos.sent import COLUMNS, KEYED, Row, Sent
from tests.chaos.storage import Commit

_EVERY_SECONDS = 0.5
_MOST_KEPT = 40
_FOUND = ("plain_id", "k", "first_id", "seen")
_SCALED = ("event_id", "scaled")
_WINDOW = ("window_start", "window_end", "k", "rows", "total")
# A table may be written after its log is read and before its rows are; and a fault takes files away meanwhile.
_MOST_TRIES = 240


class _Lost(Exception):
    """A version that a table has read was taken away, and given again with other rows."""


@dataclass
class Seen:
    """The facts known of one table from the versions before."""

    next: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    epoch: int = 0
    tries: int = 0
    final: Counter[Row] = field(default_factory=Counter)


def differences(found: Counter[Row], wanted: Counter[Row]) -> str:
    """A sentence on two multisets that differ, empty where they are equal."""
    more, less = found - wanted, wanted - found
    if not more and not less:
        return ""
    return (
        f"{less.total()} rows are missing, such as {list(less.items())[:3]}; "
        f"{more.total()} are too many, such as {list(more.items())[:3]}"
    )


@dataclass
class Observer:
    """Checks the tables below a warehouse until it is closed; problems go to `complain`."""

    warehouse: Callable[[], Path]
    sent: Sent
    tables: tuple[str, ...]
    complain: Callable[[str], None]
    looked: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    # Versions of which an input is not there any more.
    lost: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))
    _kept: OrderedDict[tuple[str, int, tuple[str, ...]], list[Row]] = field(default_factory=OrderedDict)
    # The rows of the dimension that lookups found, by its version: each later version of the table has them again.
    _met: dict[int, dict[str, str]] = field(default_factory=dict)
    _lost: dict[int, list[dict[str, str]]] = field(default_factory=lambda: defaultdict(list))
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    # Held while the project's folder is moved, and by whoever reads all tables at once.
    lock: threading.RLock = field(default_factory=threading.RLock)
    trouble: str = ""
    promise: Promise = field(default_factory=Promise)
    # Those that the table `scaled` was declared with so far; the last one is in force when everything is healed.
    factors: list[int] = field(default_factory=lambda: [1])

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Check what there is once more, and end."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.look(patient=False)

    def as_json(self) -> dict[str, Any]:
        """The facts that a run that goes on needs of the versions that were compared before it."""
        with self.lock:
            return {
                "seen": {
                    name: {"next": seen.next, "sequences": list(seen.sequences.items()), "epoch": seen.epoch}
                    for name, seen in self._seen.items()
                },
                "met": {str(version): rows for version, rows in self._met.items()},
                "lost": {str(version): rows for version, rows in self._lost.items()},
                "factors": self.factors,
            }

    def go_on(self, value: Mapping[str, Any]) -> None:
        """Take over what the run before knew. Windows that were final are compared from the next version on."""
        for name, seen in value["seen"].items():
            self._seen[name] = Seen(seen["next"], dict(map(tuple, seen["sequences"])), seen["epoch"])
        self._met = {int(version): rows for version, rows in value["met"].items()}
        self._lost.update({int(version): rows for version, rows in value["lost"].items()})
        self.factors = value["factors"]

    def forget(self, name: str, version: int) -> None:
        """The newest commit is to be taken away: the version may come again with other rows, and so may its number."""
        with self.lock:
            # Afterwards nobody knows what rows the tables that have read it must have.
            self.look()
            if name == "earliest":
                # Rows that were looked up in it stay as they are.
                self._lost[version].append(self._dimension(version))
            seen = self._seen[name]
            seen.next = min(seen.next, version)
            seen.sequences = {number: at for number, at in seen.sequences.items() if at < version}
            seen.final = Counter()
            if name == "earliest":
                self._met = {at: rows for at, rows in self._met.items() if at < version}
            for key in [key for key in self._kept if key[0] == name and key[1] >= version]:
                del self._kept[key]

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_SECONDS):
            try:
                self.look()
            except Exception as error:  # the harness itself is wrong, and its result is worth nothing
                self.complain(f"the observer has failed: {type(error).__name__}: {error}")
                raise

    def look(self, *, patient: bool = True) -> None:
        """Check all versions that are new. One that cannot be read now is tried again, when `patient`."""
        for name in self.tables:
            with self.lock:
                self._look_at(name, patient)

    def _look_at(self, name: str, patient: bool) -> None:
        table, seen = self.warehouse() / name, self._seen[name]
        for version in storage.versions(table):
            if version < seen.next:
                continue
            try:
                commit = storage.read_commit(table, version)
                problems = self._problems(name, commit, seen)
            except _Lost as lost:
                self.lost[name] += 1
                self.trouble = f"{name} version {version}: {lost}"
                problems = []
            except Exception as error:  # noqa: BLE001 - counted below, and reported where it does not end
                # The library raises many kinds. A file that a fault took away comes back; what stays unread is counted.
                seen.tries += 1
                self.trouble = f"{name} version {version}: {type(error).__name__}: {error}"
                if patient and seen.tries < _MOST_TRIES:
                    return
                self.unread[name] += 1
                problems = []
            else:
                self.looked[name] += 1
            seen.tries = 0
            seen.next = version + 1
            for problem in problems:
                self.complain(f"{name} version {version}: {problem}")

    def _problems(self, name: str, commit: Commit, seen: Seen) -> list[str]:
        if commit.receipt is None:
            # Version 0 makes the table, before its first refresh.
            return [] if commit.version == 0 else ["a commit without a receipt"]
        problems = self._of_receipt(commit, seen)
        rows = self._rows_problem(name, commit, seen)
        return [*problems, rows] if rows else problems

    def _of_receipt(self, commit: Commit, seen: Seen) -> list[str]:
        receipt = commit.receipt
        assert receipt is not None
        problems = []
        sequence, epoch = int(receipt["seq"]), int(receipt["epoch"])
        if commit.moves_rows:
            # A version whose rows could not be read is checked again.
            others = {number: at for number, at in seen.sequences.items() if at != commit.version}
            if sequence in others:
                problems.append(f"seq {sequence} has a receipt in version {others[sequence]} too")
            if others and sequence <= max(others):
                problems.append(f"seq {sequence} comes after {max(others)}")
            seen.sequences[sequence] = commit.version
        if epoch < seen.epoch:
            problems.append(f"epoch {epoch} comes after {seen.epoch}")
        seen.epoch = max(seen.epoch, epoch)
        return problems

    def _rows_problem(self, name: str, commit: Commit, seen: Seen) -> str:
        receipt = commit.receipt
        assert receipt is not None
        if name in COLUMNS:
            return self._log_problem(name, commit.version)
        if name == "found":
            return self._lookup_problem(commit.version, receipt)
        if name == "scaled":
            return self._scaled_problem(commit.version, receipt)
        if name == "per_minute":
            return self._window_problem(commit.version, receipt, seen)
        derived = next(each for each in expected.DERIVED if each.name == name)
        found = Counter(self._rows(name, commit.version, derived.columns))
        if "spans" in receipt:
            return differences(found, self._of_spans(derived, receipt))
        wanted = self._derived_at(derived, receipt["positions"])
        for text, positions in receipt.get("partitions", {}).items():
            assert derived.partition is not None, f"{name} has partitions"
            apart = self._derived_at(derived, positions)
            wanted = Counter({row: n for row, n in wanted.items() if derived.partition(row) not in text})
            wanted += Counter({row: n for row, n in apart.items() if derived.partition(row) in text})
        return differences(found, wanted)

    def _derived_at(self, derived: expected.Derived, positions: Mapping[str, Any]) -> Counter[Row]:
        """The rows of a table over its inputs at these positions."""
        return derived.named(lambda each, _: self._at(each, positions))

    def _of_spans(self, derived: expected.Derived, receipt: Mapping[str, Any]) -> Counter[Row]:
        """The rows of a table with time partitions: each stretch of time at its own positions."""
        told = receipt["spans"]
        wanted: Counter[Row] = Counter()
        for start, end, _, number in told["spans"]:
            positions = receipt["positions"] if number is None else told["positions"][number]
            rows = self._derived_at(derived, positions)
            first, last = (datetime.fromisoformat(each).astimezone(UTC).date() for each in (start, end))
            wanted += Counter({row: count for row, count in rows.items() if first <= row[0] < last})
        return wanted

    def _scaled_problem(self, version: int, receipt: Mapping[str, Any]) -> str:
        found = Counter(self._rows("scaled", version, _SCALED))
        events = self._at("event", receipt["positions"])
        by_factor = [differences(found, expected.scaled(events, factor)) for factor in self.factors]
        return "" if "" in by_factor else f"with no factor of {self.factors} it is its query: {by_factor[-1]}"

    def _log_problem(self, name: str, version: int) -> str:
        found = Counter(self._rows(name, version, COLUMNS[name]))
        self._arrived(name, version, found.total())
        strange = found - self.sent.rows(name)
        if strange:
            return f"{strange.total()} rows were not sent, or not so often: {list(strange.items())[:3]}"
        if name in KEYED:
            twice = [key for key, n in Counter(row[0] for row in found.elements()).items() if n > 1]
            if twice:
                return f"keys that are there twice: {twice[:5]}"
        return ""

    def _lookup_problem(self, version: int, receipt: Mapping[str, Any]) -> str:
        rows = self._rows("found", version, _FOUND)
        self._arrived("found", version, len(rows))
        wanted = Counter((plain_id, k) for plain_id, k, _, _ in self._at("plain", receipt["positions"]))
        if problem := differences(Counter(row[:2] for row in rows), wanted):
            return problem
        for plain_id, k, first_id, seen in rows:
            if all(lost.get(k) != first_id for lost in self._lost.get(seen, [])):
                known = self._dimension(seen).get(k)
                if known != first_id:
                    return f"{plain_id} met {first_id} for {k!r}, and version {seen} of earliest has {known}"
        return ""

    def _arrived(self, name: str, version: int, rows: int) -> None:
        if name in MEASURED:
            self.promise.arrived(name, storage.committed_at(self.warehouse() / name, version), rows)

    def _dimension(self, version: int) -> dict[str, str]:
        if version not in self._met:
            rows = storage.read_rows(self.warehouse() / "earliest", ("k", "event_id"), version)
            self._met[version] = {row[0]: row[1] for row in rows}
        return self._met[version]

    def _window_problem(self, version: int, receipt: Mapping[str, Any], seen: Seen) -> str:
        found = Counter(self._rows("per_minute", version, _WINDOW))
        closed = receipt.get("closed_until")
        self._receipt_at("event", receipt["positions"]["event"])
        wanted = expected.windows(
            self.batches("event", int(receipt["positions"]["event"]["version"])),
            None if closed is None else datetime.fromisoformat(closed),
        ).final
        before, seen.final = seen.final, found
        if problem := differences(found, wanted):
            return problem
        # Computed anew, for an input that was replaced, it may have other windows.
        anew = receipt.get("restored") is not None or receipt["strategy"] == "full"
        if not anew and (lost := before - found):
            return f"windows that were final are gone or changed: {list(lost)[:3]}"
        return ""

    def batches(self, log: str, version: int | None) -> dict[int, list[Row]]:
        """The rows of a log table by the sequence number of their batch."""
        columns = (*COLUMNS[log], "_freshline_seq")
        rows = (
            self._rows(log, version, columns)
            if version is not None
            else storage.read_rows(self.warehouse() / log, columns)
        )
        found: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            found[row[-1]].append(row[:-1])
        return found

    def _at(self, name: str, positions: Mapping[str, Any]) -> list[Row]:
        receipt = self._receipt_at(name, positions[name])
        if name in COLUMNS:
            return self._rows(name, int(positions[name]["version"]), COLUMNS[name])
        # A table whose query is written over the rows of its log, by one way.
        (above,) = receipt["positions"]
        return self._at(above, receipt["positions"])

    def _receipt_at(self, name: str, position: Mapping[str, Any]) -> Mapping[str, Any]:
        """The receipt of the version of a position. Raises _Lost where the version is another one by now."""
        version = int(position["version"])
        receipt = storage.read_commit(self.warehouse() / name, version).receipt
        assert receipt is not None, f"{name} version {version} has no receipt"
        epoch = position.get("epoch")
        if epoch is not None and int(receipt["epoch"]) != int(epoch):
            raise _Lost(f"it has read version {version} of {name}, of which the log was short later")
        return receipt

    def _rows(self, name: str, version: int, columns: tuple[str, ...]) -> list[Row]:
        key = (name, version, columns)
        if key not in self._kept:
            self._kept[key] = storage.read_rows(self.warehouse() / name, columns, version)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


def check_all(observer: Observer) -> list[str]:
    """The problems of the newest versions, when everything that was sent must have arrived."""
    problems = []
    sent, warehouse = observer.sent, observer.warehouse()
    with observer.lock:
        for log in (name for name in COLUMNS if name in observer.tables):
            found = storage.read_bag(warehouse / log, COLUMNS[log])
            if problem := differences(found, sent.rows(log)):
                problems.append(f"{log}: {problem}")
            broken = sent.broken(log)
            stored = _quarantined(warehouse / f"{log}__quarantine")
            if broken != stored:
                problems.append(f"{log}__quarantine: {stored} records, and {broken} were sent")
        rows = {log: list(sent.rows(log).elements()) for log in COLUMNS}
        for derived in (each for each in expected.DERIVED if each.name in observer.tables):
            found = storage.read_bag(warehouse / derived.name, derived.columns)
            if problem := differences(found, derived.named(lambda each, log: rows[log])):
                problems.append(f"{derived.name}: {problem}")
        scaled = storage.read_bag(warehouse / "scaled", _SCALED)
        if problem := differences(scaled, expected.scaled(rows["event"], observer.factors[-1])):
            problems.append(f"scaled: {problem}")
        found = Counter(row[:2] for row in storage.read_rows(warehouse / "found", _FOUND))
        if problem := differences(found, Counter((row[0], row[1]) for row in rows["plain"])):
            problems.append(f"found: {problem}")
        problems += _check_windows(observer, warehouse)
    return problems


def _check_windows(observer: Observer, warehouse: Path) -> list[str]:
    batches = observer.batches("event", None)
    watermark = max(row[4] for batch in batches.values() for row in batch) - expected.DELAY
    wanted = expected.windows(batches, watermark)
    problems = []
    if problem := differences(storage.read_bag(warehouse / "per_minute", _WINDOW), wanted.final):
        problems.append(f"per_minute: {problem}")
    if problem := differences(storage.read_bag(warehouse / "per_minute__late", COLUMNS["event"]), wanted.late):
        problems.append(f"per_minute__late: {problem}")
    return problems


def _quarantined(table: Path) -> int:
    if not storage.versions(table):
        return 0
    return len(storage.read_rows(table, ("_freshline_seq",)))


def wait_until(met: Callable[[], bool], seconds: float, every: float = 0.1) -> bool:
    """Whether a condition became true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True

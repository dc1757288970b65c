"""The generator makes what its docstring promises, the same way every time."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from itertools import count
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from resources.generator import BASE, CAMPAIGNS, DAYS_BEFORE, Generator, utc_now
from tests.resources.fold import fold_customer, fold_first_touch, read_landing

KINDS = ("touch_event", "sale_order", "customer_change")
ROOT = Path(__file__).parents[2]
TOTALS = (3000, 900, 1500)  # touches, orders, customer changes


def write_all(folder: Path, of: int = 10) -> Generator:
    generator = Generator(folder / "landing", folder / "landing" / "campaign_load", 7)
    for i in range(of):
        generator.portion(i, of, *TOTALS)
    return generator


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for kind in KINDS for path in (folder / "landing" / kind).iterdir())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    write_all(folder)
    return folder


@pytest.mark.slow
def test_equal_seeds_write_equal_files_in_one_go_and_part_by_part(written: Path, tmp_path: Path) -> None:
    for i in range(10):
        Generator(tmp_path / "landing", tmp_path / "campaigns", 7).portion(i, 10, *TOTALS)

    assert files_of(tmp_path) == files_of(written)


@pytest.mark.seconds
def test_another_seed_writes_another_history(written: Path, tmp_path: Path) -> None:
    Generator(tmp_path / "landing", tmp_path / "campaigns", 8).portion(0, 10, *TOTALS)

    assert not files_of(tmp_path).items() & files_of(written).items()


def test_all_parts_together_have_exactly_the_records_asked_for(written: Path) -> None:
    counts = [len(read_landing(written / "landing", kind).rows) for kind in KINDS]

    assert counts == [3000, 900, 1500]
    counter = Generator(written / "landing", written / "landing" / "campaign_load", 7)
    assert [counter.landed(kind) for kind in KINDS] == counts


@pytest.mark.parametrize("kind", KINDS)
def test_about_one_percent_is_broken_and_two_percent_redelivered(written: Path, kind: str) -> None:
    landed = read_landing(written / "landing", kind)

    assert 0.004 < landed.broken / len(landed.rows) < 0.02
    assert 0.01 < landed.redelivered / len(landed.rows) < 0.04


def test_every_kind_of_damage_is_there(written: Path) -> None:
    lines = b"".join(content for name, content in files_of(written).items() if "touch_event" in name).splitlines()

    assert any(b"\xff\xfe" in line for line in lines)
    assert any(b"the other day" in line for line in lines)
    assert any(b'"event_id": null' in line for line in lines)
    assert any(not line.endswith(b"}") for line in lines)


def test_some_redeliveries_come_in_a_later_file(written: Path) -> None:
    files = [content.splitlines() for name, content in sorted(files_of(written).items()) if "touch_event" in name]
    valid = [{line for line in lines if line.startswith(b'{"event_id":"T-')} for lines in files]

    assert any(valid[i] & valid[j] for i in range(len(files)) for j in range(i))
    assert any(len(lines) > len(set(lines)) for lines in files)


def test_touches_are_out_of_order_and_some_are_late_by_days(written: Path) -> None:
    times = [row["event_ts"] for row in read_landing(written / "landing", "touch_event").rows]
    newest_before = [max(times[: i + 1]) for i in range(len(times))]
    late_by = [newest - time for newest, time in zip(newest_before, times, strict=True)]

    assert sum(late > timedelta() for late in late_by) > 100
    assert sum(late > timedelta(days=1) for late in late_by) > 30
    assert max(times) < BASE + timedelta(days=10)


def test_some_first_touches_are_corrected_by_a_later_arrival(written: Path) -> None:
    touches = read_landing(written / "landing", "touch_event").rows
    arrived_first = {row["customer_id"]: row for row in reversed(touches)}
    first = {row["customer_id"]: row for row in fold_first_touch(touches)}

    assert sum(first[customer] != arrived_first[customer] for customer in first) > 20


def test_deleted_customers_come_back_and_older_updates_arrive_after_the_delete(written: Path) -> None:
    changes = read_landing(written / "landing", "customer_change").rows
    deletes: dict[str, object] = {}
    inserted_again: set[str] = set()
    older_after: set[str] = set()
    for row in changes:
        customer = row["customer_id"]
        if row["op"] == "d":
            deletes[customer] = row["updated_at"]
        elif customer in deletes:
            (older_after if row["updated_at"] < deletes[customer] else inserted_again).add(customer)
    present = {row["customer_id"] for row in fold_customer(changes)}

    assert len(older_after - present) > 5
    assert len(inserted_again & present) > 5
    assert len(deletes.keys() - present) > 5


def test_there_are_ties_that_only_the_event_id_breaks(written: Path) -> None:
    touches = read_landing(written / "landing", "touch_event").rows
    changes = read_landing(written / "landing", "customer_change").rows

    assert len({(row["customer_id"], row["event_ts"]) for row in touches}) < len(touches)
    assert len({(row["customer_id"], row["updated_at"]) for row in changes}) < len(changes)


@pytest.mark.seconds
def test_two_days_of_campaigns_arrive_two_parts_late(tmp_path: Path) -> None:
    generator = Generator(tmp_path / "landing", tmp_path / "campaigns", 7)
    late = []
    for i in range(10):
        generator.portion(i, 10, *TOTALS)
        if (BASE + timedelta(days=i)).date() not in generator.campaigns.days():
            late.append(i)

    assert len(late) == 2
    assert len(generator.campaigns.days()) == 10 + DAYS_BEFORE


def test_campaigns_are_written_a_day_a_commit_with_a_change_feed(written: Path) -> None:
    table = DeltaTable(written / "landing" / "campaign_load")
    changes = pa.table(table.load_cdf(1, table.version()).read_all()).to_pylist()
    days_by_version: dict[int, set[object]] = {}
    for change in changes:
        days_by_version.setdefault(change["_commit_version"], set()).add(change["ds"])

    assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert all(len(days) == 1 for days in days_by_version.values())
    assert {change["_change_type"] for change in changes} == {"insert", "update_preimage", "update_postimage"}
    assert pa.table(table.to_pyarrow_table()).num_rows == (10 + DAYS_BEFORE) * len(CAMPAIGNS)


def test_a_part_that_is_there_is_left_alone_and_a_foreign_one_is_refused(written: Path, tmp_path: Path) -> None:
    generator = write_all(tmp_path, of=2)
    before = files_of(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "landing").glob("*/*.jsonl")}
    generator.portion(1, 2, *TOTALS)

    assert files_of(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times
    next(path for path in times if "part-0000" in path.name).write_bytes(b"{}\n")
    with pytest.raises(FileExistsError, match="another history"):
        generator.portion(0, 2, *TOTALS)


def test_nothing_but_complete_files_is_left(written: Path) -> None:
    assert not [path for path in (written / "landing").rglob(".*") if path.is_file() and path.suffix == ".jsonl"]


def test_a_part_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="parts count from 0 to 3"):
        Generator(tmp_path / "landing", tmp_path / "campaigns", 1).portion(4, 4, *TOTALS)


def test_the_live_run_writes_at_its_rate_until_asked_to_stop(tmp_path: Path) -> None:
    # At noon, since a run over midnight has one day more.
    start = datetime.combine(utc_now(), time(12), UTC)
    until = Event()
    ticks = iter(range(200))

    def clock() -> object:
        # A clock that the test moves: each reading of it is a second later.
        tick = next(ticks)
        if tick == 120:
            until.set()
        return start + timedelta(seconds=tick)

    generator = Generator(tmp_path / "landing", tmp_path / "campaigns", 3)
    counts = generator.run(until, 10.0, period=0.0, clock=clock)  # type: ignore[arg-type]
    touches = read_landing(tmp_path / "landing", "touch_event").rows

    assert dict(counts) == {"touch_event": 1200, "sale_order": 360, "customer_change": 240}
    assert dict(counts) == {kind: generator.landed(kind) for kind in KINDS}
    assert len(touches) == 1200
    assert max(row["event_ts"] for row in touches) <= start + timedelta(seconds=120)
    assert len(generator.campaigns.days()) == DAYS_BEFORE + 1


@pytest.mark.slow
def test_two_live_runs_into_one_directory_do_not_collide(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "resources.generator", "--landing", str(tmp_path), "--seconds", "0.1"]
    told = subprocess.run([*command, "--rate", "200"], cwd=ROOT, check=True, capture_output=True)
    start, until, ticks = utc_now(), Event(), count()

    def clock() -> datetime:
        tick = next(ticks)
        if tick == 3:
            until.set()
        return start + timedelta(seconds=tick)

    second = Generator(tmp_path, tmp_path / "campaign_load", 1).run(until, 10.0, period=0.0, clock=clock)

    landed = read_landing(tmp_path, "touch_event")
    assert second["touch_event"] > 0
    assert len(landed.rows) == json.loads(told.stdout)["touch_event"] + second["touch_event"]
    assert (tmp_path / "campaign_load" / "_delta_log").is_dir()

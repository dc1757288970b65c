"""Statistics of files say whether a table may have rows of some times, without reading rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from freshline.commit.delta_log import may_have_times, position_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000


def write(path: Path, *micros: int | None, column: str = "ts") -> None:
    times = [None if each is None else EPOCH + timedelta(microseconds=each) for each in micros]
    kind = pa.timestamp("us", tz="UTC")
    write_deltalake(str(path), pa.table({column: pa.array(times, kind), "v": [1] * len(times)}), mode="append")


def may(path: Path, least: int, greatest: int, column: str = "ts") -> bool:
    return may_have_times(path, position_of(path, DeltaTable(str(path)).version()), column, least, greatest)


def test_a_time_lies_in_a_file_or_beside_all_of_them(tmp_path):
    write(tmp_path, -10 * SECOND, -8 * SECOND)
    write(tmp_path, 5 * SECOND, None)
    write(tmp_path, None)
    assert may(tmp_path, -9 * SECOND, -9 * SECOND)
    assert may(tmp_path, 4 * SECOND, 5 * SECOND)
    assert may(tmp_path, 5 * SECOND, 60 * SECOND, "TS")
    assert not may(tmp_path, -7 * SECOND, 4 * SECOND)
    assert not may(tmp_path, 6 * SECOND, 60 * SECOND)
    # Statistics are cut to the millisecond.
    assert may(tmp_path, 5 * SECOND + 999, 60 * SECOND)
    # A version has its own files.
    write(tmp_path, 30 * SECOND)
    assert may(tmp_path, 6 * SECOND, 60 * SECOND)


def test_a_file_without_statistics_may_have_any_time(tmp_path):
    path = tmp_path / "t"
    settings = {"delta.dataSkippingNumIndexedCols": "0"}
    write_deltalake(
        str(path), pa.table({"ts": pa.array([EPOCH], pa.timestamp("us", tz="UTC"))}), configuration=settings
    )
    assert may(path, 9 * SECOND, 9 * SECOND)


def test_a_table_without_files_has_no_time(tmp_path):
    write(tmp_path)
    DeltaTable(str(tmp_path)).delete()
    assert not may(tmp_path, 0, SECOND)

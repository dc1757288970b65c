"""A refresh of a `freshline.process` whose kept entries broke since they were last read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from freshline.strategies.keys import process as processes


class _Replayed(Exception):
    """The refresh came to the keys that are replayed."""


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table with timers, no new rows, and entries that Spark cannot read."""

    def broken(*_: object) -> Any:
        raise PySparkException("the file is no Parquet file")

    def to_replay(process: Any, went_on: Any) -> Any:
        raise _Replayed(went_on)

    made = SimpleNamespace(
        changes={"events": SimpleNamespace(rows=0)},
        spec=SimpleNamespace(has_timers=True),
        spark=None,
        nothing=lambda rows: pytest.fail("nothing is done"),
    )
    process = SimpleNamespace(attempt=made, schema=None, changed=False, due="true")
    monkeypatch.setattr(processes._Process, "of", lambda *_: process)
    monkeypatch.setattr(processes, "read_kept", lambda *_: SimpleNamespace(entries=broken))
    monkeypatch.setattr(processes, "_to_replay", to_replay)
    return made


def test_broken_entries_have_keys_replayed(attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "is_still_whole", lambda *_: False)
    with pytest.raises(_Replayed, match="None"):
        processes.refresh_keys_of_process(attempt, SimpleNamespace(input="events"))  # type: ignore[arg-type]


def test_an_error_of_spark_over_whole_entries_is_raised(attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "is_still_whole", lambda *_: True)
    with pytest.raises(PySparkException, match="no Parquet file"):
        processes.refresh_keys_of_process(attempt, SimpleNamespace(input="events"))  # type: ignore[arg-type]

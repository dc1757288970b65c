"""The change of receipts by a restore: the same rows, in today's numbers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from freshline.errors import FormatError, SavepointError
from freshline.plan.savepoint import (
    Moved,
    Restoration,
    SavedTable,
    SavedVersion,
    Savepoint,
    require_name,
    restored_receipt,
)
from freshline.sources.files.position import FilesPosition
from freshline.values.names import TableName
from freshline.values.partition import PartitionSpan
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LOG, DIMENSION, TABLE = TableName(None, "log"), TableName(None, "dimension"), TableName(None, "t")


def receipt(name, seq, positions, cut):
    return Receipt(
        table=name,
        fingerprint="f",
        epoch=3,
        seq=seq,
        mode="batch",
        strategy="append",
        reason="NEW_FILES",
        data_timestamp=NOW,
        positions=positions,
        rows_in=5,
        rows_out=5,
        attempt="a",
        cut=cut,
        replayed_from=2,
    )


LOG_THEN = SavedVersion("id-log", 5, receipt(LOG, 5, {LOG: FilesPosition(0, ())}, {"log": {"seq": 5}}))
LOG_NOW = Moved(LOG_THEN, version=11, seq=9)


def restored(base, **more):
    return restored_receipt(base, {LOG: LOG_NOW}, savepoint="s", epoch=7, seq=20, attempt="b", **more)


def test_a_receipt_that_comes_back_speaks_of_the_same_rows_by_their_new_numbers():
    cut = {"log": {"table_id": "id-log", "seq": 5}, "other": {"table_id": "x", "version": 4}}
    positions = {LOG: TablePosition("id-log", 5, 5), DIMENSION: TablePosition("id-d", 2, 2)}
    days = [datetime(2026, 10, day, tzinfo=UTC) for day in (1, 2, 3)]
    spans = (PartitionSpan(days[0], days[1], "f"), PartitionSpan(days[1], days[2], "f", positions))
    base = replace(receipt(TABLE, 4, positions, cut), partitions={"p": positions}, spans=spans, pending_lookups=3)
    found = restored(base, pending_lookups=8)

    assert found.spans == (spans[0], replace(spans[1], positions=found.positions))
    assert found.positions == {LOG: TablePosition("id-log", 11, 9), DIMENSION: TablePosition("id-d", 2, 2)}
    assert found.partitions == {"p": found.positions}
    assert found.cut == {"log": {"table_id": "id-log", "seq": 9}, "other": {"table_id": "x", "version": 4}}
    assert (found.epoch, found.seq, found.restored, found.strategy, found.pending_lookups) == (7, 20, 4, "restore", 8)
    assert (found.replayed_from, found.data_timestamp) == (2, NOW)
    assert Receipt.from_json(found.to_json()) == found
    assert found.carried("c").restored is None


def test_a_version_of_the_same_batch_is_the_same_and_one_that_is_behind_stays_behind():
    cut = {"log": {"seq": 3}}
    same = restored(receipt(TABLE, 4, {LOG: TablePosition("id-log", 4, 5)}, cut))
    behind = restored(receipt(TABLE, 4, {LOG: TablePosition("id-log", 3, 3)}, cut))
    another = restored(receipt(TABLE, 4, {LOG: TablePosition("id-old", 5, 5)}, cut))

    assert same.positions == {LOG: TablePosition("id-log", 11, 9)}
    assert behind.positions == {LOG: TablePosition("id-log", 3, 3)}
    assert behind.cut == cut
    assert another.positions == {LOG: TablePosition("id-old", 5, 5)}


def test_dimensions_stay_at_the_versions_that_rows_were_joined_with():
    positions = {LOG: TablePosition("id-log", 5, 5)}

    assert restored(receipt(TABLE, 4, positions, {}), lookups=[LOG]).positions == positions


def test_a_savepoint_is_read_as_it_was_written():
    table = SavedTable(TABLE, SavedVersion("id-t", 6, receipt(TABLE, 4, {}, {"log": {"seq": 4}})))
    log = SavedTable(LOG, LOG_THEN, {"parked": SavedVersion("id-p", 1, None)})
    savepoint = Savepoint("s", NOW, (log, table), {DIMENSION: TablePosition("id-d", 2)}, named=True)

    assert Savepoint.from_json(savepoint.as_json(), "file") == savepoint
    assert savepoint.cut == {"log": {"seq": 4}}
    assert savepoint.saved(TABLE) is table
    assert savepoint.saved(DIMENSION) is None
    restoration = Restoration("r", savepoint, NOW)
    assert Restoration.from_json(restoration.as_json(), "file") == restoration


def test_a_newer_format_is_refused():
    with pytest.raises(FormatError, match="has format 2"):
        Savepoint.from_json({"freshline_savepoint": 2}, "file")


@pytest.mark.parametrize("name", ["", "1st", "a-b", "../a", "a" * 129])
def test_a_text_that_is_no_name_is_refused(name):
    with pytest.raises(SavepointError, match="is no name"):
        require_name(name)


@pytest.mark.parametrize("key", ["name", "created_at", "tables", "sources", "consumers", "named"])
@pytest.mark.parametrize("value", [5, None, "x", [5]])
def test_a_savepoint_that_somebody_changed_is_refused_or_read(key, value):
    whole = Savepoint("s", NOW, (SavedTable(LOG, LOG_THEN),), {}, {}).as_json()
    restoration = {"freshline_restore": 1, "id": "x", "started_at": NOW.isoformat(), "savepoint": whole}

    for read, found in ((Savepoint.from_json, whole), (Restoration.from_json, restoration)):
        # A text is the name of a savepoint, whatever it is; everything else is refused, or read for what it is.
        with suppress(FormatError):
            assert read({**found, key: value}, "file")

    with pytest.raises(FormatError, match="file: the savepoint is damaged"):
        Savepoint.from_json({name: each for name, each in whole.items() if name != key}, "file")

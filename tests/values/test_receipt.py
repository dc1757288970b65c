"""A receipt comes back from its commit as it was written, and a newer format is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from freshline.errors import FormatError
from freshline.sources.files.position import FileMark, FilesPosition
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt, transaction_version

RECEIPT = Receipt(
    table=TableName.parse("a.t"), fingerprint="f", epoch=3, seq=7, mode="batch", strategy="append", reason="X: why",
    data_timestamp=datetime(2026, 1, 1, 12, tzinfo=UTC),
    positions={
        TableName.parse("s"): TablePosition("id", 5, None),
        TableName.parse("l"): FilesPosition(2, (FileMark("ü/a b.json", 10, 123456789),)),
    },
    rows_in=1, rows_out=None, rejected=2, attempt="x", cut={"s": {"table_id": "id", "version": 5}},
    partitions={"ds=a": {TableName.parse("s"): TablePosition("id", 6, 2)}}, replayed_from=4, seconds=1.25,
)  # fmt: skip


def test_it_comes_back_as_it_was_written():
    assert Receipt.from_json(RECEIPT.to_json()) == RECEIPT
    assert "\n" not in RECEIPT.to_json()


@pytest.mark.parametrize("text", [None, "", "words", '{"freshline', '{"other": 1}', '["freshline"]', '"freshline"'])
def test_words_of_others_are_no_receipt(text):
    assert Receipt.from_json(text) is None


def test_a_newer_format_is_refused_with_a_sentence():
    newer = json.dumps({**json.loads(RECEIPT.to_json()), "freshline": 4})

    with pytest.raises(FormatError, match=r"a\.t: the newest receipt has format 4, this freshline reads up to 3"):
        Receipt.from_json(newer)


def test_the_fence_is_above_every_refresh_before_and_every_engine_before():
    assert RECEIPT.transaction_version == (3 << 32) + 7
    assert transaction_version(4, 1) > transaction_version(3, 2**32 - 1)


def test_a_carried_receipt_is_the_same_for_other_words():
    carried = RECEIPT.carried("other")

    assert carried.maintenance
    assert replace(carried, maintenance=False, attempt="x") == RECEIPT


@pytest.mark.parametrize("found", ["x", None, 0, -1, 3.0, True, [3], float("inf")])
def test_a_word_of_others_that_is_no_number_of_a_format_is_no_receipt(found):
    assert Receipt.from_json(json.dumps({**json.loads(RECEIPT.to_json()), "freshline": found})) is None


@pytest.mark.parametrize("text", ['{"freshline": ' + "9" * 5000 + "}", '{"freshline": ' + "[" * 100_000])
def test_a_text_that_no_reader_of_json_takes_is_no_receipt(text):
    assert Receipt.from_json(text) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("table", None), ("table", ""), ("seq", "x"), ("epoch", float("inf")), ("positions", [])),
        *(("positions", {"s": {"table_id": "x", "version": None}}), ("cut", 1), ("spans", {"spans": [[]]})),
        *(("data_timestamp", "yesterday"), ("partitions", {"p": {"s": {}}}), ("freshline", 2)),
    ],
)
def test_a_receipt_that_somebody_changed_is_refused_with_the_table_and_a_remedy(key, value):
    with pytest.raises(FormatError, match="a receipt is damaged .*bring the version of the table before it back"):
        Receipt.from_json(json.dumps({**json.loads(RECEIPT.to_json()), key: value}))

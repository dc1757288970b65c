"""Records of a large batch that are there twice, recognized by the bits of their keys."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from freshline.compute.inputs import FILE, HASH, RECORD
from freshline.compute.log_keys import collect_bits
from freshline.ingest import duplicates
from freshline.sources.records import ERROR, mark_duplicates
from freshline.values.names import TableName

COLUMNS = f"id STRING, {FILE} STRING, {RECORD} BIGINT, {HASH} BIGINT, {ERROR} STRING"


@pytest.mark.parametrize("most", [duplicates.MOST_SUSPECTS, 1])
def test_records_of_one_place_are_distinguished(spark, lab, monkeypatch, most):
    # As records that are tried again: a topic that was made anew has its partitions and offsets a second time.
    monkeypatch.setattr(duplicates, "MOST_SUSPECTS", most)
    lab.files("ev", "id STRING", primary_key=["id"])
    spec = lab.runtime.graph.source(TableName.parse("ev"))
    chance = Random(5)
    rows = []
    for number in range(3_000):
        key = None if chance.random() < 0.02 else f"k{chance.randrange(2_000)}"
        error = "NOT_JSON" if chance.random() < 0.05 else "NULL_KEY" if key is None else None
        # The same key is the same record, so it does not matter which of two at one place comes first.
        rows.append((key, f"t-{number % 2}", chance.randrange(40), hash(key) % 1_000, error))
    frame = spark.createDataFrame(rows, COLUMNS)
    bits = collect_bits(frame.where(f"{ERROR} IS NULL"), ["id"])
    times = Counter(bits.tolist())
    twice = [value for value, count in times.items() if count > 1]
    assert len(twice) > 300

    found = duplicates._mark_repeated_in_batch(frame, spec, np.array(twice))

    expected = mark_duplicates(frame, spec)
    assert found.columns == expected.columns
    shown = [Counter((row["id"], row[ERROR]) for row in each.collect()) for each in (found, expected)]
    assert shown[0] == shown[1]
    stays = Counter(row["id"] for row in found.collect() if row[ERROR] is None)
    assert stays == Counter({key for key, _, _, _, error in rows if error is None})

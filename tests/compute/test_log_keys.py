"""The kept keys of a log are all keys of the log, and are given only for the log that they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshline.compute import log_keys
from freshline.compute.log_keys import KeysInOrder, KnownKeys, LogKeys, no_keys

ONE, OTHER = Path("/warehouse/one"), Path("/warehouse/other")
BITS = st.integers(-(2**63), 2**63 - 1)


def bits(*values):
    return np.array(values, dtype=np.int64)


def keys_of(key, identity, found, seq=7):
    none = no_keys(key, identity)
    return LogKeys(identity, key, KeysInOrder.of(found, np.full(len(found), seq, dtype=np.int32)), none.new)


@pytest.mark.seconds
@given(st.lists(BITS), st.lists(st.lists(BITS, max_size=8), max_size=8), st.lists(BITS), st.integers(1, 5))
@settings(deadline=None)
def test_it_has_what_the_log_had_and_each_batch_brought(before, batches, others, most_new):
    with_few_new, log_keys._MOST_NEW = log_keys._MOST_NEW, most_new
    try:
        keys, expected = keys_of(("id",), "0", bits(*before)), {each: {7} for each in before}
        for number, batch in enumerate(batches, start=8):
            keys = keys.after(str(number), bits(*batch), number)
            for each in batch:
                expected.setdefault(each, set()).add(number)
    finally:
        log_keys._MOST_NEW = with_few_new
    asked = [*expected, *others, 2**63 - 1, -(2**63), 0]
    assert keys.among(bits(*asked)).tolist() == [each in expected for each in asked]
    assert keys.count >= len(expected)
    for some in ([each] for each in asked):
        assert keys.seqs_of(bits(*some)) == sorted(expected.get(some[0], ()))
    assert keys.seqs_of(bits(*sorted(set(asked)))) == sorted(set().union(*expected.values()))


def test_keys_are_given_for_the_receipt_and_the_columns_that_they_are_of():
    kept = KnownKeys()
    kept.keep(ONE, keys_of(("id",), "1/7/now", bits(1, 2)))

    assert kept.find(ONE, ("id",), "1/7/now") is not None
    assert kept.find(ONE, ("id",), "1/6/now") is None
    assert kept.find(ONE, ("other",), "1/7/now") is None
    assert kept.find(OTHER, ("id",), "1/7/now") is None


def test_the_log_that_was_not_asked_for_the_longest_makes_place_and_one_too_large_is_not_kept():
    kept = KnownKeys(most=5)
    kept.keep(ONE, keys_of(("id",), "", bits(1, 2)))
    kept.keep(OTHER, keys_of(("id",), "", bits(1, 2)))
    assert kept.find(ONE, ("id",), "") is not None

    third = Path("/warehouse/third")
    kept.keep(third, keys_of(("id",), "", bits(1, 2)))
    found = [path for path in (ONE, OTHER, third) if kept.find(path, ("id",), "") is not None]
    assert found == [ONE, third]

    kept.keep(OTHER, keys_of(("id",), "", bits(*range(6))))
    assert kept.find(OTHER, ("id",), "") is None

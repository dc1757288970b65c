"""Records that Python decodes in the processes of Spark, in parts of bounded size."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from freshline.sources.formats.framed_rows import _MOST_ROWS, _ROWS_BYTES, _in_parts

MADE = pa.schema([("number", pa.int64()), ("broken", pa.string())])


def parts_of(records: list[bytes | None]) -> tuple[list[list[bytes | None]], list[int | None]]:
    seen: list[list[bytes | None]] = []

    def decode(values: list[bytes | None]) -> list[pa.Array]:
        seen.append(values)
        return [
            pa.array([None if value is None else len(value) for value in values], pa.int64()),
            pa.nulls(len(values)),
        ]

    given_batch = pa.array([b"before", *records, b"behind"], pa.binary()).slice(1, len(records))
    found = list(_in_parts(lambda: decode, MADE)(iter([given_batch])))
    assert all(part.type == pa.struct(MADE) for part in found)
    return seen, [row["number"] for part in found for row in part.to_pylist()]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | st.integers(0, _ROWS_BYTES + 5), max_size=12))
def test_a_part_ends_with_the_record_that_reaches_the_bound(sizes):
    records = [None if size is None else b"x" * size for size in sizes]
    seen, lengths = parts_of(records)

    assert [record for part in seen for record in part] == records
    assert lengths == sizes
    for number, part in enumerate(seen):
        assert part
        assert sum(len(record or b"") for record in part[:-1]) < _ROWS_BYTES
        if number < len(seen) - 1:
            assert sum(len(record or b"") for record in part) >= _ROWS_BYTES


def test_a_part_has_no_more_records_than_the_bound():
    seen, _ = parts_of([b""] * (2 * _MOST_ROWS + 1))

    assert [len(part) for part in seen] == [_MOST_ROWS, _MOST_ROWS, 1]

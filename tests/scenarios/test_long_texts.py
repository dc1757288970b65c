"""Tables whose rows have long texts are refreshed, though few of them are more than the driver keeps."""

from __future__ import annotations

import pytest

from freshline.compute.materialize import MOST_BYTES

LONG = 64 << 10
ROWS = MOST_BYTES // LONG + 100
NEWEST = """
CREATE MATERIALIZED TABLE newest (PRIMARY KEY (k))
WITH ('merge' = 'last_row', 'merge.sequence' = 'n', 'merge.tie-breaker' = 'id') FRESHNESS = INTERVAL '1' HOUR
AS SELECT k, id, n, note FROM ev;
"""
GREATEST = """
CREATE MATERIALIZED TABLE greatest (PRIMARY KEY (k)) FRESHNESS = INTERVAL '1' HOUR
AS SELECT k, max(note) AS note, count(DISTINCT n) AS times FROM ev GROUP BY k;
"""
EVERY = "CREATE MATERIALIZED TABLE every FRESHNESS = INTERVAL '1' HOUR AS SELECT k, n, upper(note) AS note FROM ev;"
STRATEGIES = {"newest": "merge", "greatest": "keys", "every": "append"}


@pytest.mark.long
def test_a_few_thousand_rows_with_long_texts_are_refreshed_by_each_strategy(lab):
    lab.files("ev", "id STRING, k STRING, n BIGINT, note STRING", primary_key=["id"])
    for sql in (NEWEST, GREATEST, EVERY):
        lab.declare(sql)
    for batch in range(2):
        notes = [f"{batch}-{n}-" * (LONG // 8) for n in range(ROWS)]
        rows = [{"id": f"{batch}-{n}", "k": f"k{n}", "n": batch, "note": note} for n, note in enumerate(notes)]
        lab.land("ev", f"{batch}.json", rows)
        assert lab.refresh("ev").rows_out == ROWS
        for name, strategy in STRATEGIES.items():
            outcome = lab.refresh(name, strategy=strategy if batch else None)

            assert outcome.error is None, outcome.error
            assert outcome.rows_out == ROWS
            assert lab.verify(name).equal
